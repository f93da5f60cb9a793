#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""That what `weft` finds arrives where it was asked for, or that its exit status and a message say so.

usage: check_output.py WEFT
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
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


if __name__ == '__main__':
    unittest.main(argv=sys.argv[:1])
