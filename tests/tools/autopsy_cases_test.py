#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""From a hang to a name: something is done to one rank of a real job, and `weft autopsy` names it within seconds.

usage: autopsy_cases_test.py WEFT WEFT_AGGD

Each row says over which fabric and with which size the ranks reduce, what is done to which of them, and the verdict.
tests/world/diagnosis_test.cc does so for the log, in virtual time and with many more rows.
"""
import contextlib
import ctypes
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

WEFT, AGGD = sys.argv[1:3]
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(('WEFT_', 'NCCL_'))}
CLEAN['WEFT_CONF'] = ''
PATIENCE = 60
IN_TIME = 5.0 * float(os.environ.get('WEFT_TEST_PATIENCE', '1'))
RANKS = 3
SECRET = 'open sesame, says the rank'
PTRACE_SEIZE, PTRACE_INTERRUPT, PTRACE_DETACH = 0x4206, 0x4207, 17

# Shared memory is what ranks of one host use; WEFT_LOCAL=off makes them use sockets.
TCP = {'WEFT_PROVIDER': 'tcp', 'WEFT_LOCAL': 'off'}
LOCAL = {'WEFT_PROVIDER': 'tcp', 'WEFT_LOCAL': 'on'}
CASES = [(fabric, size, deed, victim)
         for victim, (fabric, size) in enumerate(((TCP, '8'), (TCP, '1M'), (LOCAL, '64K')))
         for deed in ('killed', 'crashed', 'stopped', 'debugger', 'disk full')]
VERDICTS = {'killed': 'died', 'crashed': 'died', 'stopped': 'stopped', 'debugger': 'debugger', 'disk full': 'unseen'}


def weft(*arguments):
    return subprocess.run([WEFT, *arguments], env=CLEAN, capture_output=True, text=True, check=False, timeout=PATIENCE)


def ptrace(request, pid):
    return ctypes.CDLL(None, use_errno=True).ptrace(request, pid, 0, 0)


@contextlib.contextmanager
def job(fabric, size, folder, *options):
    process = subprocess.Popen([WEFT, 'perf', 'all_reduce', '-n', str(RANKS), '-b', size, '-e', size, '-c', '0', '--iters', '1000000', *options],
                               env={**CLEAN, **fabric, 'WEFT_STATE_DIR': folder}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(timeout=PATIENCE)


@contextlib.contextmanager
def daemon(folder):
    process = subprocess.Popen([AGGD, '--listen', '127.0.0.1:0'], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                               env={**CLEAN, **TCP, 'WEFT_AGGD_SECRET': SECRET, **({'WEFT_STATE_DIR': folder} if folder else {})})
    try:
        process.address = '127.0.0.1:' + re.search(r'on port (\d+)', process.stdout.readline())[1]
        yield process
    finally:
        process.kill()
        process.communicate(timeout=PATIENCE)


def moving(folder, count=RANKS):
    """The processes by rank, once so many of them have moved messages."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        answer = weft('stats', '--json', folder)
        found = json.loads(answer.stdout)['processes'] if answer.returncode == 0 else []
        if sum(sum(comm['messages'] for comm in one['comms']) > 100 for one in found) == count:
            return {one['place']: one['pid'] for one in found}
        time.sleep(0.1)
    raise AssertionError('the job does not move')


def do(deed, pid, folder):
    """What is done, and then undone."""
    if deed == 'killed':
        os.kill(pid, signal.SIGKILL)
    elif deed == 'crashed':
        os.kill(pid, signal.SIGSEGV)
    elif deed == 'stopped':
        os.kill(pid, signal.SIGSTOP)
    elif deed == 'debugger':
        return ptrace(PTRACE_SEIZE, pid) == 0 and ptrace(PTRACE_INTERRUPT, pid) == 0
    else:  # nothing of it could be written, and then it stands still
        os.kill(pid, signal.SIGSTOP)
        for name in os.listdir(folder):
            if f'.{pid}.' in name:
                os.unlink(os.path.join(folder, name))
    return True


def undo(deed, pid):
    with contextlib.suppress(ProcessLookupError):
        if deed == 'debugger':
            ptrace(PTRACE_DETACH, pid)
        os.kill(pid, signal.SIGCONT)


