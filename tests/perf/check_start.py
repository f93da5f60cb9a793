#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""How `weft perf` is started: what it makes of its command line and of a launcher's variables.

usage: check_start.py WEFT PLUGIN
"""
import json
import os
import pathlib
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / 'scripts' / 'lib'))
import greeting
from ports import free_port

WEFT = sys.argv[1]
LAUNCHERS = ('SLURM_', 'OMPI_', 'PMI', 'MASTER_', 'TORCHELASTIC_')
CLEAN = {name: value for name, value in os.environ.items()
         if not name.startswith(LAUNCHERS) and name not in ('RANK', 'WORLD_SIZE')}
PATIENCE = 60
TOKEN = '0123456789abcdef' * 2
SHORT = ('all_reduce', '-b', '8', '-e', '8', '--iters', '2', '-w', '0')


def perf(*arguments, **settings):
    return subprocess.run([WEFT, 'perf', *arguments], env={**CLEAN, **settings}, capture_output=True, text=True, check=False,
                          timeout=PATIENCE)


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

    def test_a_stream_that_is_none(self):
        for size in ('0', '1', '65535', '2048G'):
            self.refused(perf('--check-cluster', '-n', '2', '--cluster-bytes', size), '--cluster-bytes must be from 64K to')
        self.assertEqual(perf('--check-cluster', '-n', '2', '--slow', '1000', '--cluster-bytes', '64K').returncode, 0)

    def test_a_check_of_one_host_says_so(self):
        """Who looks for a slow host reads how its ranks come to all of them, and the command is one that -n does not spoil."""
        done = perf('--check-cluster', '-n', '2', '--slow', '1000', '--cluster-bytes', '64K')
        self.assertIn('no path between hosts was measured', done.stdout)
        command = re.search(r'srun .*', done.stdout)[0]
        self.assertNotIn(' -n', command)

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

    def test_a_command_line_that_ends_its_options(self):
        done = perf('-n', '2', *SHORT[1:], '--', SHORT[0])
        self.assertEqual((done.returncode, done.stderr), (0, ''))
        self.assertIn(': 2 processes', done.stdout)

    def test_a_plugin_in_the_current_folder(self):
        weft, plugin = os.path.abspath(WEFT), os.path.abspath(sys.argv[2])
        with tempfile.TemporaryDirectory() as folder:
            shutil.copy(plugin, os.path.join(folder, 'copy.so'))
            for option in (('--plugin', 'copy.so'), ('--rounds', '2', '--compare', 'copy.so')):
                done = subprocess.run([weft, 'perf', *SHORT, '-n', '2', *option], env=CLEAN, capture_output=True, text=True,
                                      check=False, timeout=PATIENCE, cwd=folder)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertIn('copy.so', done.stdout)
        self.refused_plugin('copy.so')

    def refused_plugin(self, name):
        done = perf(*SHORT, '-n', '2', '--plugin', name)
        self.assertEqual(done.returncode, 1)
        self.assertIn(f'{name}: cannot open shared object file', done.stderr)

    def test_numbers_that_are_none(self):
        for option, value in (('-b', 'inf'), ('-b', 'nan'), ('-e', '-1'), ('-e', '1e30'), ('-f', 'nan'), ('-f', 'inf'), ('--slow', 'nan')):
            done = perf('all_reduce', '-n', '2', option, value)
            self.assertNotEqual(done.returncode, 0, option)
            self.assertEqual((done.stdout.count('\n'), 'rank 0' in done.stderr), (0, False), done)

    def started(self, rank, size, port, *arguments):
        settings = {'RANK': str(rank), 'WORLD_SIZE': str(size), 'MASTER_ADDR': '127.0.0.1', 'MASTER_PORT': str(port)}
        process = subprocess.Popen([WEFT, 'perf', *SHORT, *arguments], env={**CLEAN, **settings}, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def test_who_waits_says_for_whom(self):
        port = free_port()
        root, second = self.started(0, 4, port), self.started(2, 4, port)
        self.assertRegex(root.stderr.readline(), f'rank 0 on \\S+: weft: rendezvous: waiting at port {port} for ranks 1, 3 of 4\n$')
        self.assertIsNone(second.poll())
        lonely, other = self.started(1, 2, free_port()), free_port()
        self.assertRegex(lonely.stderr.readline(), r'rank 1 waits for rank 0 at 127.0.0.1 port \d+$')
        done = self.started(0, 3, other, '--timeout', '1')
        self.assertEqual(done.wait(timeout=PATIENCE), 1)
        words = done.stderr.read()
        self.assertTrue('these did not appear: ranks 1, 2 of 3' in words, words)

    def test_who_waits_for_a_silent_port_says_so(self):
        with socket.create_server(('127.0.0.1', 0)) as mute:
            port = mute.getsockname()[1]
            second = self.started(1, 2, port, '--timeout', '8')
            self.assertIn(f'rank 1 waits for an answer at 127.0.0.1 port {port}', second.stderr.readline())

    def test_who_waits_behind_a_firewall_says_so(self):
        with socket.create_server(('127.0.0.1', 0), backlog=0) as full:  # a full queue drops what comes, as firewalls do
            port = full.getsockname()[1]
            for _ in range(4):
                client = socket.socket()
                self.addCleanup(client.close)
                client.setblocking(False)
                client.connect_ex(('127.0.0.1', port))
            second = self.started(1, 2, port, '--timeout', '8')
            self.assertIn(f'rank 1 waits for rank 0 at 127.0.0.1 port {port}', second.stderr.readline())
            self.assertEqual(second.wait(timeout=PATIENCE), 1)
            self.assertIn('(Connection timed out)', second.stderr.read())

    def test_a_rank_that_leaves_is_named(self):
        port = free_port()
        root = self.started(0, 3, port)
        for rank in (1, 2):
            with self.dialled(port) as stranger:
                self.greet(stranger, rank, 3)
        self.assertEqual(root.wait(timeout=PATIENCE), 1)
        self.assertIn('rendezvous: rank 1 ', root.stderr.read())

    def test_a_rank_that_leaves_is_seen_behind_one_that_is_slow(self):
        port = free_port()
        root = self.started(0, 3, port)
        with self.dialled(port) as slow, self.dialled(port) as leaving:
            self.greet(slow, 1, 3)
            self.greet(leaving, 2, 3)
            leaving.close()
            self.assertEqual(root.wait(timeout=PATIENCE), 1)
        self.assertRegex(root.stderr.read(), 'rendezvous: .*rank 2')  # closed, or reset as it had something to read

    def greet(self, stranger, rank, size):
        self.assertEqual(greeting.greet(stranger, rank, size), (0, size, 0))

    @staticmethod
    def dialled(port):
        end = time.monotonic() + PATIENCE
        while True:
            try:
                return socket.create_connection(('127.0.0.1', port), timeout=PATIENCE)
            except ConnectionRefusedError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.05)

    def test_ranks_of_different_options_are_refused_on_both_sides(self):
        different = (('-r', '1'), ('--channels', '2'), ('-d', 'double'), ('--algo', 'tree'), ('-i', '4096'), ('-c', '0'))
        for option, value in different:
            port = free_port()
            root, other = self.started(0, 2, port), self.started(1, 2, port, option, value)
            self.assertEqual((root.wait(timeout=PATIENCE), other.wait(timeout=PATIENCE)), (1, 1), option)
            self.assertRegex(root.stderr.read(), r'^\d\d:\d\d:\d\d\.\d{3} rank 0 on \S+: weft perf: rendezvous: rank 1 was started without .* all ranks need the same')
            self.assertRegex(other.stderr.read(), f'rendezvous: this is rank 1 with .*{value}.*, but rank 0 has ')
        port = free_port()
        same = self.started(0, 2, port, '--algo', 'ring', '--json', '/dev/null'), self.started(1, 2, port, '--stall-timeout', '60')
        self.assertEqual([rank.wait(timeout=PATIENCE) for rank in same], [0, 0])

    @unittest.skipIf(os.getuid() != 0, 'a network of its own wants root')
    def test_a_host_whose_loopback_is_down_is_told_so_at_once(self):
        begin = time.monotonic()
        done = subprocess.run(['unshare', '-n', WEFT, 'perf', *SHORT, '-n', '2'], env=CLEAN, capture_output=True, text=True, check=False,
                              timeout=PATIENCE)
        if 'unshare: ' in done.stderr:
            self.skipTest(done.stderr)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn('ip link set lo up', done.stderr)
        self.assertLess(time.monotonic() - begin, 30)

    def test_two_hosts_without_a_launcher(self):
        port = str(free_port())
        server = subprocess.Popen([WEFT, 'perf', '--server', '--port', port], env=CLEAN, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(server.communicate)
        self.addCleanup(server.kill)
        token = re.search(r'WEFT_TOKEN=(\w+) weft perf --client ', server.stdout.readline()).group(1)
        done = perf('--client', '127.0.0.1', '--port', port, 'pingpong', '-b', '8', '-e', '64K', '-f', '8', '--iters', '50', WEFT_TOKEN=token)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn('# weft perf pingpong (p2p): 2 processes', done.stdout)
        self.assertIn('# Out of bounds values : 0 OK', done.stdout)
        output, errors = server.communicate(timeout=PATIENCE)
        self.assertEqual((server.returncode, output), (0, ''), errors)

    def test_what_a_client_may_not_ask(self):
        self.refused(perf('--server', '--client', 'x'), 'choose one')
        self.refused(perf('--server', '-n', '2'), '-n starts processes of its own')
        self.refused(perf('--client', 'x', '--check-cluster'), 'run one operation')
        port = free_port()
        server = subprocess.Popen([WEFT, 'perf', '--server', '--port', str(port)], env={**CLEAN, 'WEFT_TOKEN': TOKEN}, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.addCleanup(server.communicate)
        self.addCleanup(server.kill)
        with self.dialled(port) as client:
            self.assertEqual(greeting.greet(client, 0, 2, TOKEN), (1, 2, 0))
            text = b'operation sendrecv\nplugin /tmp/evil.so\n'
            client.sendall(struct.pack('=II', 1, len(text)) + text)
            self.assertEqual(server.wait(timeout=PATIENCE), 1)
        self.assertIn('the client asks for "plugin /tmp/evil.so"', server.stderr.read())

    def test_a_time_instead_of_a_number(self):
        began = time.monotonic()
        done = perf('sendrecv', '-n', '2', '-b', '8', '-e', '8', '--duration', '2', '--json', '-')
        self.assertEqual(done.returncode, 0, done.stderr)
        half = json.loads(done.stdout)['results'][0]['out_of_place']
        self.assertGreater(half['iterations'], 100)
        self.assertGreaterEqual(half['iterations'] * half['time_us'], 0.85 * 2e6)  # the time is printed rounded
        self.assertGreaterEqual(time.monotonic() - began, 0.9 * 2)

    def test_lines_of_launched_ranks_say_when_and_who(self):
        done = perf(*SHORT, '-v', RANK='0', WORLD_SIZE='1')
        lines = [line for line in done.stderr.splitlines() if ' INFO ' in line]
        self.assertNotEqual(lines, [])
        for line in lines:
            self.assertRegex(line, r'^\d\d:\d\d:\d\d\.\d{3} rank 0 on \S+: INFO NET/weft: ')
        self.assertIn(' INFO ', perf(*SHORT, WEFT_DEBUG='INFO', RANK='0', WORLD_SIZE='1').stderr)
        done = perf(*SHORT, '-v', '-n', '2')
        self.assertRegex(done.stderr, r'(?m)^\[rank 1\] \d\d:\d\d:\d\d\.\d{3} INFO NET/weft: ')

    def test_a_cluster_check_is_not_an_operation(self):
        port = free_port()
        root = self.started(0, 2, port)
        settings = {'RANK': '1', 'WORLD_SIZE': '2', 'MASTER_ADDR': '127.0.0.1', 'MASTER_PORT': str(port)}
        done = perf('--check-cluster', **settings)
        self.assertIn('this is rank 1 with --check-cluster, but rank 0 has all_reduce (ring)', done.stderr)
        self.assertEqual((done.returncode, root.wait(timeout=PATIENCE)), (1, 1))

    def test_a_rank_of_another_size_is_refused_on_both_sides(self):
        port = free_port()
        root, stranger = self.started(0, 2, port), self.started(1, 3, port)
        self.assertEqual(stranger.wait(timeout=PATIENCE), 1)
        self.assertIn(f'at 127.0.0.1 port {port} is a run of 2 ranks; this is rank 1 of 3', stranger.stderr.read())
        self.assertRegex(root.stderr.readline(), 'refused rank 1 of 3 from .*127.0.0.1: this run has 2 ranks')
        right = self.started(1, 2, port)
        self.assertEqual((right.wait(timeout=PATIENCE), root.wait(timeout=PATIENCE)), (0, 0))


if __name__ == '__main__':
    unittest.main(argv=sys.argv[:1])
