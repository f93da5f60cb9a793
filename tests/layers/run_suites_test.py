#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""The test runner's own promises: what it counts, which skips it lets pass, and that its deadline holds."""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock

LIB = pathlib.Path(__file__).resolve().parents[2] / 'scripts' / 'lib'
sys.path.insert(0, str(LIB))
import head_start
import later
import report
import run_suites
import testlog


def entry(name, result='OK', stdout='', status=0):
    return {'name': f'weft:unit / {name}', 'result': result, 'stdout': stdout, 'returncode': status}


def deaf_talker(said):
    """Shell code that writes a line every 20 ms, for a minute at most, and does not end when it is asked to."""
    return f"trap '' TERM; for _ in $(seq 3000); do sleep 0.02; echo >>{said}; done"


class CountingTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def summarise(self, *entries, expected=None, skips=()):
        log = self.folder / 'log.json'
        log.write_text('\n'.join(json.dumps(e) for e in entries) + '\n')
        names = expected or [testlog.short_name(e) for e in entries]
        row = testlog.summarise('release/unit', log, names, skips)
        return row.passed, row.failed, row.skipped, ' '.join(row.notes)

    def test_programs_count_as_their_cases(self):
        both = 'All tests passed (127 assertions in 12 test cases)\n'
        self.assertEqual(self.summarise(entry('a', stdout=both), entry('b')), (13, 0, 0, ''))
        self.assertEqual(self.summarise(entry('a', stdout='All tests passed (1 assertion in 1 test case)'))[:3], (1, 0, 0))

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
        passed, failed, _, notes = self.summarise(entry('a'), expected=['a', 'b'])
        self.assertEqual((passed, failed, notes), (1, 1, 'b did not report'))

    def test_a_log_that_ends_within_a_line_tells_what_is_before(self):
        log = self.folder / 'log.json'
        log.write_text(json.dumps(entry('a')) + '\n' + json.dumps(entry('b'))[:-9])
        row = testlog.summarise('release/unit', log, ['a', 'b'], ())
        self.assertEqual((row.passed, row.failed, row.notes), (1, 1, ['b did not report']))

    def test_programs_of_other_suites_do_not_count(self):
        self.assertEqual(self.summarise(entry('a'), entry('b'), expected=['b']), (1, 0, 0, ''))

    def test_only_listed_skips_pass(self):
        skip = entry('gpu-copy', 'SKIP', 'looking\nskip: no NVIDIA GPU\n', 77)
        passed, failed, skipped, notes = self.summarise(skip)
        self.assertEqual((passed, failed, skipped), (0, 1, 0))
        self.assertIn('skip: no NVIDIA GPU', notes)
        allowed = [('*/unit/gpu-*', 'needs a GPU')]
        passed, failed, skipped, notes = self.summarise(skip, skips=allowed)
        self.assertEqual((passed, failed, skipped), (0, 0, 1))
        self.assertIn('needs a GPU', notes)
        self.assertEqual(self.summarise(entry('cpu', 'SKIP'), skips=allowed)[:3], (0, 1, 0))

    def test_the_list_of_skips_wants_reasons(self):
        path = self.folder / 'skips'
        path.write_text('# words\n\n*/system/gpu-*   needs a GPU\n')
        self.assertEqual(testlog.read_skips(path), [('*/system/gpu-*', 'needs a GPU')])
        path.write_text('*/system/gpu-*\n')
        self.assertRaises(ValueError, testlog.read_skips, path)

    def test_the_last_line_says_it_all(self):
        rows = [testlog.Row('a', passed=3), testlog.Row('b', passed=1, failed=2)]
        self.assertEqual(report.verdict(rows), '4 passed, 2 failed')
        self.assertEqual(report.verdict([testlog.Row('a', passed=3, skipped=1)]), '3 passed, 0 failed, 1 skipped')

    def test_the_end_shows_what_failed_tests_printed(self):
        log = self.folder / 'log.json'
        log.write_text(json.dumps(entry('a', 'FAIL', 'x\n' * 50 + 'the reason\n', 1)) + '\n' + json.dumps(entry('b')) + '\n')
        lines = report.failures([testlog.summarise('release/unit', log, ['a', 'b'], ())])
        self.assertEqual(lines[1], '-- release/unit/a, its last lines:')
        self.assertEqual((len(lines), lines[-1]), (22, 'the reason'))


