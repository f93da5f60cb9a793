#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""How `weft perf` is started: what it makes of its command line and of a launcher's variables.

usage: check_start.py WEFT
"""
import os
import subprocess
import sys
import unittest

WEFT = sys.argv[1]
LAUNCHERS = ('SLURM_', 'OMPI_', 'PMI', 'MASTER_', 'TORCHELASTIC_')
CLEAN = {name: value for name, value in os.environ.items()
         if not name.startswith(LAUNCHERS) and name not in ('RANK', 'WORLD_SIZE')}
PATIENCE = 60
SHORT = ('all_reduce', '-b', '8', '-e', '8', '--iters', '2', '-w', '0')


def perf(*arguments, folder=None, **settings):
    return subprocess.run([WEFT, 'perf', *arguments], env={**CLEAN, **settings}, capture_output=True, text=True, check=False,
                          timeout=PATIENCE, cwd=folder)


class StartTest(unittest.TestCase):
    def refused(self, done, words):
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn(words, done.stderr)

    def test_nobody_said_how_many(self):
        self.refused(perf(*SHORT), 'use -n N')
        self.refused(perf('--check-cluster'), 'use -n N')

    def test_a_rank_outside_its_run(self):
        self.refused(perf(*SHORT, RANK='2', WORLD_SIZE='2', MASTER_ADDR='127.0.0.1'), 'RANK is 2')
        self.refused(perf(*SHORT, RANK='-1', WORLD_SIZE='2', MASTER_ADDR='127.0.0.1'), 'RANK is "-1"')
        self.refused(perf(*SHORT, WORLD_SIZE='2'), 'WORLD_SIZE is set but none of RANK')

    def test_a_run_of_one_rank(self):
        done = perf(*SHORT, RANK='0', WORLD_SIZE='1')
        self.assertEqual((done.returncode, done.stderr), (0, ''))

    def test_own_processes_need_no_launcher_and_say_so_once(self):
        done = perf(*SHORT, '-n', '2', RANK='0', WORLD_SIZE='4')
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(': 2 processes', done.stdout)
        self.assertEqual(done.stderr.count('RANK=0 and WORLD_SIZE=4 is not read'), 1, done.stderr)
        done = perf(*SHORT, '-n', '2', RANK='1', WORLD_SIZE='4')
        self.assertEqual((done.returncode, done.stderr), (0, ''))


if __name__ == '__main__':
    unittest.main(argv=sys.argv[:1])
