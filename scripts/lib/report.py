# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""The table at the end of a test run and its record."""
import datetime
import pathlib
import subprocess

RECORDS = 'docs/test-records.md'


def duration(seconds):
    if seconds < 60:
        return f'{seconds:.0f} s'
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f'{hours} h {minutes:02} min' if hours else f'{minutes} min {seconds:02} s'


def table(rows):
    """Lines of text: one a suite, notes indented below it."""
    width = max([len('suite')] + [len(row.name) for row in rows])
    lines = [f'{"suite":<{width}}  {"ran":>6} {"passed":>7} {"failed":>7} {"skipped":>8}  time']
    for row in rows:
        lines.append(f'{row.name:<{width}}  {row.ran:>6} {row.passed:>7} {row.failed:>7} {row.skipped:>8}  '
                     f'{duration(row.seconds)}')
        lines += [f'{"":<{width}}    {note}' for note in row.notes]
    return lines


def failures(rows, most_tests=6, most_lines=20, most_characters=300):
    """Lines of text: what the first failed tests printed last, for whoever has only the end of a long log."""
    outputs = [item for row in rows for item in row.outputs.items()]
    lines = []
    for test, output in outputs[:most_tests]:
        printed = [line for line in output.splitlines() if line.strip()]
        lines += ['', f'-- {test}, its last lines:', *(line[:most_characters] for line in printed[-most_lines:])]
    if len(outputs) > most_tests:
        lines += ['', f'-- and {len(outputs) - most_tests} more tests failed']
    return lines


def verdict(rows):
    passed, failed, skipped = (sum(getattr(row, key) for row in rows) for key in ('passed', 'failed', 'skipped'))
    return f'{passed} passed, {failed} failed' + (f', {skipped} skipped' if skipped else '')


def git(top, *args):
    try:
        return subprocess.run(['git', '-C', top, *args], capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ''


def commit(top):
    """The commit in words; uncommitted changes are part of the truth, but for the records of other runs."""
    name = git(top, 'rev-parse', '--short=12', 'HEAD') or 'unknown'
    changed = git(top, 'status', '--porcelain', '--untracked-files=no', '--', '.', f':!{RECORDS}')
    return name + (' with uncommitted changes' if changed else '')


def os_release(field):
    """A field of this system's /etc/os-release, or empty."""
    try:
        lines = pathlib.Path('/etc/os-release').read_text().splitlines()
    except OSError:
        return ''
    return next((line.partition('=')[2].strip('"') for line in lines if line.startswith(f'{field}=')), '')


def system_name():
    return os_release('PRETTY_NAME') or 'unknown system'


def append_record(top, command, rows, seconds, cores):
    """Adds one run to the end of the records."""
    when = datetime.datetime.now(datetime.timezone.utc).strftime('%Y-%m-%d %H:%M UTC')
    record = [
        '', f'### {when}', '',
        f'* commit: {commit(top)}',
        f'* command: `{command}`',
        f'* system: {system_name()}, {cores} cores',
        f'* duration: {duration(seconds)}',
        f'* result: {verdict(rows)}',
        '', '```', *table(rows), '```',
    ]
    with (top / RECORDS).open('a') as file:
        file.write('\n'.join(record) + '\n')
