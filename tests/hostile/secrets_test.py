#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""No tool prints a secret, and what a stranger does to a run from outside is refused.

usage: secrets_test.py WEFT AGGD
"""
import os
import re
import socket
import subprocess
import sys
import tempfile
import unittest

WEFT, AGGD = sys.argv[1:3]
SECRET = 'plover-and-sixteen-bytes'
CLEAN = {name: value for name, value in os.environ.items()
         if not name.startswith(('WEFT_', 'NCCL_', 'SLURM_', 'OMPI_', 'PMI')) and name not in ('RANK', 'WORLD_SIZE', 'MASTER_ADDR', 'MASTER_PORT')}
CLEAN['WEFT_CONF'] = ''
PATIENCE = 60


def run(*words, **settings):
    return subprocess.run(words, env={**CLEAN, **settings}, capture_output=True, text=True, check=False, timeout=PATIENCE)


class SecretsTest(unittest.TestCase):
    def test_no_tool_prints_a_secret(self):
        for words in (('info', '--json'), ('info', '--config'), ('info',), ('doctor', '--json'), ('doctor', '-v'), ('doctor', '--fix-script'),
                      ('perf', 'sendrecv', '-n', '2', '-b', '8', '-e', '8', '--iters', '2', '--json', '-'),
                      ('perf', 'sendrecv', '-n', '2', '-b', '8', '-e', '8', '--iters', '2')):
            done = run(WEFT, *words, WEFT_AGGD_SECRET=SECRET, WEFT_TOKEN=SECRET)
            self.assertNotIn(SECRET, done.stdout + done.stderr, words)
        self.assertIn('(a secret)', run(WEFT, 'info', '--config', WEFT_AGGD_SECRET=SECRET).stdout)

    def test_the_name_of_a_file_may_be_seen(self):
        self.assertIn('@/etc/weft/secret', run(WEFT, 'info', '--config', WEFT_AGGD_SECRET='@/etc/weft/secret').stdout)

    def test_a_secret_in_a_file_that_all_may_read_is_warned_of(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, 'weft.conf')
            with open(path, 'w', encoding='ascii') as file:
                file.write(f'WEFT_AGGD_SECRET = {SECRET}\n')
            os.chmod(path, 0o644)
            done = run(WEFT, 'doctor', '-v', WEFT_CONF=path)
            self.assertIn('is a secret, and every user of the host can read this file', done.stdout)
            self.assertNotIn(SECRET, done.stdout)
            secret = os.path.join(folder, 'secret')
            with open(secret, 'w', encoding='ascii') as file:
                file.write(SECRET + '\n')
            for mode, warned in ((0o644, True), (0o600, False)):
                os.chmod(secret, mode)
                done = run(AGGD, '--status', '127.0.0.1:1', '--secret', '@' + secret)
                self.assertEqual('open to other users' in done.stderr, warned, done.stderr)
                self.assertNotIn(SECRET, done.stdout + done.stderr)

    def test_no_secret_on_a_command_line(self):
        done = run(AGGD, '--listen', '127.0.0.1:0', '--secret', SECRET)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn('--secret @FILE', done.stderr)

    def test_a_file_without_a_secret_is_none(self):
        with tempfile.NamedTemporaryFile() as empty:
            done = run(AGGD, '--listen', '127.0.0.1:0', '--secret', '@' + empty.name)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn('is empty', done.stderr)

    def test_a_run_of_several_hosts_wants_a_token(self):
        done = run(WEFT, 'perf', 'sendrecv', '-b', '8', '-e', '8', RANK='0', WORLD_SIZE='2', MASTER_ADDR='192.0.2.1')
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn('WEFT_TOKEN=$(openssl rand -hex 16)', done.stderr)
        done = run(WEFT, 'perf', 'sendrecv', RANK='0', WORLD_SIZE='2', MASTER_ADDR='192.0.2.1', WEFT_TOKEN='short')
        self.assertIn('16 are the fewest', done.stderr)

    def test_a_server_prints_the_line_for_its_client_and_lets_in_nobody_else(self):
        with socket.socket() as free:
            free.bind(('127.0.0.1', 0))
            port = str(free.getsockname()[1])
        server = subprocess.Popen([WEFT, 'perf', '--server', '--port', port], env=CLEAN, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            line = server.stdout.readline()
            token, client = re.match(r'on the other host:  WEFT_TOKEN=([0-9a-f]{32}) weft perf --client (\S+) --port \d+\n', line).groups()
            self.assertTrue(client)
            to = ('perf', '--client', '127.0.0.1', '--port', port, 'pingpong', '-b', '8', '-e', '8', '--iters', '2')
            self.assertIn('the server lets in who has its token', run(WEFT, *to).stderr)
            self.assertIn('another token', run(WEFT, *to, WEFT_TOKEN='0' * 32).stderr)
            done = run(WEFT, *to, WEFT_TOKEN=token)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(server.wait(timeout=PATIENCE), 0)
        finally:
            server.kill()
            server.communicate()


if __name__ == '__main__':
    unittest.main(argv=sys.argv[:1])
