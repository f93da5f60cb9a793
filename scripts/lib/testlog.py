# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""What a run of one suite gave: reads Meson's test log and applies the list of allowed skips.

A Catch2 program counts as its test cases, any other program as one test. A program that failed in a way that time or chance
explains may be given a second run by itself, which then counts. Pure functions; no thread, no clock.
"""
import dataclasses
import fnmatch
import json
import re

ALL_PASSED = re.compile(r'All tests passed \(.* in (\d+) test cases?\)')
CASES = re.compile(r'^test cases:\s+(\d+)(.*)$', re.MULTILINE)
GOOD = {'OK', 'EXPECTEDFAIL'}
# Whatever else the machine does, this does not happen: a sanitizer's report, bytes that are not those that were sent, a crash or a
# hang of a program that the test started. Signal 9 is not among them, as tests kill processes and say so; nor is a driver's
# "not after N ms", which a process that got no processor says as well.
CONCLUSIVE = re.compile(r'Sanitizer|runtime error:|[1-9]\d* wrong|wrong (data|from byte)|is wrong|size \d+ of|has size|mismatch|untouched'
                        r'|wrote (before|behind)|signal (4|6|7|8|11)\b|(status|ended with) -(4|6|7|8|11)\b|terminate called'
                        r'|TimeoutExpired|neither failed nor succeeded', re.IGNORECASE)


@dataclasses.dataclass
class Row:
    """One line of the final table."""
    name: str                     # build/suite
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    notes: list = dataclasses.field(default_factory=list)  # which failed, what was skipped and why
    outputs: dict = dataclasses.field(default_factory=dict)  # {test that failed: what it printed}

    @property
    def ran(self):
        return self.passed + self.failed


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


def doubtful(entry):
    """A check that did not hold, perhaps for want of a processor; a crash, a hang, a skip or a wrong byte is not."""
    return entry['result'] == 'FAIL' and entry.get('returncode', 0) > 0 and not CONCLUSIVE.search(output_of(entry))


def doubtful_tests(log, expected):
    """The programs of `expected` that failed and may be run again."""
    return sorted(short_name(entry) for entry in read_entries(log) if short_name(entry) in expected and doubtful(entry))


def add_entry(row, entry, skips):
    test = f'{row.name}/{short_name(entry)}'
    if entry['result'] == 'SKIP':
        reason = last_words(entry)
        allowed = [why for pattern, why in skips if fnmatch.fnmatch(test, pattern)]
        if allowed:
            row.skipped += 1
            row.notes.append(f'{short_name(entry)} skipped: {reason} (allowed: {allowed[0]})')
        else:
            row.failed += 1
            row.notes.append(f'{short_name(entry)} SKIPPED without leave in tests/skips: {reason}')
        return
    passed, failed = count_cases(entry)
    row.passed += passed
    row.failed += failed
    row.seconds += entry.get('duration') or 0
    if failed:
        row.outputs[test] = output_of(entry)
        row.notes.append(f'{short_name(entry)} {entry["result"]} (status {entry.get("returncode")})')


def read_entries(log):
    """Up to where a runner was that could not end by itself: Meson's writes whole blocks, which end within a line."""
    lines = log.read_text().splitlines(keepends=True) if log.exists() else []
    return [json.loads(line) for line in lines if line.endswith('\n') and line.strip()]


def summarise(name, log, expected, skips, second=None):
    """The row of suite `name` from a JSON log, of several suites perhaps; `expected` are its programs, which had to report.

    `second` is the log of another run of the doubtful ones. What passed there has passed, and the row says so.
    """
    row = Row(name)
    passed_now = {short_name(entry): entry for entry in read_entries(second) if entry['result'] in GOOD} if second else {}
    entries = [entry for entry in read_entries(log) if short_name(entry) in expected]
    for entry in entries:
        test = short_name(entry)
        if test in passed_now and doubtful(entry):
            row.notes.append(f'{test} {entry["result"]} (status {entry["returncode"]}) at first, passed when it ran by itself')
            row.outputs[f'{name}/{test}, at first'] = output_of(entry)
            entry = passed_now[test]
        add_entry(row, entry, skips)
    for test in sorted(set(expected) - {short_name(entry) for entry in entries}):
        row.failed += 1
        row.notes.append(f'{test} did not report')
    return row
