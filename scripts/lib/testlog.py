# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""What a run of Meson's test runner gave: reads its log, applies the list of allowed skips, makes the table.

A Catch2 program counts as its test cases, any other program as one test. Pure functions; no thread, no clock.
"""
import dataclasses
import fnmatch
import json
import re

ALL_PASSED = re.compile(r'All tests passed \(.* in (\d+) test cases?\)')
CASES = re.compile(r'^test cases:\s+(\d+)(.*)$', re.MULTILINE)
GOOD = {'OK', 'EXPECTEDFAIL'}


@dataclasses.dataclass
class Row:
    """One line of the final table."""
    name: str                     # build/suite
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0          # of its programs, one after the other
    notes: list = dataclasses.field(default_factory=list)  # which failed
    skips: list = dataclasses.field(default_factory=list)  # (test, why it was skipped)
    second_tries: int = 0  # programs that failed beside others and passed alone
    outputs: dict = dataclasses.field(default_factory=dict)  # {test that failed: what it printed}

    def fail(self, note):
        self.failed += 1
        self.notes.append(note)


def read_skips(path):
    """Lines `PATTERN REASON`; PATTERN is a shell pattern over build/suite/test. Returns [(pattern, reason)]."""
    skips = []
    for line in path.read_text().splitlines():
        line = line.strip()
        if not line or line.startswith('#'):
            continue
        pattern, _, reason = line.partition(' ')
        if not reason.strip():
            raise ValueError(f'{path}: the skip {pattern} has no reason')
        skips.append((pattern, reason.strip()))
    return skips


def short_name(entry):
    return entry['name'].rpartition(' / ')[2]


def output_of(entry):
    return (entry.get('stdout') or '') + '\n' + (entry.get('stderr') or '')


def last_words(entry):
    """The last line a test printed: by agreement the reason of its skip."""
    lines = [line.strip() for line in output_of(entry).splitlines() if line.strip()]
    return lines[-1] if lines else 'no reason given'


def count_cases(entry):
    """(passed, failed) of one program."""
    output = entry.get('stdout') or ''
    good = entry['result'] in GOOD
    passed, failed = (1, 0) if good else (0, 1)
    if match := ALL_PASSED.search(output):
        passed, failed = int(match[1]), 0
    elif match := CASES.search(output):
        found = re.search(r'(\d+) failed', match[2])
        failed = int(found[1]) if found else 0
        passed = int(match[1]) - failed
    if not good and failed == 0:
        failed = 1  # every case passed, the program did not: a crash at exit, a leak, a timeout
    return passed, failed


def add_skip(row, entry, skips):
    test = f'{row.name}/{short_name(entry)}'
    reason = last_words(entry)
    allowed = [why for pattern, why in skips if fnmatch.fnmatch(test, pattern)]
    if allowed:
        row.skipped += 1
        row.skips.append((short_name(entry), reason.removeprefix('skip: ')))
    else:
        row.fail(f'{short_name(entry)} SKIPPED without leave in tests/skips: {reason}')


def add_entry(row, entry, skips):
    row.seconds += entry.get('duration') or 0
    if entry['result'] == 'SKIP':
        add_skip(row, entry, skips)
        return
    passed, failed = count_cases(entry)
    row.passed += passed
    row.failed += failed
    if 'first' in entry and not failed:
        row.second_tries += 1
        row.notes.append(f'{short_name(entry)} {entry["first"]} beside other tests, passed alone')
    if failed:
        row.outputs[f'{row.name}/{short_name(entry)}'] = output_of(entry)
        row.notes.append(f'{short_name(entry)} {entry["result"]} (status {entry.get("returncode")})')


def read_entries(log):
    """Up to where a runner was that could not end by itself: Meson's writes whole blocks, which end within a line."""
    lines = log.read_text().splitlines(keepends=True) if log.exists() else []
    return [json.loads(line) for line in lines if line.endswith('\n') and line.strip()]


def failed(entries):
    """Names of the programs that failed."""
    return {short_name(entry) for entry in entries if entry['result'] not in GOOD | {'SKIP'}}


def decided(entries, second):
    """`entries`, but of a program that ran a second time the entry of `second`, whose key `first` is the first result."""
    again = {short_name(entry): entry for entry in second}
    return [{**again[short_name(entry)], 'first': entry['result']} if short_name(entry) in again else entry for entry in entries]


def summarise(name, entries, expected, skips):
    """The row of suite `name`; `expected` are its programs, each of which has to be among `entries`."""
    row = Row(name)
    reported = [entry for entry in entries if short_name(entry) in expected]
    for entry in reported:
        add_entry(row, entry, skips)
    for test in sorted(set(expected) - {short_name(entry) for entry in reported}):
        row.fail(f'{test} did not report')
    return row


def duration(seconds):
    if seconds < 60:
        return f'{seconds:.0f} s'
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f'{hours} h {minutes:02} min' if hours else f'{minutes} min {seconds:02} s'


def table(rows):
    """Lines of text: one a suite, what failed indented below it."""
    width = max([len('suite')] + [len(row.name) for row in rows])
    lines = [f'{"suite":<{width}}  {"passed":>7} {"failed":>7} {"skipped":>8}  time']
    for row in rows:
        lines.append(f'{row.name:<{width}}  {row.passed:>7} {row.failed:>7} {row.skipped:>8}  {duration(row.seconds)}')
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


def skipped(rows, most_names=3):
    """Lines of text: one for each reason why tests were skipped, and which ones were."""
    by_reason = {}
    for row in rows:
        for test, reason in row.skips:
            by_reason.setdefault(reason, []).append(test)
    lines = []
    for reason, tests in by_reason.items():
        names = ', '.join(tests[:most_names]) + (', ...' if len(tests) > most_names else '')
        lines.append(f'skipped: {reason} ({len(tests)}: {names})')
    return lines or ['skipped: nothing']


def verdict(rows):
    passed, failed, skipped = (sum(getattr(row, key) for row in rows) for key in ('passed', 'failed', 'skipped'))
    return f'{passed} passed, {failed} failed' + (f', {skipped} skipped' if skipped else '')
