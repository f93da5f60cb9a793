#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""What scripts/test promises: what it counts, which skips it lets pass, that it says what runs, and that its deadline holds."""
import io
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock

LIB = pathlib.Path(__file__).resolve().parents[2] / 'scripts' / 'lib'
sys.path.insert(0, str(LIB))
import progress
import run_tests
import testlog


def entry(name, result='OK', stdout='', status=0):
    return {'name': f'weft:unit / {name}', 'result': result, 'stdout': stdout, 'returncode': status}


class InFolder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)


class CountingTest(InFolder):
    def summarise(self, *entries, expected=None, skips=()):
        names = expected or [testlog.short_name(e) for e in entries]
        row = testlog.summarise('release/unit', entries, names, skips)
        return row.passed, row.failed, row.skipped, ' '.join(row.notes + [reason for _, reason in row.skips])

    def test_programs_count_as_their_cases(self):
        both = 'All tests passed (127 assertions in 12 test cases)\n'
        self.assertEqual(self.summarise(entry('a', stdout=both), entry('b')), (13, 0, 0, ''))

    def test_failed_cases_are_counted(self):
        text = 'test cases:  5 | 3 passed |  2 failed\nassertions: 9 | 7 passed | 2 failed\n'
        passed, failed, _, notes = self.summarise(entry('a', 'FAIL', text, 2))
        self.assertEqual((passed, failed), (3, 2))
        self.assertIn('a FAIL (status 2)', notes)

    def test_a_program_that_fails_after_its_cases_passed_is_a_failure(self):
        text = 'All tests passed (127 assertions in 12 test cases)\n'
        self.assertEqual(self.summarise(entry('a', 'FAIL', text, 23))[:2], (12, 1))

    def test_timeouts_interruptions_and_crashes_fail(self):
        for result in ('FAIL', 'TIMEOUT', 'INTERRUPT', 'ERROR', 'UNEXPECTEDPASS'):
            self.assertEqual(self.summarise(entry('a', result, status=-6))[:2], (0, 1), result)

    def test_a_test_that_never_reported_is_a_failure(self):
        self.assertEqual(self.summarise(entry('a'), expected=['a', 'b']), (1, 1, 0, 'b did not report'))

    def test_a_log_that_ends_within_a_line_tells_what_is_before(self):
        log = self.folder / 'log.json'
        log.write_text(json.dumps(entry('a')) + '\n' + json.dumps(entry('b'))[:-9])
        self.assertEqual(testlog.read_entries(log), [entry('a')])

    def test_only_listed_skips_pass(self):
        skip = entry('gpu-copy', 'SKIP', 'looking\nskip: no NVIDIA GPU\n', 77)
        passed, failed, skipped, notes = self.summarise(skip)
        self.assertEqual((passed, failed, skipped), (0, 1, 0))
        self.assertIn('no NVIDIA GPU', notes)
        allowed = [('*/unit/gpu-*', 'needs a GPU')]
        self.assertEqual(self.summarise(skip, skips=allowed)[:3], (0, 0, 1))
        self.assertEqual(self.summarise(entry('cpu', 'SKIP'), skips=allowed)[:3], (0, 1, 0))

    def test_the_list_of_skips_wants_reasons(self):
        path = self.folder / 'skips'
        path.write_text('# words\n\n*/system/gpu-*   needs a GPU\n')
        self.assertEqual(testlog.read_skips(path), [('*/system/gpu-*', 'needs a GPU')])
        path.write_text('*/system/gpu-*\n')
        self.assertRaises(ValueError, testlog.read_skips, path)

    def test_the_last_line_says_it_all(self):
        rows = [testlog.Row('a', passed=3), testlog.Row('b', passed=1, failed=2)]
        self.assertEqual(testlog.verdict(rows), '4 passed, 2 failed')
        self.assertEqual(testlog.verdict([testlog.Row('a', passed=3, skipped=1)]), '3 passed, 0 failed, 1 skipped')

    def test_the_end_says_once_why_tests_were_skipped(self):
        skips = [('*', 'a reason')]
        entries = [entry(name, 'SKIP', f'skip: {why}\n', 77) for name, why in (('a', 'no card'), ('b', 'no card'), ('c', 'no guest'))]
        rows = [testlog.summarise('release/unit', entries, ['a', 'b', 'c'], skips)]
        self.assertEqual(testlog.skipped(rows), ['skipped: no card (2: a, b)', 'skipped: no guest (1: c)'])
        self.assertEqual(testlog.skipped([]), ['skipped: nothing'])

    def test_the_end_shows_what_failed_tests_printed(self):
        entries = [entry('a', 'FAIL', 'x\n' * 50 + 'the reason\n', 1), entry('b')]
        lines = testlog.failures([testlog.summarise('release/unit', entries, ['a', 'b'], ())])
        self.assertEqual(lines[1], '-- release/unit/a, its last lines:')
        self.assertEqual((len(lines), lines[-1]), (22, 'the reason'))


