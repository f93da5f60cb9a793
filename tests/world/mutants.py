#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""usage: mutants.py [--count N] [--seed S] [--room FOLDER]... [--copy FOLDER] [--minutes T] [--programs REGEX] [--worlds N] [--only FILE:LINE:COLUMN]

How much the tests see: in a copy of this commit it changes one comparison, one boolean, one && or ||, or one +1 or -1 of src/core,
src/control, providers/tcp or src/coll at random, builds, and runs the world over loop and tcp, unit and protocol until one of them
fails. A line for each mutant says which did. Those that nothing finds are to be looked at: some change nothing that can be
seen, the others lack a case or an oracle. --programs takes only those programs beside the world, and --worlds so many seeds of a fabric, where time is short. The same seed draws the same mutants.
"""
import argparse
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time

TOP = pathlib.Path(__file__).resolve().parents[2]
ROOMS = ['src/core', 'src/control', 'providers/tcp', 'src/coll']
PATIENCE = 20  # times as long as without a mutant, and a minute: one that waits for ever is found

# What is changed into what. Templates have no blanks around their < and >.
CHANGES = [
    (r' <= ', [' < ']), (r' >= ', [' > ']), (r' < ', [' <= ']), (r' > ', [' >= ']), (r' == ', [' != ']), (r' != ', [' == ']),
    (r' && ', [' || ']), (r' \|\| ', [' && ']), (r'\btrue\b', ['false']), (r'\bfalse\b', ['true']),
    (r' \+ 1\b(?![.x\'])', [' - 1', '']), (r' - 1\b(?![.x\'])', [' + 1', '']), (r'(?<=[(\s&|])!(?=[\w(])', ['']),
]


def code_of(line):
    """The line without its comment; strings are blanked so that columns stay."""
    line = re.sub(r'"(?:[^"\\]|\\.)*"', lambda text: '"' + ' ' * (len(text[0]) - 2) + '"', line)
    return line.partition('//')[0]


def places(folder, rooms):
    """All that may be changed: path, line and column from 0, what stands there, and what may stand there."""
    for room in rooms:
        for path in sorted((folder / room).glob('*.cc')):
            for number, line in enumerate(path.read_text().splitlines()):
                code = code_of(line)
                if re.match(r'\s*(#|static_assert|template|using|namespace)', code):
                    continue
                for pattern, others in CHANGES:
                    for hit in re.finditer(pattern, code):
                        yield path.relative_to(folder), number, hit.start(), hit[0], others


def run(command, last, **options):
    """True if it ended well within its time."""
    try:
        done = subprocess.run([str(word) for word in command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=last,
                              stdin=subprocess.DEVNULL, check=False, **options)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def prepare(copy):
    """A copy of HEAD, and its build of test programs file by file: a mutant costs one compilation."""
    if (copy / 'build/build.ninja').exists():  # of an earlier run, as it is
        return
    copy.mkdir(parents=True, exist_ok=True)
    archive = subprocess.Popen(['git', '-C', str(TOP), 'archive', 'HEAD'], stdout=subprocess.PIPE)
    subprocess.run(['tar', '-x', '-C', str(copy)], stdin=archive.stdout, check=True)
    if archive.wait() != 0:
        sys.exit('git archive failed')
    subprocess.run(['meson', 'setup', str(copy / 'build'), str(copy), '-Dbuildtype=plain', '-Doptimization=0', '-Dtests=enabled',
                    '-Dtools=disabled', '-Dofi=disabled', '-Dverbs=disabled'], check=True, stdout=subprocess.DEVNULL,
                   env={**os.environ, **({'CXX_LD': 'mold'} if shutil.which('mold') else {})})


def programs(copy, wanted):
    """Unit and protocol tests that need neither other programs nor much time, world's parts, and the world; the quick ones first."""
    known = subprocess.run(['ninja', '-C', str(copy / 'build'), '-t', 'targets', 'all'], capture_output=True, text=True, check=True).stdout
    names = re.findall(r'^(tests/(?:unit|protocol|coll)/(?:unit|protocol|coll)-[\w-]+): cpp_LINKER', known, re.MULTILINE)
    slow = {'unit-control-silence', 'unit-control-process', 'coll-sharp', 'coll-flush', 'protocol-random', 'protocol-rail-storm'}
    return [name for name in names if name.rpartition('/')[2] not in slow and re.search(wanted, name)] + ['tests/world/world-parts']


