#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""Aggregation daemons as processes, and ranks that reduce by them.

usage: check_collnet.py WEFT WEFT_AGGD

A daemon on this machine carries verified collectives of `weft perf --algo collnet`. Garbage and silence on their
ports, a wrong secret, ranks with other settings, and a daemon that is killed end with a reason, and never with a wait.
"""
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import time
import unittest

WEFT, AGGD = sys.argv[1:3]
SECRET = 'open sesame, says the rank'
OTHER = 'open barley, says the rank'
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(('WEFT_', 'NCCL_'))}
PATIENCE = int(os.environ.get('WEFT_TEST_PATIENCE', '1'))


class Daemon:
    def __init__(self, *options):
        self.process = subprocess.Popen([AGGD, '--listen', '127.0.0.1:0', *options], env={**CLEAN, 'WEFT_AGGD_SECRET': SECRET}, text=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        line = self.process.stdout.readline()
        self.address = '127.0.0.1:' + re.search(r'on port (\d+)', line)[1]

    def status(self, *options, secret=SECRET):
        return subprocess.run([AGGD, '--status', self.address, *options], env={**CLEAN, 'WEFT_AGGD_SECRET': secret}, capture_output=True,
                              text=True, check=False, timeout=20)

    def connect(self):
        host, _, port = self.address.partition(':')
        return socket.create_connection((host, int(port)), timeout=10)

    def end(self, how=signal.SIGTERM):
        self.process.send_signal(how)
        self.process.communicate(timeout=60 * PATIENCE)
        return self.process.returncode


def perf(operation, ranks, *options, **settings):
    return subprocess.run([WEFT, 'perf', operation, '-n', str(ranks), '--algo', 'collnet', *options],
                          env={**CLEAN, 'WEFT_COLLNET_TIMEOUT': '5000', **settings}, capture_output=True, text=True, check=False,
                          timeout=120 * PATIENCE)


class CollNetTest(unittest.TestCase):
    def start(self, *options):
        daemon = Daemon(*options)
        self.addCleanup(lambda: daemon.process.poll() is None and daemon.end(signal.SIGKILL))
        return daemon

    def test_collectives_by_one_daemon(self):
        daemon = self.start()
        for operation in ('all_reduce', 'all_gather', 'reduce_scatter'):
            done = perf(operation, 3, '-b', '24', '-e', '2M', '-f', '16', '--iters', '5', WEFT_COLLNET='tree',
                        WEFT_AGGD=daemon.address, WEFT_AGGD_SECRET=SECRET)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertIn('Out of bounds values : 0 OK', done.stdout)
        said = json.loads(daemon.status('--json').stdout)
        self.assertEqual((said['groups_formed'], said['groups_refused']), (3, 0))
        self.assertIn('weft_aggd_groups_formed_total 3', daemon.status('--prometheus').stdout)
        self.assertEqual(daemon.end(), 0)

    def test_garbage_and_silence_do_not_stop_it(self):
        daemon = self.start()
        silent = [daemon.connect() for _ in range(200)]
        for garbage in (b'', b'\0' * 64, b'\xff' * 5000, b'GET / HTTP/1.0\r\n\r\n', b'\x10\0\0\0' + b'wcol' + b'\x01\0\x21\0' + b'\0' * 8):
            with daemon.connect() as link:
                link.sendall(garbage)
        deadline = time.monotonic() + 30 * PATIENCE
        while (said := daemon.status()).returncode != 0 and time.monotonic() < deadline:
            pass
        self.assertEqual(said.returncode, 0, said.stderr)
        for link in silent:
            link.close()
        done = perf('all_reduce', 2, '-b', '8', '-e', '8', WEFT_COLLNET='tree', WEFT_AGGD=daemon.address, WEFT_AGGD_SECRET=SECRET)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(daemon.end(), 0)

    def test_a_wrong_secret_is_named(self):
        daemon = self.start()
        done = perf('all_reduce', 2, '-b', '8', '-e', '8', WEFT_COLLNET='tree', WEFT_AGGD=daemon.address, WEFT_AGGD_SECRET=OTHER)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn('WEFT_AGGD_SECRET', done.stderr)
        asked = daemon.status(secret=OTHER)
        self.assertEqual(asked.returncode, 2)
        self.assertIn('another secret', asked.stderr)

    def test_no_daemon_there(self):
        done = perf('all_reduce', 2, '-b', '8', '-e', '8', WEFT_COLLNET='tree', WEFT_AGGD='127.0.0.1:1', WEFT_AGGD_SECRET=SECRET)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn('127.0.0.1:1', done.stderr)

    def after_its_daemon_is_killed(self, *arguments, **settings):
        """The job's exit status, what it printed on stderr, and the daemon's address."""
        daemon = self.start()
        job = subprocess.Popen([WEFT, 'perf', 'all_reduce', '-n', '2', '--algo', 'collnet', '-b', '1M', '-e', '1M', *arguments],
                               env={**CLEAN, 'WEFT_COLLNET': 'tree', 'WEFT_AGGD': daemon.address, 'WEFT_AGGD_SECRET': SECRET, **settings},
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(job.communicate)
        self.addCleanup(job.terminate)
        deadline = time.monotonic() + 30 * PATIENCE
        while json.loads(daemon.status('--json').stdout)['groups_formed'] < 1 and time.monotonic() < deadline:
            time.sleep(0.1)
        time.sleep(1)
        daemon.end(signal.SIGKILL)
        _, errors = job.communicate(timeout=60 * PATIENCE)
        return job.returncode, errors, daemon.address

    def test_a_daemon_that_is_killed_ends_its_ranks_by_name(self):
        status, errors, address = self.after_its_daemon_is_killed('--iters', '1000000')
        self.assertNotEqual(status, 0)
        self.assertIn(f'the aggregation daemon {address} is gone', errors)

    def test_it_has_one_default_port_wherever_it_is_named(self):
        """By its help, in the manual, the unit and the advice of weft doctor."""
        port, = set(re.findall(r'\d+(?:\.\d+){3}:(\d+)', subprocess.run([AGGD, '--help'], env=CLEAN, capture_output=True, text=True, check=True, timeout=30).stdout))
        top = pathlib.Path(__file__).resolve().parents[2]
        files = [*top.glob('docs/*.md'), *top.glob('packaging/man/*'), *top.glob('packaging/systemd/*'), top / 'tools' / 'doctor' / 'settings.cc']
        named = {(str(file), found) for file in files
                 for found in re.findall(r'(?:AGGD=|AGGD_LISTEN=|weft-aggd --listen )[\w.]+:(\d+)|(?:weft-aggd.{0,9}|on) port (\d{4,})', file.read_text()) for found in found if found}
        self.assertGreaterEqual(len(named), 4)
        self.assertEqual({found for _, found in named}, {port}, named)

    def test_without_a_secret_it_serves_this_host_alone(self):
        own = pathlib.Path(__file__).resolve().parents[1] / 'unit' / 'in_own_network'  # its port is always the same
        process = subprocess.Popen([own, AGGD], env=CLEAN, stdout=subprocess.PIPE, text=True)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        port = int(re.search(r'on port (\d+)', process.stdout.readline())[1])
        self.assertIn('WEFT_AGGD_SECRET', process.stdout.readline())
        rows = [row.split() for row in pathlib.Path(f'/proc/{process.pid}/net/tcp').read_text(encoding='ascii').splitlines()[1:]]
        self.assertEqual([row[1] for row in rows if row[3] == '0A'], [f'0100007F:{port:04X}'])
        done = subprocess.run([AGGD, '--listen', '0.0.0.0:0'], env=CLEAN, capture_output=True, text=True, check=False, timeout=30)
        self.assertEqual(done.returncode, 2)
        self.assertIn('WEFT_AGGD_SECRET', done.stderr)

    def test_options_that_cannot_be(self):
        for options, words in ((('--listen', 'nothing'), 'is not ADDRESS:PORT'), (('--secret', '@/nowhere'), 'cannot be read'),
                               (('--status', '127.0.0.1:1'), 'has 5 bytes, and 16 are the fewest'), (('--listen', '127.0.0.1:0'), 'has 5 bytes')):
            env = CLEAN if 'bytes' not in words else {**CLEAN, 'WEFT_AGGD_SECRET': 'brief'}
            done = subprocess.run([AGGD, *options], env=env, capture_output=True, text=True, check=False, timeout=30)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(words, done.stderr)


if __name__ == '__main__':
    unittest.main(argv=sys.argv[:1])
