#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""`weft state`: running processes write what they are doing when they are asked, and only then.

usage: state_test.py WEFT
"""
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

WEFT = sys.argv[1]
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(('WEFT_', 'NCCL_'))}
CLEAN['WEFT_CONF'] = ''
PATIENCE = 60


def state(folder, *arguments):
    return subprocess.run([WEFT, 'state', folder, *arguments], env=CLEAN, capture_output=True, text=True, check=False, timeout=PATIENCE)


class StateTest(unittest.TestCase):
    def test_running_ranks_answer(self):
        with tempfile.TemporaryDirectory() as folder:
            job = subprocess.Popen([WEFT, 'perf', 'all_reduce', '-n', '2', '-b', '1M', '-e', '1M', '--iters', '1000000'],
                                   env={**CLEAN, 'WEFT_STATE_DIR': folder}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            try:
                end = time.monotonic() + PATIENCE
                answer = state(folder)
                while answer.stdout.count(' receives from ') < 2 and time.monotonic() < end:
                    self.assertIsNone(job.poll())
                    answer = state(folder)
                self.assertEqual(answer.returncode, 0, answer.stderr)
                heads = re.findall(r'^weft \S+, rank \d on \S+ pid \d+ at \S+ \S+ UTC, over \S+$', answer.stdout, re.MULTILINE)
                self.assertEqual(len(heads), 2, answer.stdout)
                self.assertRegex(answer.stdout, r'comm \d+ sends to .* pid \d+ .*: live, [1-9]\d* messages so far')
                self.assertEqual(len([name for name in os.listdir(folder) if name.endswith('.state')]), 2)
                began = time.monotonic()
                answer = state(folder, '--wait', str(PATIENCE - 10))
                self.assertEqual(len(re.findall(r'^weft \S+, rank \d on ', answer.stdout, re.MULTILINE)), 2)
                self.assertLess(time.monotonic() - began, (PATIENCE - 10) / 2)  # it waits for nobody who has answered
            finally:
                job.terminate()
                _, errors = job.communicate(timeout=PATIENCE)
            # The ranks are not ended at the same moment, and the one that is left may say so.
            self.assertNotRegex(errors, r'WARN NET/weft: (?!\d+ comms? to \S+ \d+ on .* ended: )')
            answer = state(folder, '--wait', '1')  # dead processes do not answer, and what they left is shown as such
            self.assertEqual(answer.returncode, 1)
            self.assertEqual(len(re.findall(r'^left by \S+, which wrote it at \d{4}-\d\d-\d\d \S+ UTC:$', answer.stdout, re.MULTILINE)), 2, answer.stdout)
            self.assertIn('comm ', answer.stdout)
            self.assertIn('no process answered within 1 s', answer.stderr)
            answer = state(folder, '--wait', '0.1', '--json')
            found = json.loads(answer.stdout)
            self.assertEqual((answer.returncode, found['answered'], len(found['left'])), (1, [], 2))
            self.assertIn('no process answered', found['failure'])
            os.remove(os.path.join(folder, 'ask'))
            os.mkdir(os.path.join(folder, 'ask'))  # a question that cannot be asked: what lies there is shown all the same
            answer = state(folder, '--wait', '0.1')
            self.assertEqual(answer.returncode, 1)
            self.assertIn('left by ', answer.stdout)
            self.assertIn('cannot be touched', answer.stderr)

    def test_a_process_that_gives_no_answer_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            job = subprocess.Popen([WEFT, 'perf', 'all_reduce', '-n', '4', '-b', '1M', '-e', '1M', '-c', '0', '--iters', '1000000'],
                                   env={**CLEAN, 'WEFT_STATE_DIR': folder}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            stopped = 0
            try:
                end = time.monotonic() + PATIENCE
                answer = state(folder)
                while answer.stdout.count(' receives from ') < 4 and time.monotonic() < end:
                    self.assertIsNone(job.poll())
                    answer = state(folder)
                self.assertNotIn('processes answered', answer.stdout)
                stopped = int(re.search(r'rank 3 on \S+ pid (\d+) at ', answer.stdout).group(1))
                os.kill(stopped, signal.SIGSTOP)
                answer = state(folder, '--wait', '6')
                self.assertEqual(answer.returncode, 0, answer.stderr)
                self.assertIn('3 of 4 processes answered\n', answer.stdout)
                self.assertRegex(answer.stdout, rf'  pid {stopped} \(rank 3 on \S+\) has not, and is stopped \(kill -CONT lets it '
                                 r'go on\); it was last seen \d+ s before the question\n')
                answer = state(folder)
                self.assertIn('waits for ', answer.stdout)
                self.assertNotRegex(answer.stdout, r'waits for (0|less than 1) s')
                os.kill(stopped, signal.SIGKILL)
                answer = state(folder, '--wait', '1')
                self.assertRegex(answer.stdout + answer.stderr, rf'pid {stopped} \(rank 3 on \S+\) has not, and is not running any more;')
                stopped = 0
            finally:
                if stopped:
                    os.kill(stopped, signal.SIGCONT)
                job.terminate()
                job.communicate(timeout=PATIENCE)

    def test_a_process_that_closes_everything_leaves_no_note(self):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([WEFT, 'perf', 'sendrecv', '-n', '2', '-b', '8', '-e', '8', '--iters', '2'],
                                  env={**CLEAN, 'WEFT_STATE_DIR': folder}, capture_output=True, text=True, check=False, timeout=PATIENCE)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(os.listdir(folder), [])

    @unittest.skipIf(os.getuid() != 0, 'a file system of its own wants root')
    def test_a_full_disk_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            script = f'mount -t tmpfs -o size=16k none {folder} && head -c 1000000 /dev/zero > {folder}/fill; ' \
                     f'touch {folder}/ask; {WEFT} state {folder} --wait 0.1'
            done = subprocess.run(['unshare', '-m', 'sh', '-c', script], env=CLEAN, capture_output=True, text=True, check=False, timeout=PATIENCE)
            if 'unshare' in done.stderr or 'mount' in done.stderr:
                self.skipTest(done.stderr)
            self.assertEqual(done.returncode, 1)
            self.assertIn(f'its file system is full (df -h {folder})', done.stderr)

    def test_a_folder_that_is_none(self):
        answer = state('/nonexistent')
        self.assertEqual((answer.returncode, answer.stdout), (1, ''))
        self.assertIn('/nonexistent/ask cannot be touched: No such file', answer.stderr)

    def test_a_job_goes_on_where_its_state_cannot_be_written(self):
        with tempfile.TemporaryDirectory() as folder:
            gone = os.path.join(folder, 'gone')
            done = subprocess.run([WEFT, 'perf', 'sendrecv', '-n', '2', '-b', '8', '-e', '8', '--iters', '2'],
                                  env={**CLEAN, 'WEFT_STATE_DIR': gone}, capture_output=True, text=True, check=False, timeout=PATIENCE)
            self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == '__main__':
    unittest.main(argv=sys.argv[:1])