class SecondRunTest(unittest.TestCase):
    """A failure that the machine may be to blame for counts as what the second run of the program gave."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.logs = [pathlib.Path(folder.name) / name for name in ('log.json', 'again.json')]

    def summarise(self, first, second=None):
        for log, one in zip(self.logs, (first, second)):
            log.write_text(json.dumps(one) + '\n' if one else '')
        return testlog.summarise('release/system', self.logs[0], ['a'], (), self.logs[1])

    def test_the_second_run_counts_and_the_first_is_told(self):
        row = self.summarise(entry('a', 'FAIL', 'too late\n', 1), entry('a'))
        self.assertEqual((row.passed, row.failed), (1, 0))
        self.assertIn('a FAIL (status 1) at first', row.notes[0])
        self.assertIn('too late', '\n'.join(report.failures([row])))

    def test_a_program_that_fails_twice_has_failed(self):
        row = self.summarise(entry('a', 'FAIL', status=1), entry('a', 'FAIL', status=1))
        self.assertEqual((row.passed, row.failed), (0, 1))

    def test_what_no_machine_is_to_blame_for_has_failed(self):
        wrong = [entry('a', 'FAIL', text, 1) for text in ('8 bytes: wrong from byte 7', 'WARNING: ThreadSanitizer: data race',
                                                          'x.cc:3: runtime error: shift', '3 wrong elements')]
        for first in (*wrong, entry('a', 'FAIL', status=-11), entry('a', 'TIMEOUT', status=-9), entry('a', 'SKIP', status=77)):
            self.assertEqual(testlog.doubtful(first), False, first)
            self.assertEqual(self.summarise(first, entry('a')).failed, 1, first)

        self.assertTrue(testlog.doubtful(entry('a', 'FAIL', '0 wrong elements, too late', 1)))

    def test_what_a_program_started_may_not_crash_or_hang_either(self):
        for text in ('the other process: signal 11 (Segmentation fault)', 'rank 2 (pid 7) ended with signal 6 (Aborted)',
                     'AssertionError: exit status -6', 'FAILED: --fit ended with -11: ', "terminate called after throwing 'x'",
                     "subprocess.TimeoutExpired: Command 'weft' timed out", 'FAILED a: connect neither failed nor succeeded'):
            first = entry('a', 'FAIL', text, 1)
            self.assertEqual(self.summarise(first, entry('a')).failed, 1, text)

        for text in ('rank 1 (pid 7) ended with signal 9 (Killed)', 'signal 15', 'exit status 6', 'status -9',
                     'FAILED a: accept: not after 60000 ms'):
            self.assertTrue(testlog.doubtful(entry('a', 'FAIL', text, 1)), text)

    def test_only_what_failed_is_run_again(self):
        self.logs[0].write_text('\n'.join(map(json.dumps, (entry('a'), entry('b', 'FAIL', status=1), entry('c', 'FAIL', status=1)))))
        self.assertEqual(testlog.doubtful_tests(self.logs[0], ['a', 'b']), ['b'])

    def test_programs_that_measure_how_soon_are_among_them(self):
        suites = {'unit': ['unit-base', 'unit-control-process', 'unit-control-silence'], 'system': ['rails'], 'house': ['runner']}
        self.assertEqual(run_suites.unsteady(suites), ['unit-control-process', 'unit-control-silence', 'rails'])


class GroupTest(unittest.TestCase):
    def groups(self, *arguments):
        run = run_suites.Run(run_suites.parse(['--started', str(time.time()), *arguments]))
        suites = {name: [name] for name in ('house', 'abi', 'fuzz', 'unit', 'system', 'soak')}
        return [list(group) for group in run.groups(run_suites.BUILDS[1], suites)]

    def test_suites_that_wait_run_together(self):
        self.assertEqual(self.groups(), [['house'], ['abi', 'fuzz', 'unit'], ['system'], ['soak']])

    def test_a_group_has_one_tier(self):
        self.assertEqual(self.groups('--all'), [['house'], ['abi', 'unit'], ['fuzz'], ['system'], ['soak']])


class NamesTest(unittest.TestCase):
    """A name that fits nothing is told before anything is built; one that fits a suite of one build only is none."""

    @staticmethod
    def check(*arguments):
        run_suites.check_names(run_suites.parse(['--started', str(time.time()), *arguments]))

    def test_a_suite_of_one_build_may_be_named_and_left_out(self):
        for names in (['house'], ['unit', 'verbs'], ['--without-verbs', '--without-house'], ['--without-efa-trixie'],
                      ['--without-vm', '--without-trixie', '--without-tsan']):
            self.check(*names)

    def test_what_fits_nothing_is_a_mistake(self):
        for name in ('unti', 'release', '--without-unti'):
            with self.assertRaisesRegex(run_suites.UnknownName, name.removeprefix('--without-')):
                self.check('unit', name)

    def test_a_mistake_ends_the_run_before_it_begins(self):
        ran = subprocess.run([sys.executable, LIB / 'run_suites.py', '--started', str(time.time()), 'unti'], capture_output=True,
                             text=True, check=False, timeout=60)
        self.assertEqual((ran.returncode, ran.stdout), (2, ''))
        self.assertIn('no such suite: unti; there are: abi, ', ran.stderr)

    def test_all_suites_are_known_by_name(self):
        described = [path.read_text() for path in (LIB.parents[1] / 'tests').rglob('meson.build')]
        self.assertEqual(set(re.findall(r"suite: '([^']+)'", '\n'.join(described))) - set(run_suites.ORDER), set())


class SanitizerTest(unittest.TestCase):
    def test_a_path_with_a_blank_is_one_option(self):
        options = [value for build in run_suites.BUILDS for value in build.env.values() if 'suppressions=/' in value.replace('"', '')]
        self.assertEqual(len(options), 3)
        for value in options:
            self.assertRegex(value, r'(^|:)suppressions="[^"]+\.txt"(:|$)')


class LaterTest(unittest.TestCase):
    """What runs once more with a later Debian's libraries."""

    def listed(self, *names):
        tests = [{'name': name, 'cmd': ['/opt/python3.11', f'{name}.py'], 'env': {'A': 'b'}, 'timeout': 7, 'workdir': None}
                 for name in names]
        return later.tests_of(tests, list(names), pathlib.Path('/build'))

    def test_the_interpreter_is_the_other_release_s(self):
        one, = self.listed('efa-libfabric')
        self.assertEqual((one['command'], one['directory']), (['python3', 'efa-libfabric.py'], '/build'))

    def test_what_runs_weft_runs_over_both_fabrics(self):
        both = self.listed('efa-weft-conformance-sizes')
        self.assertEqual([test['name'] for test in both], ['efa-weft-conformance-sizes', 'efa-weft-conformance-sizes-direct'])
        self.assertEqual([test['environment']['WEFT_TEST_PROVIDER'] for test in both], ['ofi:efa', 'ofi:efa-direct'])
        self.assertEqual(both[0]['environment']['A'], 'b')

    def test_without_root_the_table_says_why_it_did_not_run(self):
        run = run_suites.Run(run_suites.parse(['--started', str(time.time())]))
        run.suites = lambda build: {'efa': ['a'], 'efa-trixie': ['a', 'b']}
        with unittest.mock.patch('os.geteuid', return_value=0):
            self.assertEqual(list(run.left_to_run(run_suites.BUILDS[0], None)), ['efa', 'efa-trixie'])
        self.assertEqual(run.rows, [])
        with unittest.mock.patch('os.geteuid', return_value=1000):
            self.assertEqual(list(run.left_to_run(run_suites.BUILDS[0], None)), ['efa'])
        row, = run.rows
        self.assertEqual((row.name, row.failed, row.skipped, row.notes), ('release/efa-trixie', 0, 2, ['needs root']))

    def test_a_list_is_run_and_logged_as_meson_would(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            commands = {'good': ['true'], 'bad': ['sh', '-c', 'echo why; exit 3'],
                        'slow': ['sh', '-c', f'echo begun; ({deaf_talker(folder / "said")}) & wait']}
            (folder / 'list').write_text(json.dumps([{'name': test, 'command': command, 'environment': {}, 'directory': name,
                                                      'timeout': 1} for test, command in commands.items()]))
            command = [sys.executable, LIB / 'run_listed.py', '--num-processes', '2', folder / 'list', folder / 'log']
            ran = subprocess.run(command, capture_output=True, check=False, timeout=60)
            row = testlog.summarise('release/efa-trixie', folder / 'log', list(commands), ())
            said = (folder / 'said').read_text()
            time.sleep(0.3)
            self.assertEqual((folder / 'said').read_text(), said)  # nothing is left of what was ended
        self.assertEqual((ran.returncode, row.passed, row.failed), (1, 1, 2))
        self.assertIn('bad FAIL (status 3)', ' '.join(row.notes))
        self.assertIn('slow TIMEOUT', ' '.join(row.notes))
        self.assertEqual(row.outputs['release/efa-trixie/slow'].strip(), 'begun')


class HeadStartTest(unittest.TestCase):
    """The next build begins while tests run, gives way to them, and stops where it would disturb them."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.said = pathlib.Path(folder.name) / 'said'

    def head_start(self, then):
        ahead = head_start.HeadStart(['sh', '-c', f'nice >>{self.said}; {then}'], run_suites.stop)
        self.addCleanup(ahead.end)
        return ahead

    def wait_for_lines(self, count):
        end = time.time() + 60
        while not self.said.exists() or len(self.said.read_text().splitlines()) < count:
            self.assertLess(time.time(), end)
            time.sleep(0.01)
        return self.said.read_text()

    def test_it_gives_way(self):
        self.head_start('sleep 60').go()
        self.assertEqual(self.wait_for_lines(1), '19\n')

    def test_its_session_gives_way(self):
        ahead = self.head_start('sleep 60')
        ahead.go()
        where = pathlib.Path(f'/proc/{ahead.process.pid}/autogroup')
        if where.exists():  # not every kernel knows such groups
            self.assertTrue(where.read_text().endswith(' nice 19\n'), where.read_text())

    def talker(self):
        """Says something every 20 ms, in a group of its own, as Ninja's commands have."""
        own_group = 'import os; os.setpgid(0, 0); os.execvp("sh", ["sh", "-c", os.environ["LOOP"]])'
        ahead = self.head_start(f"export LOOP='while sleep 0.02; do echo >>{self.said}; done'; python3 -c '{own_group}' & wait")
        ahead.go()
        self.wait_for_lines(3)
        return ahead

    def test_halted_it_rests_and_goes_on_when_told(self):
        ahead = self.talker()
        ahead.halt()
        said = self.said.read_text()
        time.sleep(0.3)
        self.assertEqual(self.said.read_text(), said)
        process = ahead.process
        ahead.go()
        self.wait_for_lines(len(said.splitlines()) + 3)
        self.assertIs(ahead.process, process)

    def test_at_the_end_all_of_it_is_gone_though_it_was_halted(self):
        ahead = self.talker()
        ahead.halt()
        begin = time.time()
        ahead.end()
        self.assertLess(time.time() - begin, 15)
        self.assertFalse(ahead.under_way)
        said = self.said.read_text()
        time.sleep(0.3)
        self.assertEqual(self.said.read_text(), said)

    def test_what_came_to_its_end_is_not_started_again(self):
        ahead = self.head_start('exit 1')
        ahead.go()
        ahead.process.wait(60)
        ahead.go()
        ahead.halt()
        self.assertEqual(len(self.said.read_text().splitlines()), 1)

    def test_builds_begin_in_turn(self):
        commands = [['sh', '-c', f'echo "$0" >>{self.said}; exit 1', word] for word in ('asan', "the next's")]
        ahead = head_start.HeadStart(run_suites.in_turn(commands), run_suites.stop)
        self.addCleanup(ahead.end)
        ahead.go()
        ahead.process.wait(60)
        self.assertEqual(self.said.read_text(), "asan\nthe next's\n")

    def test_nothing_to_start_is_fine(self):
        ahead = head_start.HeadStart(run_suites.in_turn([]), run_suites.stop)
        ahead.go()
        ahead.halt()
        ahead.end()


class DeadlineTest(unittest.TestCase):
    def test_what_ends_in_time_gives_its_status(self):
        self.assertEqual(run_suites.Deadline(time.time(), 1).run(['sh', '-c', 'exit 3']), 3)

    def test_what_hangs_is_ended_with_its_children(self):
        begin = time.time()
        with self.assertRaises(run_suites.DeadlinePassed):
            run_suites.Deadline(begin, 0.01).run(['sh', '-c', 'sleep 60 & wait'])
        self.assertLess(time.time() - begin, 20)

    def test_what_does_not_hear_that_it_shall_end_is_killed(self):
        with tempfile.TemporaryDirectory() as folder:
            said = pathlib.Path(folder) / 'said'
            with self.assertRaises(run_suites.DeadlinePassed):
                run_suites.Deadline(time.time(), 0.01).run(['sh', '-c', 'sh -c "$1" & wait', 'sh', deaf_talker(said)])
            before = said.read_text()
            time.sleep(0.3)
            self.assertEqual(said.read_text(), before)

    def test_nothing_starts_after_the_end(self):
        with self.assertRaises(run_suites.DeadlinePassed):
            run_suites.Deadline(time.time() - 120, 1).run(['true'])


class InterruptedTest(unittest.TestCase):
    """Whoever ends a run gets its table, and nothing goes on."""

    RUN = """
import sys
import run_suites
run_suites.fingerprint = lambda: ''
run_suites.Run.run_build = lambda self, build: self.deadline.run(['sh', '-c', 'echo begun; read word; echo $word'])
sys.exit(run_suites.main(sys.argv[1:]))
"""

    def end_by(self, number, **how):
        """What the runner printed when it was sent a signal while something ran, which would say "went on" then."""
        with subprocess.Popen([sys.executable, '-c', self.RUN, '--started', str(time.time()), '--without-asan', '--without-tsan'],
                              text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              env={**os.environ, 'PYTHONPATH': str(LIB)}, **how) as run:
            self.addCleanup(run.kill)
            self.assertIn('begun\n', iter(run.stdout.readline, ''))
            run.send_signal(number)
            return run.communicate('went on\n', timeout=60)[0]

    def test_it_is_told_to_end_or_its_terminal_goes(self):
        for number in (signal.SIGTERM, signal.SIGHUP):  # which nohup has its programs ignore
            self.assertIn('interrupted', self.end_by(number, preexec_fn=lambda which=number: signal.signal(which, signal.SIG_DFL)))

    def test_it_was_told_to_stay_when_its_terminal_goes(self):
        printed = self.end_by(signal.SIGHUP, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        self.assertIn('went on', printed)
        self.assertNotIn('interrupted', printed)


@unittest.skipUnless(os.geteuid() == 0, 'roots are entered as root')
class RootTest(unittest.TestCase):
    """scripts/lib/root.sh: roots of other releases."""

    ROOT = 'set -eu; source "$1/packages.sh"; source "$1/root.sh"; weftInRoot / ""'

    def test_what_runs_in_a_root_ends_with_its_caller(self):
        with tempfile.TemporaryDirectory() as folder:
            said = pathlib.Path(folder) / 'said'
            script = f'{self.ROOT} sh -c "$2"'
            with subprocess.Popen(['bash', '-c', script, 'bash', LIB, deaf_talker(said)]) as caller:
                while not said.exists():
                    self.assertIsNone(caller.poll())
                    time.sleep(0.02)
                caller.terminate()
            time.sleep(0.3)
            before = said.read_text()
            time.sleep(0.3)
            self.assertEqual(said.read_text(), before)

    def test_what_runs_in_a_root_knows_the_proxies_and_nothing_else(self):
        printed = subprocess.run(['bash', '-c', f'{self.ROOT} A=b env', 'bash', LIB], capture_output=True, text=True, check=True, timeout=60,
                                 env={**os.environ, 'https_proxy': 'http://a proxy:1', 'http_proxy': '', 'OTHER': 'c'}).stdout
        names = {line.partition('=')[0] for line in printed.splitlines()}
        self.assertEqual(names - {'no_proxy', 'PWD', 'SHLVL', '_'}, {'A', 'HOME', 'LANG', 'PATH', 'https_proxy'})
        self.assertIn('https_proxy=http://a proxy:1\n', printed)


if __name__ == '__main__':
    unittest.main()
