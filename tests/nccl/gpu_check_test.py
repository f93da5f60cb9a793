#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""scripts/gpu-check: what it does where there is no GPU, what it carries, and how it keeps to its time, its lines and its MPS.

usage: gpu_check_test.py BUILD
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import types
import unittest
import unittest.mock

TOP = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / 'scripts' / 'lib'))
import gpu_carry
import gpu_parts

BUILD = pathlib.Path(sys.argv[1]).resolve()
SECONDS = 250
# No GPU and no settings of whoever runs this.
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(('WEFT_', 'NCCL_', 'SOFTGPU_')) and name != 'LD_LIBRARY_PATH'}
CLEAN.update({'WEFT_CONF': '', 'CUDA_VISIBLE_DEVICES': ''})
MOST_LINES = 60


class Folder(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)

    def run_it(self, *arguments, script=TOP / 'scripts' / 'gpu-check'):
        """(exit status, what it said)"""
        environment = {name: value for name, value in CLEAN.items() if name != 'CUDA_VISIBLE_DEVICES'}
        done = subprocess.run([sys.executable, script, *map(str, arguments)], env=environment, capture_output=True, text=True, timeout=SECONDS, check=False,
                              cwd=self.folder)
        return done.returncode, done.stdout + done.stderr


class OnTheSoftwareGpu(Folder):
    def test_what_can_be_done_there(self):
        status, said = self.run_it('--build', BUILD, '--out', 'out', '--nccl', self.stand_in(), '--seconds', SECONDS - 30)
        self.assertEqual(status, 0, said)
        summary = (self.folder / 'out' / 'summary.txt').read_text()
        self.assertLessEqual(len(summary.splitlines()), MOST_LINES)
        for words in ('SOFTWARE GPU', r'right +two processes, by handles|right two processes', 'right gpu-memory over local', 'no processor can map a dma-buf',
                      'torch +left out: torch computes', 'all right after .* \\(on a software GPU\\)'):
            self.assertRegex(summary, words)

    def stand_in(self):
        """A library that is an NCCL with the CUDA runtime inside, which the software GPU is not for."""
        return BUILD / 'tests' / 'nccl' / 'libnccl-static.so'

    def test_what_is_carried(self):
        """The folder runs by itself."""
        status, said = self.run_it('--build', BUILD, '--carry', 'there')
        self.assertEqual(status, 0, said)
        size = sum(file.stat().st_size for file in (self.folder / 'there').rglob('*') if file.is_file())
        self.assertLessEqual(size, gpu_carry.MOST_BYTES)
        status, said = self.run_it('--only', 'info,programs', '--nccl', self.stand_in(), script=self.folder / 'there' / 'scripts' / 'gpu-check')
        self.assertEqual(status, 0, said)
        self.assertIn('right weft info', said)
        status, said = self.run_it('--build', BUILD, '--carry', 'there')
        self.assertEqual((status, 'is not empty' in said), (2, True), said)

    def test_bad_arguments(self):
        for arguments, words in ((['--only', 'nothing'], 'there is no part nothing'), (['--build', self.folder], 'has no plugin/libnccl-net-weft.so'),
                                 (['--nccl', '/nowhere/libnccl.so.2'], 'there is no file /nowhere/libnccl.so.2')):
            status, said = self.run_it(*arguments)
            self.assertEqual((status, words in said), (2, True), said)


class ByItself(Folder):
    def new_check(self, seconds=60):
        host = types.SimpleNamespace(software=False, gpus=types.SimpleNamespace(names=['a GPU'], driver='libcuda.so.1'),
                                     library=types.SimpleNamespace(version=22809, file='/nccl', where='here'), device=lambda rank: 0,
                                     environment=lambda plugin: {'PATH': os.environ['PATH']})
        options = types.SimpleNamespace(out=self.folder, build=BUILD, seconds=seconds, nccl='', python='python3', nccl_tests=None)
        with unittest.mock.patch('nccl_host.Host', return_value=host), unittest.mock.patch('builtins.print'):
            check = gpu_parts.Check(options)
        check.note = lambda head, text: check.lines.append(f'{head:11}{text}')
        return check

    def test_what_is_wrong_stays_in_the_summary(self):
        check = self.new_check()
        for number in range(100):
            check.judge('ranks', f'number {number}', ['rank 1 ended with 1'] if number == 50 else [], 1.0)
        lines = check.summary(MOST_LINES)
        self.assertLessEqual(len(lines), MOST_LINES)
        self.assertTrue(any('WRONG number 50' in line for line in lines))
        self.assertIn('NOT all right, 1 things are wrong', lines[-1])

    def test_time_ends(self):
        """What hangs is ended with the time that is left, and what would come next is left out."""
        check = self.new_check(seconds=4)
        begin = time.monotonic()
        statuses, _, _ = check.ranks('hangs', [['sleep', '60']], [dict(os.environ)], 30)
        self.assertEqual(statuses, [124])
        check.run('torch', lambda one: one.left(60))
        self.assertIn('no time is left', check.lines[-1])
        self.assertLess(time.monotonic() - begin, 40)

    def test_a_part_that_cannot_start(self):
        check = self.new_check()
        check.run('torch', lambda one: one.ranks('none', [['/nowhere/python']], [{}], 5))
        self.assertIn('/nowhere/python', check.wrong[0])

    def test_mps_is_stopped_again(self):
        control = self.folder / gpu_parts.MPS_CONTROL
        control.write_text('#!/bin/sh\nread line; echo "$CUDA_MPS_PIPE_DIRECTORY $1$line" >> "$(dirname "$0")/calls"\n')
        control.chmod(0o755)
        check = self.new_check()
        with unittest.mock.patch.dict(os.environ, {'PATH': f'{self.folder}:{os.environ["PATH"]}'}):
            with self.assertRaises(ZeroDivisionError), check.mps():
                pipes = check.environment()['CUDA_MPS_PIPE_DIRECTORY']
                raise ZeroDivisionError
        self.assertNotIn('CUDA_MPS_PIPE_DIRECTORY', check.environment())
        self.assertEqual((self.folder / 'calls').read_text(), f'{pipes} -d\n{pipes} quit\n')


unittest.main(argv=[sys.argv[0]], verbosity=2)
