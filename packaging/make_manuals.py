#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""Writes manual pages and shell completion from what the weft command says of itself.

usage: make_manuals.py WEFT VERSION PAGES OUTPUT

Commands and options come from `weft ... --help`, settings from `weft info --config`; PAGES/*.in are what surrounds them.
So no page can name an option that is not there, and none is left out.
"""
import json
import os
import pathlib
import re
import subprocess
import sys

# Options that take one word of a few, which their help has in its text or their error names: the completion offers these, and those of
# options whose help says {ONE,OTHER}.
VALUES = {
    '--datatype': 'float half bfloat16 double int8 uint8 int32 uint32 int64 uint64 all',
    '--op': 'sum prod max min all',
    '--algo': 'ring tree collnet',
    'sim --algo': 'ring tree',
    '--check': '0 1',
    '--abi': '6 7 8 9 10 11 12',
    '--topology': 'this nc-a100-v4 ndv2 nd-a100-v4 nd-h100-v5 p4d.24xlarge p4de.24xlarge',
}
COLUMN = 30  # where --help begins its descriptions
CLEAN = {**{name: value for name, value in os.environ.items() if not name.startswith(('WEFT_', 'NCCL_'))}, 'WEFT_CONF': ''}


def ask(weft, *arguments):
    return subprocess.run([weft, *arguments], env=CLEAN, capture_output=True, text=True, check=True, timeout=60).stdout


def entries(text):
    """(specification, description) of each indented entry of a help text."""
    found = []
    for line in text.splitlines():
        if re.match(r'  \S', line):
            aligned = len(line) > COLUMN and line[COLUMN - 2:COLUMN] == '  '
            found.append([line[:COLUMN] if aligned else line, line[COLUMN:] if aligned else ''])
        elif line.startswith(' ' * COLUMN) and found:
            found[-1][1] += ' ' + line.strip()
    return [(spec.strip(), ' '.join(description.split())) for spec, description in found]


def options_of(text):
    """[(names, argument, description)]: what begins with a dash."""
    options = []
    for spec, description in entries(text):
        if not spec.startswith('-'):
            continue
        names, _, rest = spec.partition(' ')
        rest = re.sub(r'\s*(Excludes|Needs):.*', '', rest)
        rest = re.sub(r'^[A-Z]+:(?=[A-Z])', '', rest)  # the type of what is checked; the check says more
        options.append((names.split(','), rest.strip(), description))
    return options


def commands_of(text):
    """[(name, description)] below "Subcommands:"."""
    _, found, below = text.partition('Subcommands:\n')
    return entries(below) if found else []


def roff(text):
    """Text that roff takes as it stands."""
    escaped = text.replace('\\', '\\e').replace('-', '\\-')
    return '\\&' + escaped if escaped[:1] in ".'" else escaped


def option_lines(options):
    for names, argument, description in options:
        shown = ', '.join(f'\\fB{roff(name)}\\fR' for name in names)
        yield '.TP'
        yield shown + (f' \\fI{roff(argument)}\\fR' if argument else '')
        yield roff(description or 'see the description above')


def section_lines(name, description, options):
    """Of a command for which the page has no section of its own."""
    yield f'.SH WEFT {name.upper()}'
    yield roff(description[:1].upper() + description[1:]) + '.'
    yield from option_lines(options)


def setting_lines(rows):
    for row in rows:
        yield '.TP'
        yield f'\\fB{row["name"]}\\fR (default: {roff(row["default"] or "empty")})'
        yield roff(row['doc'])
        yield roff(f'Allowed: {row["allowed"]}.' + (f' {row["alias"]} is used when it is unset.' if 'alias' in row else ''))


def values_of(commands):
    """{(command, option), of all its names: words}. An option of one name may be another one elsewhere."""
    found = {}
    for command, _, options in commands:
        for names, argument, _ in options:
            listed = re.search(r'\{([^}]*)\}', argument)
            known = [VALUES[key] for name in names for key in (f'{command} {name}', name) if key in VALUES]
            words = listed.group(1).replace(',', ' ') if listed else known[0] if known else ''
            found.update({(command, name): words for name in names if words})
    return found


def arguments_of(commands, values):
    """(command, option) of those that take something else: most likely a file, or nothing that is known."""
    return sorted((command, name) for command, _, options in commands for names, argument, _ in options for name in names
                  if argument and (command, name) not in values)


def operations_of(helps):
    """{command: its operations} of those that take one, by their help."""
    found = {name: re.findall(r'[a-z_]+', dict(entries(text)).get('operation TEXT', '')) for name, text in helps.items()}
    return {name: words for name, words in found.items() if words}


def bash_completion(commands, operations):
    known = values_of(commands)
    values = '\n'.join(f"    '{command} {name}') words=\"{words}\" values=1 ;;" for (command, name), words in sorted(known.items()))
    others = ' | '.join(f"'{command} {name}'" for command, name in arguments_of(commands, known))
    cases = '\n'.join(f'    {name}) words="{" ".join(flags)}" ;;' for name, flags, _ in commands)
    first = ' '.join(name for name, _, _ in commands if name)
    top = ' '.join(next(flags for name, flags, _ in commands if not name))
    taken = '\n'.join(f'  [[ ${{COMP_WORDS[1]}} != {name} || $current == -* ]] || words="{" ".join(those)}"' for name, those in operations.items())
    return f'''# bash completion of the weft command; generated from its --help
_weft() {{
  local words values='' current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD - 1]}}
  case ${{COMP_WORDS[1]}} in
{cases.replace("    ) ", "    *) ").replace(f'words="{top}"', f'words="{first} {top}"')}
  esac
{taken}
  [[ $COMP_CWORD -gt 1 ]] || words="{first} {top}"
  case "${{COMP_WORDS[1]}} $previous" in
{values}
    {others}) words='' ;;
  esac
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
  [[ ${{#COMPREPLY[@]}} -gt 0 || $current == -* || $values ]] || mapfile -t COMPREPLY < <(compgen -f -- "$current")
}}
complete -o filenames -F _weft weft
'''


def zsh_word(text):
    return re.sub(r"['\[\]:\\]", ' ', text)


def zsh_completion(commands, described, operations):
    values = values_of(commands)
    first = '\n'.join(f"    '{name}:{zsh_word(description)}'" for name, description in described)
    cases = []

    def value_of(command, flag, argument):
        return f':value:({values[command, flag]})' if (command, flag) in values else ':value:_files' if argument else ''

    for name, _, options in commands:
        if not name:
            continue
        lines = [f"'{flag}[{zsh_word(description)}]{value_of(name, flag, argument)}'"
                 for names, argument, description in options for flag in names]
        words = f"({' '.join(operations[name])})" if name in operations else '_files'
        cases.append(f'    {name}) _arguments ' + ' \\\n      '.join(lines) + f" '*:argument:{words}' ;;")
    return f'''#compdef weft
# zsh completion of the weft command; generated from its --help
_weft() {{
  local -a commands
  commands=(
{first}
  )
  if (( CURRENT == 2 )); then
    _describe command commands
    return
  fi
  local command=$words[2]
  shift words
  (( CURRENT-- ))
  case $command in
{chr(10).join(cases)}
  esac
}}
_weft "$@"
'''


def main(arguments):
    if len(arguments) != 4:
        sys.exit(__doc__)
    weft, version, pages, output = arguments[0], arguments[1], pathlib.Path(arguments[2]), pathlib.Path(arguments[3])
    top = ask(weft, '--help')
    described = commands_of(top)
    helps = {name: ask(weft, name, '--help') for name, _ in described}
    if not described or not all(options_of(text) for text in helps.values()):
        sys.exit(f'make_manuals.py: {weft} --help has another form than this script reads')
    rows = json.loads(ask(weft, 'info', '--config', '--json'))['config']
    filled = {'VERSION': version, 'OPTIONS': '\n'.join(option_lines(options_of(top))),
              'SETTINGS': '\n'.join(setting_lines(rows))}
    for name, text in helps.items():
        filled[f'OPTIONS {name}'] = '\n'.join(option_lines(options_of(text)))
    filled['OPERATIONS'] = roff(dict(entries(helps['perf'])).get('operation TEXT', ''))
    shown = (pages / 'weft.1.in').read_text()
    filled['OTHERS'] = '\n'.join(line for name, description in described if f'@OPTIONS {name}@' not in shown
                                 for line in section_lines(name, description, options_of(helps[name])))
    for page in sorted(pages.glob('*.in')):
        text = re.sub(r'@([A-Z]+(?: [a-z]+)?)@', lambda match: filled[match.group(1)], page.read_text())
        (output / page.stem).write_text(text)
    flags = [(name, [flag for names, _, _ in options_of(text) for flag in names], options_of(text))
             for name, text in [*helps.items(), ('', top)]]
    (output / 'weft.bash').write_text(bash_completion(flags, operations_of(helps)))
    (output / '_weft').write_text(zsh_completion(flags, described, operations_of(helps)))


if __name__ == '__main__':
    main(sys.argv[1:])
