#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""That what `weft` finds arrives where it was asked for, or that its exit status and a message say so.

usage: check_output.py WEFT
"""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

WEFT = sys.argv[1]
PATIENCE = 120
SHORT = ('perf', 'sendrecv', '-n', '2', '-b', '8', '-e', '8', '--iters', '2', '-w', '0')
CLUSTER = ('perf', '--check-cluster', '--slow', '1000', '-n', '2')


def weft(*arguments, stdout=subprocess.PIPE, **settings):
    return subprocess.run([WEFT, *arguments], env={**os.environ, **settings}, stdout=stdout, stderr=subprocess.PIPE, text=True,
                          check=False, timeout=PATIENCE)


class OutputTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def test_a_file_that_cannot_be_is_refused_before_anything_runs(self):
        there = self.folder / 'there.csv'
        there.write_text('of yesterday')
        for options in (('--json',), ('--csv', str(there), '--plot'), ('--csv',)):
            done = weft('perf', 'sendrecv', '-n', '2', *options, str(self.folder / 'no' / 'file'))
            self.assertEqual((done.returncode, done.stdout), (1, ''), done.stderr)
            self.assertIn('no/file (No such file or directory)', done.stderr)
        done = weft('perf', '--fit', str(self.folder), '-n', '2')
        self.assertEqual((done.returncode, done.stdout), (1, ''), done.stderr)
        self.assertEqual(there.read_text(), 'of yesterday')
        self.assertEqual([file.name for file in self.folder.iterdir()], ['there.csv'])

    def test_the_other_files_are_written_though_one_fails(self):
        good = self.folder / 'good.csv'
        done = weft(*SHORT, '--json', '/dev/full', '--csv', str(good))
        self.assertEqual(done.returncode, 1)
        self.assertIn('/dev/full (No space left on device', done.stderr)
        self.assertEqual(len(good.read_text().splitlines()), 2)

    def test_a_standard_output_that_takes_nothing(self):
        with open('/dev/full', 'w', encoding='utf-8') as full:
            for arguments in (SHORT, (*SHORT, '--json', '-'), CLUSTER, ('info',), ('info', '--config', '--markdown')):
                done = weft(*arguments, stdout=full, WEFT_PROVIDER='ofi' if 'perf' in arguments else 'loop')
                self.assertEqual(done.returncode, 1, arguments)
                self.assertIn('No space left on device', done.stderr)

    def test_a_standard_output_that_is_closed(self):
        for arguments in (SHORT, CLUSTER, ('info', '--config')):
            done = subprocess.run(['sh', '-c', 'exec "$@" >&-', 'sh', WEFT, *arguments], stderr=subprocess.PIPE, text=True,
                                  check=False, timeout=PATIENCE)
            self.assertEqual(done.returncode, 1, arguments)
            self.assertIn('standard output (Bad file descriptor)', done.stderr)

    def test_a_fit_beside_a_document(self):
        done = weft('perf', '--fit', str(self.folder / 'table'), '-n', '2', '--json', '-')
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(json.loads(done.stdout)['ranks']), 2)
        self.assertIn('WEFT_TUNER_TABLE', done.stderr)

    def test_a_document_is_alone_on_the_standard_output(self):
        self.assertRegex(weft(*SHORT, '--plot', '-').stdout, '^<svg ')
        done = weft('perf', '--fit', '-', '-n', '2')
        self.assertRegex(done.stdout, r'^weft-tuner-table 2\n(.*\n){8,9}(host_.*\n)+$')
        self.assertIn('WEFT_TUNER_TABLE', done.stderr)
        for first, second in (('--json', '--plot'), ('--csv', '--plot'), ('--json', '--csv')):
            done = weft(*SHORT, first, '-', second, '-')
            self.assertEqual((done.returncode, done.stdout), (2, ''), (first, second))
        self.assertEqual(weft('perf', '--fit', '-', '-n', '2', '--json', '-').returncode, 2)

    def test_a_reader_that_has_enough(self):
        for size in ('2', '3'):
            with subprocess.Popen([WEFT, 'perf', 'sendrecv', '-n', size, '--iters', '1000'], stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True) as run:
                run.stdout.readline()
                run.stdout.close()
                self.assertEqual((run.wait(timeout=PATIENCE), run.stderr.read()), (-signal.SIGPIPE, ''))


class EndTest(unittest.TestCase):
    """Runs that are ended: what was finished is written, and said to be a part. The first row takes no time, the second minutes."""
    LONG = ('perf', 'sendrecv', '-b', '8', '-e', '64M', '-f', '8388608', '--iters', '3000')
    ALONE = {'RANK': '0', 'WORLD_SIZE': '1'}

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.json, self.csv, self.table = (pathlib.Path(folder.name) / name for name in ('json', 'csv', 'table'))

    def start(self, *arguments, **settings):
        with open(self.table, 'w', encoding='utf-8') as table:
            return subprocess.Popen([WEFT, *self.LONG, '--json', str(self.json), '--csv', str(self.csv), *arguments],
                                    env={**os.environ, **settings}, stdout=table, stderr=subprocess.PIPE, text=True)

    def wait_for_a_row(self):
        end = time.monotonic() + PATIENCE
        while not self.table.exists() or self.table.read_text().count('float') < 1:
            self.assertLess(time.monotonic(), end, 'no row is finished')
            time.sleep(0.05)

    def check_part(self, reason, rows=1):
        document = json.loads(self.json.read_text())
        self.assertIs(document['complete'], False)
        self.assertIn(reason, document['ended_by'])
        self.assertEqual(len(document['results']), rows)
        self.assertIn('# incomplete: ', self.csv.read_text().splitlines()[-1])

    def test_signals(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            with self.start('-n', '2') as run:
                self.wait_for_a_row()
                run.send_signal(number)
                self.assertEqual(run.wait(timeout=PATIENCE), -number)  # or a shell's loop would go on
                self.assertEqual(run.stderr.read().splitlines()[-1], 'weft perf: run: interrupted')
            self.check_part('signal')

    def test_signals_to_a_rank_that_others_started(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            with self.start(**self.ALONE) as run:
                self.wait_for_a_row()
                run.send_signal(number)
                self.assertEqual((run.wait(timeout=PATIENCE), run.stderr.read()), (-number, ''))
            self.check_part(f'signal {int(number)} ')

    def test_deadlines(self):
        words = 'weft perf: run: not finished after 8 s (--timeout)'
        for ranks, settings in ((('-n', '2'), {}), ((), self.ALONE)):
            with self.start('--timeout', '8', *ranks, **settings) as run:
                self.assertEqual(run.wait(timeout=PATIENCE), 1)
                self.assertTrue(run.stderr.read().splitlines()[-1].endswith(words))
            self.check_part('' if ranks else '--timeout')

    def test_shared_memory_leaves_no_files(self):
        for number in (signal.SIGHUP, signal.SIGINT):
            for ranks, settings in ((('-n', '2'), {}), ((), self.ALONE)):
                with self.start(*ranks, WEFT_PROVIDER='ofi:shm', **settings) as run:
                    self.wait_for_a_row()
                    mine = self.files_of(run.pid)
                    run.send_signal(number)
                    run.wait(timeout=PATIENCE)
                self.assertTrue(mine)
                self.assertEqual([file for file in mine if os.path.exists(file)], [], number)

    @staticmethod
    def files_of(pid):
        """What this process and those it started have mapped of /dev/shm."""
        pids = [str(pid), *pathlib.Path(f'/proc/{pid}/task/{pid}/children').read_text(encoding='ascii').split()]
        lines = [line for one in pids for line in pathlib.Path(f'/proc/{one}/maps').read_text(encoding='utf-8').splitlines()]
        return {line.split()[-1] for line in lines if '/dev/shm/' in line and not line.endswith('(deleted)')}


if __name__ == '__main__':
    for one in (signal.SIGHUP, signal.SIGINT):
        signal.signal(one, signal.SIG_DFL)  # who started this may ignore them, and what it starts would too
    unittest.main(argv=sys.argv[:1])
