#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""A kernel of one rank's GPU never comes, under real NCCL: who is named, and how soon.

usage: check_late_gpu.py SOFTGPU_DIR PROGRAM PLUGIN WEFT

Three ranks reduce again and again, in a ring or a tree; the software GPU of one of them lets its N-th kernel hang. `weft autopsy` has to name
that rank within 5 s of the last message. In a ring it has to say by itself that it is late, too, and the others that it is that one. Skipped
without an NCCL as check_nccl.py is.
"""
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import unittest

import check_nccl

SOFTGPU, PROGRAM, PLUGIN, WEFT = sys.argv[1:5]
RANKS, PATIENCE = 3, 60
IN_TIME = 5.0 * float(os.environ.get('WEFT_TEST_PATIENCE', '1'))
CASES = [(algorithm, victim, kernel) for algorithm in ('Ring', 'Tree') for victim in range(RANKS) for kernel in (3, 20)]


class Job:
    def __init__(self, folder, nccl, algorithm, victim, kernel):
        self.logs = [f'{folder}/{rank}.log' for rank in range(RANKS)]
        self.ranks = []
        for rank in range(RANKS):
            settings = {'RANK': str(rank), 'WEFT_STATE_DIR': folder, 'NCCL_ALGO': algorithm, 'NCCL_DEBUG_FILE': self.logs[rank], 'NCCL_DEBUG': 'WARN',
                        'WEFT_CONF': '', **({'SOFTGPU_FAULTS': f'hang={kernel}'} if rank == victim else {})}
            self.ranks.append(subprocess.Popen([PROGRAM, nccl, str(RANKS), str(rank), '1', f'{folder}/id', 'steady'], stdout=subprocess.DEVNULL,
                                               stderr=subprocess.DEVNULL, env=check_nccl.environment_of(SOFTGPU, PLUGIN, 'tcp', settings, rank, 1)))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for rank in self.ranks:
            rank.kill()
            rank.wait()

    def said(self, rank):
        try:
            with open(self.logs[rank], encoding='utf-8', errors='replace') as log:
                return log.read()
        except FileNotFoundError:
            return ''


def autopsy(folder):
    done = subprocess.run([WEFT, 'autopsy', '--json', folder], capture_output=True, text=True, check=False, timeout=PATIENCE)
    return json.loads(done.stdout) if done.returncode == 0 else {}


class LateGpuTest(unittest.TestCase):
    def until(self, what, why):
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            if found := what():
                return found
            time.sleep(0.1)
        return self.fail(why())

    def test_its_rank_is_named(self):
        nccl, why = check_nccl.usable_nccl(SOFTGPU, PLUGIN)
        if nccl is None:
            self.skipTest(why)
        for algorithm, victim, kernel in CASES:
            with (self.subTest(algorithm=algorithm, victim=victim, kernel=kernel), tempfile.TemporaryDirectory() as folder,
                  Job(folder, nccl, algorithm, victim, kernel) as job):
                found = self.until(lambda: (one := autopsy(folder)).get('verdict') == 'late' and one, lambda: autopsy(folder))
                after = time.time() - found['culprit']['moved_last']
                self.assertTrue(found['culprit']['place'].startswith(f'rank {victim} on '), found)
                self.assertLess(after, IN_TIME)
                if algorithm == 'Ring':
                    self.ranks_say(job, victim, found['culprit']['moved_last'])

    def ranks_say(self, job, victim, moved_last):
        name = f'rank {victim} on '
        self.until(lambda: 'verdict: this rank is late' in job.said(victim), lambda: job.said(victim))
        self.assertLess(time.time() - moved_last, IN_TIME)
        for rank in set(range(RANKS)) - {victim}:
            said = self.until(lambda rank=rank: re.findall(r'verdict: (.*)', job.said(rank)), lambda rank=rank: job.said(rank))
            self.assertTrue(all(verdict.startswith(name) for verdict in said), said)


if __name__ == '__main__':
    result = unittest.main(argv=sys.argv[:1], exit=False).result
    sys.exit(check_nccl.SKIP if result.skipped else not result.wasSuccessful())
