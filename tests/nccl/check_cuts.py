#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""Cuts the networks of two hosts while NCCL runs between them over weft: a short silence is survived, and so is the loss of one rail; a long
one ends with NCCL's remote error and weft's own words, and the communicator can be aborted.

usage: tests/unit/in_own_network check_cuts.py SOFTGPU PROGRAM PLUGIN PROVIDER

The hosts are network namespaces with three cables: one for control links and NCCL's own, and two for messages, which form one device.
"""
import collections
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

TOP = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(TOP / 'scripts' / 'lib'), str(TOP / 'tests' / 'perf')]
import cables
import check_hosts
import nccl_host

SKIP = 77
NETWORKS = ('control', 'data0', 'data1')
CABLES = cables.Cables(NETWORKS, '10.81')
UNDER_WAY_SECONDS, END_SECONDS = 60, 120
BEFORE_THE_CUT = 1.5

# `seconds`: None for good. `bound`: of a host's silence, in seconds (WEFT_KERNEL_TIMEOUT). `says`: what every rank has to print.
Cut = collections.namedtuple('Cut', 'name case networks seconds bound says')
CUTS = [Cut('everything for 3 s', 'steady', NETWORKS, 3, 30, r'stood still for ([2-9]|1\d)\.\d s at most'),
        Cut('one rail for good', 'steady', ('data0',), None, 30, r'rail data0 to .* is left to the other rails'),
        Cut('everything for good', 'cut_off', NETWORKS, None, 5, r'after ([5-9]|1\d)\.\d s error 6, last error ".*WEFT_KERNEL_TIMEOUT.*abort took [0-4]\.')]


class Job:
    def __init__(self, host, program, plugin, provider, cut, folder):
        self.logs = [f'{folder}/{rank}.log' for rank in range(2)]
        self.ranks = []
        for rank in range(2):
            settings = {'NCCL_HOSTID': f'host{rank}', 'NCCL_SOCKET_IFNAME': '=control', 'NCCL_NET': 'weft', 'WEFT_PROVIDER': provider,
                        'WEFT_SOCKET_IFNAME': '=control', 'WEFT_HCA': '=data0,data1', 'WEFT_MERGE_NICS': 'data0,data1', 'WEFT_STRIPE_MIN': '4096',
                        'WEFT_KERNEL_TIMEOUT': str(cut.bound * 1000)}
            command = [program, host.library.file, '2', str(rank), '1', f'{folder}/id', cut.case]
            with open(self.logs[rank], 'wb') as log:
                self.ranks.append(subprocess.Popen(check_hosts.on_host(rank, folder, command), env={**host.environment(plugin), **settings}, stdout=log,
                                                   stderr=subprocess.STDOUT))

    def said(self, rank):
        with open(self.logs[rank], encoding='utf-8', errors='replace') as log:
            return log.read()

    def wait_until_under_way(self):
        until = time.monotonic() + UNDER_WAY_SECONDS
        while not all('under way' in self.said(rank) for rank in range(2)) and time.monotonic() < until:
            time.sleep(0.05)
        time.sleep(BEFORE_THE_CUT)

    def wait(self):
        """Exit statuses, 124 for what did not end in time."""
        until, statuses = time.monotonic() + END_SECONDS, []
        for rank in self.ranks:
            try:
                statuses.append(rank.wait(max(until - time.monotonic(), 0.1)))
            except subprocess.TimeoutExpired:
                statuses.append(124)
        self.kill()
        return statuses

    def kill(self):
        for rank in self.ranks:
            rank.kill()
            rank.wait()


def run(cut, *what):
    """What is wrong."""
    with tempfile.TemporaryDirectory() as folder:
        job = Job(*what, cut, folder)
        try:
            job.wait_until_under_way()
            CABLES.lose(cut.networks, range(2))
            if cut.seconds is not None:
                time.sleep(cut.seconds)
                CABLES.find(cut.networks, range(2))
            statuses = job.wait()
        finally:
            job.kill()
        if cut.seconds is None:
            CABLES.find(cut.networks, range(2))
        wrong = [f'{cut.name}: rank {rank} ended with {status}' for rank, status in enumerate(statuses) if status != 0]
        for rank in range(2):
            for pattern in (cut.says, 'Using network weft', 'via NET/weft'):
                if not re.search(pattern, job.said(rank)):
                    wrong.append(f'{cut.name}: rank {rank} does not say "{pattern}"')
            print('\n'.join(line for line in job.said(rank).splitlines() if re.search(r'rank \d: |is right|NCCL WARN', line) or wrong), flush=True)
        return wrong


def main(softgpu, program, plugin, provider):
    try:
        host = nccl_host.Host(softgpu, '', 'python3')
    except nccl_host.CannotRun as reason:
        print(f'skipped: {reason}')
        return 1 if os.environ.get('WEFT_NCCL') else SKIP  # one that is named has to work
    wrong = []
    try:
        CABLES.lay()
        for cut in CUTS:
            print(f'== {cut.name}', flush=True)
            wrong += run(cut, host, program, plugin, provider)
    finally:
        check_hosts.remove_hosts()
    for line in wrong:
        print(f'FAILED: {line}')
    return 1 if wrong else 0


if __name__ == '__main__':
    os.environ.pop('LD_LIBRARY_PATH', None)  # Meson names the software GPU in it, which Host adds where it is needed
    sys.exit(main(*sys.argv[1:]))
