#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""`weft perf` on a cluster that is not well: hosts that cannot reach each other, hosts that are not there, ranks that are stopped.

usage: tests/unit/in_own_network check_sick.py WEFT

The hosts are network namespaces on one bridge. Whatever is wrong, the run ends, in time, and says who it is.
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

import check_hosts

WEFT = sys.argv[1]
HOSTS = 4
BOUND = 30  # seconds that a check may take, whatever is wrong
PATIENCE = 120
NOWHERE = '02:00:00:00:00:01'
port = 29800


def setUpModule():
    check_hosts.ip('link', 'add', 'switch', 'type', 'bridge')
    check_hosts.ip('link', 'set', 'switch', 'up')
    for host in range(HOSTS):
        check_hosts.ip('netns', 'add', f'host{host}')
        check_hosts.ip('link', 'add', f'port{host}', 'type', 'veth', 'peer', 'name', 'net0', 'netns', f'host{host}')
        check_hosts.ip('link', 'set', f'port{host}', 'master', 'switch', 'up')
        check_hosts.ip('-n', f'host{host}', 'addr', 'add', f'10.81.0.{host + 1}/24', 'dev', 'net0')
        for link in ('lo', 'net0'):
            check_hosts.ip('-n', f'host{host}', 'link', 'set', link, 'up')


def tearDownModule():
    for host in range(HOSTS):
        subprocess.run(['ip', 'netns', 'del', f'host{host}'], check=False, timeout=30)


class Blocked:
    """What two hosts send to each other goes to a card that is not there."""
    def __init__(self, *pairs):
        self.ways = [way for a, b in pairs for way in ((a, b), (b, a))]

    def __enter__(self):
        for host, other in self.ways:
            check_hosts.ip('-n', f'host{host}', 'neigh', 'replace', f'10.81.0.{other + 1}', 'lladdr', NOWHERE, 'nud', 'permanent', 'dev', 'net0')

    def __exit__(self, *_):
        for host, other in self.ways:
            check_hosts.ip('-n', f'host{host}', 'neigh', 'del', f'10.81.0.{other + 1}', 'dev', 'net0')


class Job:
    def __init__(self, test, *arguments, ranks=range(HOSTS), **settings):
        global port
        port += 1
        folder = tempfile.TemporaryDirectory()
        test.addCleanup(folder.cleanup)
        common = {**os.environ, 'WORLD_SIZE': str(HOSTS), 'WEFT_TOKEN': '0123456789abcdef0123456789abcdef', 'MASTER_ADDR': '10.81.0.1', 'MASTER_PORT': str(port), **settings}
        self.began = time.monotonic()
        self.ranks = {}
        for rank in ranks:
            command = check_hosts.on_host(rank, folder.name, [WEFT, 'perf', *arguments])
            self.ranks[rank] = subprocess.Popen(command, env={**common, 'RANK': str(rank)}, stdout=subprocess.PIPE,
                                                stderr=subprocess.PIPE, text=True)
        test.addCleanup(self.end)

    def end(self):
        for process in self.ranks.values():
            process.kill()
            process.communicate()

    def result(self, rank=0):
        output, errors = self.ranks[rank].communicate(timeout=PATIENCE)
        return self.ranks[rank].returncode, output, errors, time.monotonic() - self.began