class ProgressTest(InFolder):
    def test_what_runs_is_found_among_processes(self):
        sleeper = self.folder / 'sleeper'
        sleeper.write_text('#!/bin/sh\nread nothing\n')
        sleeper.chmod(0o755)
        tests = [{'name': f'{argument}-{setting}', 'cmd': [*before, str(sleeper), argument], 'env': {'SETTING': setting}}
                 for before, argument, setting in (([], 'a', '1'), ([], 'a', '2'), (['/usr/bin/env', 'X=Y'], 'b', '1'))]
        for test in tests:
            with subprocess.Popen(test['cmd'], env={**os.environ, **test['env']}, stdin=subprocess.PIPE) as process:
                end = time.monotonic() + 20
                while progress.running(os.getpid(), tests) == [] and time.monotonic() < end:
                    time.sleep(0.01)
                self.assertEqual(progress.running(os.getpid(), tests), [test['name']])
                process.communicate(b'\n')

    def test_the_time_that_is_left_follows_from_the_last_run_and_this_one(self):
        file = self.folder / '.cache' / 'seconds.json'
        estimate = progress.Estimate(file, ['a', 'b', 'c'])
        self.assertIsNone(estimate.seconds_left(1))
        estimate.finished('a', 10)
        self.assertEqual(estimate.seconds_left(10), 20)  # b and c as a
        estimate.finished('b', 30)
        estimate.keep()
        again = progress.Estimate(file, ['a', 'b'])
        again.finished('a', 20)  # all is twice as slow today
        self.assertEqual(again.seconds_left(20), 30)

    def test_the_end_of_a_test_is_known_by_its_line(self):
        for line in (' 9/10 weft:verbs+guest / sizes-verbs-rails OK              31.55s', '12/130 weft:unit / sizes-verbs-rails     FAIL     31.55s   exit status 1'):
            match = progress.FINISHED.match(line)
            self.assertEqual((match[3].rpartition(' / ')[2], match[5]), ('sizes-verbs-rails', '31.55'))

    def test_a_status_says_how_much_is_left_and_what_runs(self):
        self.assertEqual(progress.status_line('release', 3, 9, 130, ['x', 'y']),
                         '-- release: 3 of 9 programs done, about 2 min left; running: x, y')

    def test_into_a_file_a_status_goes_only_when_nothing_else_did_for_a_while(self):
        out = io.StringIO()
        display = progress.Display(out)
        display.line('a line')
        display.status('too soon')
        display.last -= progress.QUIET_SECONDS
        display.status('now')
        self.assertEqual(out.getvalue(), 'a line\nnow\n')