def build(copy, targets):
    return run(['ninja', '-C', copy / 'build', *targets, 'tests/world/simulate'], 7200)


def commands(copy, targets, room, seeds):
    """Name and command of all that is run for a mutant of that room, what finds most first."""
    simulate = copy / 'build/tests/world/simulate'
    worlds = [('the world over ' + fabric, [simulate, '--fabric', fabric, '--seeds', seeds]) for fabric in ('tcp', 'loop')]
    tests = [(name.rpartition('/')[2], [copy / 'build' / name]) for name in targets]
    return {'providers/tcp': worlds[:1] + tests, 'src/core': worlds + tests}.get(room, tests + worlds)


def measured(copy, targets, seeds):
    """How long each may take; what fails without a mutant is left out."""
    longest = {}
    for name, command in commands(copy, targets, 'src/core', seeds):
        began = time.monotonic()
        if run(command, 1800, cwd=copy / 'build'):
            longest[name] = 60 + PATIENCE * (time.monotonic() - began)
        else:
            print(f'left out, as it fails without a mutant: {name}', flush=True)
    return longest


def finder(copy, targets, room, seeds, longest):
    """The name of the first program that fails; None: all hold."""
    for name, command in commands(copy, targets, room, seeds):
        if name in longest and not run(command, longest[name], cwd=copy / 'build'):
            return name
    return None


def mutate(copy, place, other):
    path, number, column, what, _ = place
    file = copy / path
    lines = file.read_text().splitlines(keepends=True)
    lines[number] = lines[number][:column] + other + lines[number][column + len(what):]
    file.write_text(''.join(lines))


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument('--count', type=int, default=100)
    options.add_argument('--seed', type=int, default=1)
    options.add_argument('--minutes', type=float, default=1e9)
    options.add_argument('--room', action='append')
    options.add_argument('--copy', type=pathlib.Path)
    options.add_argument('--only')
    options.add_argument('--worlds', type=int, default=150)
    options.add_argument('--programs', default='')
    arguments = options.parse_args()
    draw = random.Random(arguments.seed)
    end = time.monotonic() + 60 * arguments.minutes
    found = compiled = 0
    with tempfile.TemporaryDirectory() as temporary:
        copy = arguments.copy or pathlib.Path(temporary) / 'weft'
        prepare(copy)
        # What does not link without all providers is left out.
        run(['ninja', '-C', copy / 'build', '-k', '0', *programs(copy, arguments.programs)], 7200)
        targets = [name for name in programs(copy, arguments.programs) if (copy / 'build' / name).exists()]
        if not build(copy, targets):
            sys.exit('this commit does not build')
        longest = measured(copy, targets, arguments.worlds)
        everywhere = list(places(copy, arguments.room or ROOMS))
        print(f'{len(everywhere)} places, {len(longest)} programs', flush=True)
        while compiled < arguments.count and time.monotonic() < end:
            place = draw.choice(everywhere)
            other = draw.choice(place[4])
            if arguments.only:
                place = next(one for one in everywhere if f'{one[0]}:{one[1] + 1}:{one[2] + 1}' == arguments.only)
                other = place[4][0]
            path, number, column, what, _ = place
            kept = (copy / path).read_text()
            mutate(copy, place, other)
            try:
                if not build(copy, targets):
                    if arguments.only:
                        sys.exit('it does not compile')
                    continue
                compiled += 1
                by = finder(copy, targets, str(path.parent), arguments.worlds, longest)
            finally:
                (copy / path).write_text(kept)
            found += by is not None
            print(f'{path}:{number + 1}:{column + 1}: "{what.strip()}" -> "{other.strip()}": {"found by " + by if by else "NOT FOUND"}: '
                  f'{kept.splitlines()[number].strip()}', flush=True)
            if arguments.only:
                break
    print(f'{found} of {compiled} found')


if __name__ == '__main__':
    main()