class CheckClusterTest(unittest.TestCase):
    CHECK = ('--check-cluster', '--slow', '1000', '--cluster-bytes', '256K', '--json', '-')

    def cells(self, document):
        """Pairs without a number, of both matrices alike."""
        missing = [{(a, b) for a in range(HOSTS) for b in range(HOSTS) if a != b and document[name][a][b] is None}
                   for name in ('latency_us', 'bandwidth_gbps')]
        self.assertEqual(missing[0], missing[1])
        return missing[0]

    def test_all_is_well(self):
        status, output, errors, _ = Job(self, *self.CHECK).result()
        self.assertEqual(status, 0, errors)
        document = json.loads(output)
        self.assertEqual((self.cells(document), document['findings'], document['rounds']), (set(), [], 3))

    def test_two_hosts_that_cannot_reach_each_other(self):
        with Blocked((1, 2)):
            status, output, errors, took = Job(self, *self.CHECK).result()
            text = Job(self, *self.CHECK[:-2]).result()[1]
        self.assertEqual(status, 3, errors)
        self.assertLess(took, BOUND)
        document = json.loads(output)
        self.assertEqual(self.cells(document), {(1, 2), (2, 1)})
        self.assertEqual([(one['kind'], one['rank'], one['receiver']) for one in document['findings']], [('unreachable', 1, 2)])
        self.assertRegex(text, r'(?m)^unreachable: rank 1 on \S+ cannot reach rank 2 on \S+, nor the other way round: ')
        self.assertEqual(text.count('  X'), 4)

    def test_a_host_that_reaches_rank_0_only(self):
        with Blocked((3, 1), (3, 2)):
            status, output, errors, took = Job(self, *self.CHECK).result()
        self.assertEqual(status, 3, errors)
        self.assertLess(took, BOUND)
        self.assertEqual(self.cells(json.loads(output)), {(3, 1), (1, 3), (3, 2), (2, 3)})

    def test_a_rank_that_never_comes(self):
        status, output, errors, took = Job(self, *self.CHECK, ranks=range(HOSTS - 1)).result()
        self.assertEqual(status, 3, errors)
        self.assertLess(took, BOUND)
        document = json.loads(output)
        self.assertEqual(self.cells(document), {pair for other in range(3) for pair in ((3, other), (other, 3))})
        self.assertEqual([(one['kind'], one['rank']) for one in document['findings']], [('lost rank', 3)])
        self.assertIn('goes on without those that did not appear: rank 3 of 4', errors)

    def test_a_rank_that_is_stopped(self):
        job = Job(self, *self.CHECK[:-4], '--cluster-bytes', '64M', '--json', '-')
        time.sleep(2)
        os.kill(job.ranks[3].pid, signal.SIGSTOP)
        stopped = time.monotonic()
        status, output, errors, _ = job.result()
        self.assertEqual(status, 3, errors)
        self.assertLess(time.monotonic() - stopped, BOUND)
        document = json.loads(output)
        lost = [one for one in document['findings'] if one['kind'] == 'lost rank']
        self.assertEqual([one['rank'] for one in lost], [3], output)
        self.assertRegex(lost[0]['why'], r'rank 3 on \S+ \(pid \d+\) has not answered for 1\d s, though its host does: is it stopped\?')
        self.assertEqual({pair for pair in self.cells(document) if 3 not in pair}, set())


# A rank that finds rank 0 and says nothing any more, as one that is stopped.
SILENT = f"""
import socket, sys, time
sys.path.insert(0, {str(pathlib.Path(__file__).resolve().parent)!r})
import greeting
while True:
    try:
        link = socket.create_connection(('10.81.0.1', PORT), timeout=5)
        break
    except OSError:
        time.sleep(0.1)
greeting.greet(link, 1, 2, '0123456789abcdef0123456789abcdef')
print('there', flush=True)
time.sleep(1000)
"""


class BarrierTest(unittest.TestCase):
    """Rank 0 waits for one that is stopped, or cut off, where no plugin watches over it."""
    def begin(self, host):
        job = Job(self, 'sendrecv', '-b', '8', '-e', '8', ranks=[0], WORLD_SIZE='2')
        silent = subprocess.Popen(['ip', 'netns', 'exec', f'host{host}', 'python3', '-c', SILENT.replace('PORT', str(port))],
                                  stdout=subprocess.PIPE)
        self.addCleanup(lambda: (silent.kill(), silent.communicate()))
        self.assertEqual(silent.stdout.readline(), b'there\n')
        return job

    def test_it_is_given_up_and_named(self):
        cut, stopped = self.begin(1), self.begin(2)
        with Blocked((0, 1)):
            status, _, errors, took = cut.result()
        self.assertEqual(status, 1, errors)
        self.assertLess(took, 60)
        self.assertRegex(errors, r'rank 1 on node7 \(pid 4711\) (is cut off|has not answered for 3\d s, nor does its host)')
        status, _, errors, took = stopped.result()
        self.assertEqual(status, 1, errors)
        self.assertRegex(errors, r'rank 1 on node7 \(pid 4711\) has not answered for \d s, though its host does: is it stopped\? '
                                 'It is given up after 30 s')
        self.assertRegex(errors, r'weft perf: rendezvous: rank 1 on node7 \(pid 4711\) has not answered for 3\d s, though its host does: is it stopped\?')


if __name__ == '__main__':
    unittest.main(argv=sys.argv[:1])