class RunnerTest(InFolder):
    """The runner over a project of the test's own: Meson and Ninja are the real ones."""

    def run_tests(self, tests, *arguments, programs=None):
        (self.folder / 'tests').mkdir()
        (self.folder / 'tests' / 'skips').write_text('')
        (self.folder / 'meson.build').write_text(
            "project('toy')\nadd_test_setup('small', is_default: true)\nadd_test_setup('full', env: {'LARGE': '1'})\n" + tests)
        for name in ('scripts/lib',):
            (self.folder / name).parent.mkdir()
            (self.folder / name).symlink_to(LIB)
        out = io.StringIO()
        build = run_tests.Build('release', 'meson setup "$2" "$1"')
        arm64 = run_tests.Build('arm64', 'meson setup "$2" "$1"', suites=('one', 'c'), inside=('env', 'INSIDE=yes'))
        with unittest.mock.patch.multiple(run_tests, TOP=self.folder, RELEASE=build, ARM64=arm64, COMMON=[]), \
                unittest.mock.patch('sys.stdout', out):
            status = run_tests.main(list(arguments))
        return status, out.getvalue()

    def test_all_suites_run_but_those_with_a_place_of_their_own(self):
        status, printed = self.run_tests("t = find_program('true')\ntest('a', t, suite: 'one')\ntest('b', t, suite: 'two')\n"
                                         "test('c', t, suite: ['three', 'elsewhere'])\n")
        self.assertEqual((status, printed.splitlines()[-1]), (0, '2 passed, 0 failed'), printed)

    def test_a_failure_fails_the_run_and_is_shown(self):
        status, printed = self.run_tests("sh = find_program('sh')\ntest('a', sh, args: ['-c', 'echo the reason; exit 1'], suite: 'one')\n"
                                         "test('b', sh, args: ['-c', 'echo no card; exit 77'], suite: 'two')\n")
        self.assertEqual((status, printed.splitlines()[-1]), (1, '0 passed, 2 failed'), printed)
        self.assertIn('the reason', printed)
        self.assertIn('b SKIPPED without leave in tests/skips: no card', printed)

    def second_try(self, programs, *arguments):
        """Tests of which each fails in its first run, when `programs` says so in shell code."""
        tests = ''.join(f"test('{name}', sh, args: ['-c', '{code}'], suite: 'one')\n" for name, code in programs.items())
        return self.run_tests("sh = find_program('sh')\n" + tests, *arguments)

    def test_what_fails_beside_others_may_pass_alone_and_is_named(self):
        once = f'test -e {self.folder}/was || {{ touch {self.folder}/was; exit 1; }}'
        status, printed = self.second_try({'a': once, 'b': 'true'}, '--second-try')
        self.assertEqual((status, printed.splitlines()[-1]), (0, '2 passed, 0 failed'), printed)
        self.assertIn('a FAIL beside other tests, passed alone', printed)

    def test_there_is_no_second_try_unless_asked_for(self):
        once = f'test -e {self.folder}/was || {{ touch {self.folder}/was; exit 1; }}'
        self.assertEqual(self.second_try({'a': once})[0], 1)

    def test_what_fails_twice_fails(self):
        status, printed = self.second_try({'a': 'echo the reason; exit 1', 'b': 'true'}, '--second-try')
        self.assertEqual((status, printed.splitlines()[-1]), (1, '1 passed, 1 failed'), printed)

    def test_many_failures_are_no_accident(self):
        many = {f't{i}': f'test -e {self.folder}/was{i} || {{ touch {self.folder}/was{i}; exit 1; }}'
                for i in range(run_tests.MOST_SECOND_TRIES + 1)}
        self.assertEqual(self.second_try(many, '--second-try')[0], 1)

    def test_an_unknown_suite_fails(self):
        status, printed = self.run_tests("test('a', find_program('true'), suite: 'one')\n", 'oen')
        self.assertEqual(status, 1)
        self.assertIn('no such suite or test: oen; suites are: one', printed)

    def test_a_test_may_be_named_and_nothing_else_is_built_for_it(self):
        programs = "bad = custom_target('bad', output: 'bad', command: ['false'])\nt = find_program('true')\n"
        status, printed = self.run_tests(programs + "test('a', t, suite: 'one')\ntest('b', t, suite: 'one', depends: bad)\n", 'a')
        self.assertEqual((status, printed.splitlines()[-1]), (0, '1 passed, 0 failed'), printed)

    def test_the_deadline_names_what_hangs_and_ends_it(self):
        pid = self.folder / 'pid'
        status, printed = self.run_tests("sh = find_program('sh')\n"
                                         f"test('hangs', sh, args: ['-c', 'echo $$ >{pid}; sleep 100; true'], suite: 'one')\n",
                                         '--deadline', '0.4')
        self.assertEqual(status, 1)
        self.assertRegex(printed, 'minutes passed while this was running: release/here: hangs')
        self.assertFalse(pathlib.Path('/proc', pid.read_text().strip()).exists())

    def test_a_build_may_have_suites_and_tests_of_its_own_and_a_command_that_runs_them(self):
        status, printed = self.run_tests("sh = find_program('sh')\ninside = ['-c', 'test \"$INSIDE\" = yes']\n"
                                         "test('a', sh, args: inside, suite: 'one')\ntest('b', find_program('false'), suite: 'two')\n"
                                         "test('c', sh, args: inside, suite: 'three')\n", '--arm64')
        self.assertEqual((status, printed.splitlines()[-1]), (0, '2 passed, 0 failed'), printed)
        self.assertIn('arm64/three', printed)

    def test_full_counts_reach_the_tests(self):
        status, printed = self.run_tests("test('a', find_program('sh'), args: ['-c', 'test \"$LARGE\" = 1'], suite: 'one')\n", '--full')
        self.assertEqual((status, printed.splitlines()[-1]), (0, '1 passed, 0 failed'), printed)


if __name__ == '__main__':
    unittest.main()
