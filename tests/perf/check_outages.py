#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""Cuts the networks of two hosts while `weft perf` runs between them: silence is not death, and nothing is lost.

usage: tests/unit/in_own_network check_outages.py WEFT PROVIDER

The hosts are network namespaces with three cables: one for the launcher, one for control links, one for messages. What is cut
(control, data or both), how (both ways, one way, by the sending host's own firewall) and for how long makes one run each. A run that
must survive ends with every element right; one that must not ends on both ranks with the reason, and in time. With WEFT_TEST_FULL=1
the outages last 2, 10, 20 and 60 s, else a few seconds.
"""
import dataclasses
import json
import os
import re
import subprocess
import sys
import tempfile
import time

import cables
import check_hosts

NETWORKS = ('launch', 'control', 'data')
CABLES = cables.Cables(NETWORKS, '10.79')
BOUND = 30  # of a host's silence, in seconds: WEFT_KERNEL_TIMEOUT's default
PATIENCE = 150
PROMPT = 2  # seconds that mending may take
BYTES_BEFORE = 64 << 20  # that have crossed the data cable when the outage begins


@dataclasses.dataclass
class Outage:
    networks: tuple
    way: str  # both, one (packets of host 0 vanish on the cable), firewall (host 0 drops its own)
    seconds: int
    ends: str = 'well'  # or what both ranks must say, or '' where either is right

    def __str__(self):
        return f'{" and ".join(self.networks)} cut for {self.seconds} s, {self.way}'


def crossed():
    """Bytes that host 0 has sent over the data cable."""
    text = subprocess.run(['ip', '-n', 'host0', '-s', '-j', 'link', 'show', 'data'], check=True, capture_output=True, text=True,
                          timeout=30).stdout
    return json.loads(text)[0]['stats64']['tx']['bytes']


def ends_of(outage):
    return outage.networks, range(2 if outage.way == 'both' else 1)


def cut(outage):
    (CABLES.refuse if outage.way == 'firewall' else CABLES.lose)(*ends_of(outage))


def mend(outage):
    (CABLES.allow if outage.way == 'firewall' else CABLES.find)(*ends_of(outage))


class Job:
    """Two ranks that exchange messages of 1 MiB and verify them."""

    def __init__(self, weft, provider, iterations, folder, port):
        environment = {**os.environ, 'WORLD_SIZE': '2', 'WEFT_TOKEN': '0123456789abcdef0123456789abcdef', 'MASTER_ADDR': '10.79.0.1', 'MASTER_PORT': str(port),
                       'WEFT_PROVIDER': provider, 'WEFT_SOCKET_IFNAME': '=control', 'WEFT_HCA': '=data'}
        command = [weft, 'perf', 'sendrecv', '-b', '1M', '-e', '1M', '--iters', str(iterations), '-w', '1', '--verbose', '--json', '-']
        self.files = [(tempfile.TemporaryFile('w+'), tempfile.TemporaryFile('w+')) for _ in range(2)]
        self.ranks = [subprocess.Popen(check_hosts.on_host(rank, folder, command), env={**environment, 'RANK': str(rank)},
                                       stdout=self.files[rank][0], stderr=self.files[rank][1]) for rank in range(2)]

    def running(self):
        return all(rank.poll() is None for rank in self.ranks)

    def wait(self):
        """Exit statuses; nothing where a rank did not end in time."""
        until = time.monotonic() + PATIENCE
        try:
            return [rank.wait(max(1.0, until - time.monotonic())) for rank in self.ranks]
        except subprocess.TimeoutExpired:
            return None
        finally:
            for rank in self.ranks:
                rank.kill()
                rank.wait()

    def said(self, rank):
        texts = []
        for file in self.files[rank]:
            file.seek(0)
            texts.append(file.read())
        return texts


def complaints_of(job, outage):
    statuses = job.wait()
    if statuses is None:
        yield 'a rank did not end'
        return
    if outage.ends == 'well' or (outage.ends == '' and not any(statuses)):
        if any(statuses):
            yield f'the ranks ended with {statuses}'
            return
        row = json.loads(job.said(0)[0])['results'][0]
        wrong = [row[place]['wrong'] for place in ('out_of_place', 'in_place') if row[place]]
        if any(wrong):
            yield f'{wrong} elements are wrong'
        return
    if not all(statuses):
        yield f'the ranks ended with {statuses}, though the outage was longer than any bound'
    for rank in range(2):
        if outage.ends not in job.said(rank)[1]:
            yield f'rank {rank} does not say "{outage.ends}"'


def warnings_complaints(job, outage):
    """The silence of the control network is reported once by each rank that sees it, with the peer's name."""
    for rank in range(2):
        lines = [line for line in job.said(rank)[1].splitlines() if 'on the control network, ' in line]
        expected = 'control' in outage.networks and outage.seconds > 3
        if expected and (len(lines) != 1 or not re.search(r'the host of rank \d on \S+ pid \d+ \(10\.79\.1\.\d\)', lines[0])):
            yield f'rank {rank} does not report the silence once: {lines}'


def run(weft, provider, outage, iterations, port):
    with tempfile.TemporaryDirectory() as folder:
        before = crossed()
        job = Job(weft, provider, iterations, folder, port)
        try:
            until = time.monotonic() + 60
            while crossed() - before < BYTES_BEFORE and job.running() and time.monotonic() < until:
                time.sleep(0.01)
            cut(outage)
            began = time.monotonic()
            while time.monotonic() < began + outage.seconds and job.running():
                time.sleep(0.02)
            lasted = time.monotonic() - began
            mend(outage)
            mending = time.monotonic() - began - lasted
            if mending > PROMPT:  # the kernel removes somebody's network, and changes no other meanwhile: one cable was cut longer
                print(f'{outage}: mending took {mending:.1f} s, so the run may have ended', flush=True)
                outage = dataclasses.replace(outage, ends='')
            found = []
            if outage.ends == 'well' and lasted < outage.seconds:
                found.append(f'the run ended {lasted:.1f} s after the outage began')
            found += complaints_of(job, outage)
            found += warnings_complaints(job, outage)
            if found:
                for rank in range(2):
                    print(f'rank {rank} said:\n' + '\n'.join(text[-4000:] for text in job.said(rank)))
            print(f'{outage}: {time.monotonic() - began - lasted - mending:.1f} s after it until the end', flush=True)
            return [f'{outage}: {line}' for line in found]
        finally:
            job.wait() if not job.running() else [rank.kill() for rank in job.ranks]


def calibrate(weft, provider):
    """Iterations a second."""
    count = 300
    with tempfile.TemporaryDirectory() as folder:
        job = Job(weft, provider, count, folder, 29700)
        if job.wait() != [0, 0]:
            sys.exit('FAILED: a run without an outage failed:\n' + job.said(0)[1] + job.said(1)[1])
        row = json.loads(job.said(0)[0])['results'][0]
        return 1e6 / row['out_of_place']['time_us']


def outages():
    data, control, both = ('data',), ('control',), ('control', 'data')
    lost = 'rail data'
    if not os.environ.get('WEFT_TEST_FULL'):
        return [Outage(control, 'both', 5), Outage(both, 'both', 2), Outage(both, 'both', 5), Outage(both, 'firewall', 4), Outage(data, 'one', 2)]
    found = []
    for way in ('both', 'one', 'firewall'):
        found += [Outage(control, way, seconds) for seconds in (2, 10, 20, 60)]
        found += [Outage(data, way, 2), Outage(data, way, 10, ''), Outage(data, way, 20, lost), Outage(data, way, 60, lost)]
        found += [Outage(both, way, seconds) for seconds in (2, 10, 20)] + [Outage(both, way, 60, 'WEFT_KERNEL_TIMEOUT')]
    return found


def main(weft, provider):
    wrong = []
    try:
        CABLES.lay()
        rate = calibrate(weft, provider)
        print(f'{rate:.0f} iterations a second', flush=True)
        for number, outage in enumerate(outages()):
            # Only what is cut off stands still; the rest must last as long as the outage.
            seconds = 3 + (0 if 'data' in outage.networks else 2 * outage.seconds)
            wrong += run(weft, provider, outage, max(500, int(rate * seconds)), 29701 + number)
    finally:
        check_hosts.remove_hosts()
    for line in wrong:
        print(f'FAILED: {line}')
    return 1 if wrong else 0


if __name__ == '__main__':
    sys.exit(main(*sys.argv[1:]))
