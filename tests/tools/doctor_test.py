#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""`weft doctor` on this machine, between network namespaces, and below a launcher that is this test.

usage: doctor_test.py WEFT

The checks themselves meet their bad states in doctor_test.cc; here are the real kernel, real packets and the program around them.
"""
import json
import os
import resource
import socket
import subprocess
import sys
import tempfile
import unittest

WEFT = sys.argv[1]
CLEAN = {name: value for name, value in os.environ.items()
         if not name.startswith(('WEFT_', 'NCCL_', 'SLURM_', 'OMPI_', 'PMI_', 'FI_')) and name not in ('RANK', 'WORLD_SIZE', 'LD_LIBRARY_PATH')}
CLEAN['WEFT_CONF'] = ''
PATIENCE = 120


def doctor(*arguments, before=(), preexec=None, **settings):
    return subprocess.run([*before, WEFT, 'doctor', *arguments], env={**CLEAN, **settings}, capture_output=True, text=True, check=False,
                          timeout=PATIENCE, preexec_fn=preexec)


def findings(*arguments, **how):
    done = doctor('--json', *arguments, **how)
    try:
        hosts = json.loads(done.stdout)['hosts']
    except ValueError as error:
        raise AssertionError(done.stdout + done.stderr) from error
    return done.returncode, [finding for host in hosts for finding in host['findings']]


def about(all_findings, what):
    return [finding for finding in all_findings if finding['what'] == what]


def sh(command):
    return subprocess.run(command, shell=True, capture_output=True, text=True, check=False)


class DoctorTest(unittest.TestCase):
    def test_every_topic_is_looked_at_and_every_finding_is_whole(self):
        status, found = findings(NCCL_NET_PLUGIN='weft')
        self.assertIn(status, (0, 3, 4))
        self.assertTrue({'limits', 'memory', 'processors', 'interfaces', 'ports', 'RDMA', 'PCIe', 'GPU', 'settings', 'libraries', 'fabric'}
                        <= {one['topic'] for one in found})
        for one in found:
            self.assertIn(one['severity'], ('ok', 'note', 'unknown', 'warning', 'error'))
            self.assertTrue(one['evidence'], one)
            if one['severity'] in ('warning', 'error'):
                self.assertTrue(one['mend'], one)
                self.assertIn(one['mendBy'], ('root', 'setting', 'hand'))

    def test_the_exit_status_is_that_of_the_worst(self):
        done = doctor(NCCL_NET='Socket', NCCL_NET_PLUGIN='weft')
        self.assertEqual(done.returncode, 4, done.stdout)
        self.assertRegex(done.stdout, r'error    settings: NCCL_NET: NCCL_NET=Socket: NCCL takes its own sockets')
        self.assertIn('setting: NCCL_NET=weft', done.stdout)

    def test_what_a_job_needs_is_asked_of_a_job_alone(self):
        """A scheduler's prologue has no job's environment: no healthy host is to be drained for that."""
        _, found = findings()
        self.assertEqual(about(found, 'NCCL_NET_PLUGIN'), [])
        self.assertEqual([one['severity'] for one in about(found, 'environment')], ['note'])
        status, found = findings('--job')
        self.assertEqual(status, 4)
        self.assertEqual(about(found, 'NCCL_NET_PLUGIN')[0]['severity'], 'error')
        with tempfile.NamedTemporaryFile('w') as conf:
            conf.write(f'NCCL_NET_PLUGIN={conf.name}.weft\n')
            conf.flush()
            _, found = findings('--job', NCCL_CONF_FILE=conf.name)
        self.assertIn(f'{conf.name}.weft cannot be read', about(found, 'NCCL_NET_PLUGIN')[0]['evidence'])

    def test_limits_are_those_of_the_process(self):
        def few():
            resource.setrlimit(resource.RLIMIT_NOFILE, (256, 512))
        _, found = findings(preexec=few, WORLD_SIZE='64')
        self.assertEqual(about(found, 'open files')[0]['severity'], 'error')
        self.assertIn('256 (soft) of 512 (hard)', about(found, 'open files')[0]['evidence'])

    def test_one_processor_is_too_few(self):
        _, found = findings(before=('taskset', '-c', '0'))
        self.assertIn('1 of ', about(found, 'processors of this process')[0]['evidence'])

    @unittest.skipIf(os.getuid() != 0, 'namespaces want root')
    def test_a_small_shm_and_a_host_without_interface(self):
        script = 'mount -t tmpfs -o size=16m none /dev/shm && exec "$@"'
        before = ('unshare', '-m', '-n', 'sh', '-c', script, 'sh')
        status, found = findings(before=before)
        self.assertEqual(status, 4)
        self.assertEqual(about(found, '/dev/shm')[0]['severity'], 'error')
        self.assertIn('16 MiB', about(found, '/dev/shm')[0]['evidence'])
        self.assertEqual(about(found, 'interfaces up')[0]['severity'], 'error')

    def test_the_script_is_one(self):
        done = doctor('--fix-script', NCCL_SOKET_IFNAME='eth0')
        self.assertTrue(done.stdout.startswith('#!/bin/sh\n'))
        self.assertIn('# in the job: export NCCL_SOCKET_IFNAME=eth0', done.stdout)
        checked = subprocess.run(['sh', '-n'], input=done.stdout, capture_output=True, text=True, check=False)
        self.assertEqual((checked.returncode, checked.stderr), (0, ''))

    def test_usage(self):
        for words in (('--all', '--hosts', 'x'), ('--json', '--fix-script'), ('--nosuch',)):
            self.assertEqual(doctor(*words).returncode, 2, words)
        done = doctor('--all')
        self.assertEqual(done.returncode, 2)
        self.assertIn('srun, mpirun or torchrun', done.stderr)


class Wires:
    """Two hosts and a router between them, in namespaces: near - router - far."""

    def __init__(self):
        mark = f'd{os.getpid() % 100000}'
        self.near, self.router, self.far = f'{mark}n', f'{mark}r', f'{mark}f'

    def __enter__(self):
        commands = [f'ip netns add {one}; ip -n {one} link set lo up' for one in (self.near, self.router, self.far)]
        for name, end, net in ((self.near, 'a', 1), (self.far, 'b', 2)):
            commands.append(f'ip link add {name}{end} netns {name} type veth peer name {name}r netns {self.router}; '
                            f'ip -n {name} addr add 192.0.{net}.2/24 dev {name}{end}; ip -n {name} link set {name}{end} mtu 9000 up; '
                            f'ip -n {self.router} addr add 192.0.{net}.1/24 dev {name}r; ip -n {self.router} link set {name}r mtu 9000 up; '
                            f'ip -n {name} route add default via 192.0.{net}.1')
        commands.append(f'ip netns exec {self.router} sysctl -qw net.ipv4.ip_forward=1; '
                        f'ip netns exec {self.far} sysctl -qw net.ipv4.icmp_ratelimit=0; ip netns exec {self.router} sysctl -qw net.ipv4.icmp_ratelimit=0')
        done = sh('set -e; ' + '; '.join(commands))
        self.works = done.returncode == 0
        self.why = done.stderr
        return self

    def __exit__(self, *_):
        for one in (self.near, self.router, self.far):
            sh(f'ip netns del {one}')

    def probe(self, *arguments, **settings):
        return findings('--hosts', '192.0.2.2', '--wait', '1', *arguments, before=('ip', 'netns', 'exec', self.near), **settings)[1]


@unittest.skipIf(os.getuid() != 0, 'namespaces want root')
class ProbeTest(unittest.TestCase):
    def setUp(self):
        self.wires = self.enterContext(Wires()) if hasattr(self, 'enterContext') else Wires().__enter__()
        self.addCleanup(self.wires.__exit__)
        if not self.wires.works:
            self.skipTest(self.wires.why)

    def paths(self, **settings):
        return [one for one in self.wires.probe(**settings) if one['topic'] == 'path']

    def test_an_open_way_is_fine(self):
        found = self.paths()
        self.assertEqual({one['severity'] for one in found}, {'ok'}, found)
        self.assertIn('packets of 9000 bytes arrive', [one['evidence'] for one in found][-1])

    def test_a_narrow_path_that_says_so(self):
        sh(f'ip -n {self.wires.router} link set {self.wires.far}r mtu 1500')
        last = self.paths()[-1]
        self.assertEqual(last['severity'], 'warning', last)
        self.assertIn('sends 9000 bytes, and the path carries 1500', last['evidence'])

    def test_a_narrow_path_that_swallows(self):
        sh(f'ip -n {self.wires.far} link set {self.wires.far}b mtu 1500')  # the far card drops what is longer, and says nothing
        last = self.paths()[-1]
        self.assertEqual(last['severity'], 'error', last)
        self.assertIn('swallowed without a word', last['evidence'])

    def test_a_port_that_is_blocked(self):
        blocked = sh(f'ip -n {self.wires.router} rule add ipproto 6 dport 20100 blackhole')
        self.assertEqual(blocked.returncode, 0, blocked.stderr)
        found = self.paths(WEFT_PORT_RANGE='20000-20100')
        self.assertEqual([one['severity'] for one in found if ':20100' in one['what']], ['error'])
        self.assertEqual([one['severity'] for one in found if ':20000' in one['what']], ['ok'])

    def test_no_way_there(self):
        sh(f'ip -n {self.wires.router} link set {self.wires.far}r down')
        found = self.paths()
        self.assertEqual(found[0]['severity'], 'error')

    def test_all_below_a_launcher_compares_and_probes(self):
        sh(f'ip -n {self.wires.far} link set {self.wires.far}b mtu 1500')
        ranks = []
        for rank, name in enumerate((self.wires.near, self.wires.far)):
            settings = {**CLEAN, 'RANK': str(rank), 'WORLD_SIZE': '2', 'WEFT_TOKEN': '0123456789abcdef0123456789abcdef', 'MASTER_ADDR': '192.0.1.2', 'MASTER_PORT': '29555',
                        'NCCL_NET_PLUGIN': 'weft', 'WEFT_EAGER_MAX': str(4096 * (rank + 1))}
            ranks.append(subprocess.Popen(['ip', 'netns', 'exec', name, 'unshare', '-u', 'sh', '-c', f'hostname node{rank}; exec "$@"', 'sh',
                                           WEFT, 'doctor', '--all', '--json', '--wait', '2'],
                                          env=settings, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        outputs = [rank.communicate(timeout=PATIENCE) for rank in ranks]
        hosts = {host['host']: host for host in json.loads(outputs[0][0])['hosts']}
        self.assertEqual(outputs[1][0], '')  # rank 0 speaks for all
        self.assertEqual(set(hosts), {'node0', 'node1', 'between the hosts'})
        between = {one['what']: one for one in hosts['between the hosts']['findings']}
        self.assertEqual(between['settings of weft']['severity'], 'warning')
        self.assertIn('on node1', between['settings of weft']['evidence'])
        paths = {host: [one for one in hosts[host]['findings'] if one['topic'] == 'path'] for host in ('node0', 'node1')}
        self.assertEqual(len(paths['node0']), 1, paths)
        self.assertEqual(len(paths['node1']), 1, paths)


class TogetherTest(unittest.TestCase):
    def test_ranks_of_one_host_are_one_host(self):
        with socket.socket() as free:
            free.bind(('127.0.0.1', 0))
            port = free.getsockname()[1]
        ranks = [subprocess.Popen([WEFT, 'doctor', '--all', '--json'], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                  env={**CLEAN, 'RANK': str(rank), 'WORLD_SIZE': '2', 'MASTER_ADDR': '127.0.0.1', 'MASTER_PORT': str(port)})
                 for rank in range(2)]
        outputs = [rank.communicate(timeout=PATIENCE) for rank in ranks]
        hosts = json.loads(outputs[0][0])['hosts']
        self.assertEqual(len(hosts), 2, outputs[0])
        self.assertEqual(hosts[1]['worst'], 'ok')


if __name__ == '__main__':
    unittest.main(argv=sys.argv[:1])