class AutopsyCasesTest(unittest.TestCase):
    def verdict(self, folder, kind):
        """The verdict of that kind, and after which time it was there; none: another one, or none at all."""
        began = time.monotonic()
        found = {}
        while time.monotonic() < began + PATIENCE:
            answer = weft('autopsy', '--json', folder)
            found = json.loads(answer.stdout) if answer.returncode == 0 else {}
            if found.get('verdict') == kind:
                return found, time.monotonic() - began
            time.sleep(0.1)
        return self.fail(f'the verdict is {found}')

    def test_the_culprit_is_named_in_time(self):
        late = []
        for fabric, size, deed, victim in CASES:
            with self.subTest(fabric=fabric, size=size, deed=deed), tempfile.TemporaryDirectory() as folder, job(fabric, size, folder):
                by_place = moving(folder)
                place = next(one for one in by_place if one.startswith(f'rank {victim} '))
                pid = by_place[place]
                if not do(deed, pid, folder):
                    continue  # no tracing here
                try:
                    found, after = self.verdict(folder, VERDICTS[deed])
                finally:
                    undo(deed, pid)
                named = found['peer'] if deed == 'disk full' else f"{found['culprit']['place']} pid {found['culprit']['pid']} "
                self.assertIn(f'{place} pid {pid} ', named)
                self.assertTrue(found['advice'])
                self.assertTrue(found['evidence'])
                if after > IN_TIME:
                    late.append((deed, size, after))
        self.assertLessEqual(len(late), len(CASES) // 20, late)

    def test_an_aggregation_daemon(self):
        """That died or was stopped, with counters beside those of the ranks and without, where their words alone tell."""
        for deed, how, writes, verdict in (('died', signal.SIGKILL, True, 'died'), ('stopped', signal.SIGSTOP, True, 'stopped'),
                                           ('died', signal.SIGKILL, False, 'failed'), ('stopped', signal.SIGSTOP, False, 'unseen')):
            with self.subTest(deed=deed, writes=writes), tempfile.TemporaryDirectory() as folder, daemon(folder if writes else None) as one:
                tree = {**TCP, 'WEFT_COLLNET': 'tree', 'WEFT_AGGD': one.address, 'WEFT_AGGD_SECRET': SECRET}
                with job(tree, '1M', folder, '--algo', 'collnet'):
                    moving(folder, RANKS + writes)
                    os.kill(one.pid, how)
                    found, after = self.verdict(folder, verdict)
                named = f"{found['culprit']['place']} pid {found['culprit']['pid']} " if writes else found['peer']
                self.assertRegex(named, rf'^weft-aggd on \S+ pid {one.pid} ')
                self.assertLess(after, IN_TIME)

    @unittest.skipIf(os.getuid() != 0, 'a host name of its own wants root')
    def test_files_of_one_host_alone(self):
        """Two hosts with a folder each: the one without the rank that was stopped does not name another rank for it. All files together do."""
        with tempfile.TemporaryDirectory() as base, contextlib.ExitStack() as ends:
            folder = {host: os.path.join(base, host) for host in ('hosta', 'hostb', 'both')}
            for one in folder.values():
                os.mkdir(one)
            pids = {}
            for rank in range(4):
                host = 'hosta' if rank in (0, 3) else 'hostb'
                command = ['unshare', '-u', 'sh', '-c', f'hostname {host} && exec "$@"', 'sh', WEFT, 'perf', 'all_reduce', '-b', '64K', '-e', '64K',
                           '-c', '0', '--iters', '1000000']
                process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                           env={**CLEAN, **TCP, 'WEFT_STATE_DIR': folder[host], 'RANK': str(rank), 'WORLD_SIZE': '4',
                                                'MASTER_ADDR': '127.0.0.1', 'MASTER_PORT': '29873'})
                ends.callback(lambda one: (one.kill(), one.wait(timeout=PATIENCE)), process)
                pids[rank] = process.pid
            moving(folder['hosta'], 2)
            moving(folder['hostb'], 2)
            os.kill(pids[1], signal.SIGSTOP)
            found, after = self.verdict(folder['hosta'], 'unseen')
            self.assertLess(after, IN_TIME)
            self.assertIsNone(found['culprit'])
            self.assertIn(found['peer'], ('', f'rank 1 on hostb pid {pids[1]}'))
            self.assertIn(f'rank 2 on hostb pid {pids[2]}', [one['name'] for one in found['unseen']])
            said = weft('autopsy', folder['hosta']).stdout
            self.assertIn(f'srun --ntasks-per-node 1 cp -r {folder["hosta"]}/. SHARED', said)
            for host in ('hosta', 'hostb'):
                subprocess.run(['cp', '-r', folder[host] + '/.', folder['both']], check=True, timeout=PATIENCE)
            found, after = self.verdict(folder['both'], 'stopped')
            self.assertEqual(found['culprit']['pid'], pids[1])
            self.assertEqual(found['unseen'], [])

    @unittest.skipIf(os.getuid() != 0, 'a file system of its own wants root')
    def test_a_rank_whose_disk_is_full(self):
        """It says so, the job goes on, and its peers' counters name it when it stands still."""
        with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile('w+') as said, contextlib.ExitStack() as ends:
            command = [WEFT, 'perf', 'all_reduce', '-b', '64K', '-e', '64K', '-c', '0', '--iters', '1000000', '--verbose']
            full = ['unshare', '-m', 'sh', '-c', f'mount -t tmpfs -o size=64k none {folder} && exec "$@"', 'sh']
            common = {**CLEAN, **TCP, 'WEFT_STATE_DIR': folder, 'WORLD_SIZE': str(RANKS), 'MASTER_ADDR': '127.0.0.1', 'MASTER_PORT': '29871'}
            for rank in range(RANKS):
                last = rank == RANKS - 1
                process = subprocess.Popen([*(full if last else []), *command], env={**common, 'RANK': str(rank)}, stdout=subprocess.DEVNULL,
                                           stderr=said if last else subprocess.DEVNULL)
                ends.callback(lambda one: (one.kill(), one.wait(timeout=PATIENCE)), process)
            moving(folder, RANKS - 1)
            os.kill(process.pid, signal.SIGSTOP)
            found, after = self.verdict(folder, 'unseen')
            self.assertIn(f'rank {RANKS - 1} ', found['peer'])
            self.assertIn(f' pid {process.pid} ', found['peer'])
            self.assertLess(after, IN_TIME)
            said.seek(0)
            self.assertRegex(said.read(), rf'{folder}/\S+\.{process.pid}\.stats: No space left on device; the job goes on without counters')


if __name__ == '__main__':
    unittest.main(argv=sys.argv[:1])
