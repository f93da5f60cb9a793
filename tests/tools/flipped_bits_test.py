#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""Bits that flip between two hosts, where no checksum of the network sees it: WEFT_CHECKSUM does, and says where.

usage: tests/unit/in_own_network flipped_bits_test.py WEFT

Between two hosts, network namespaces, stands a third party that ends every TCP connection and goes on with one of its own:
towards each host it has the other one's address. So what it changes has good checksums on both sides.
"""
import ctypes
import multiprocessing
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'perf'))
import check_hosts

WEFT = sys.argv[1]
ADDRESSES = ('10.83.0.1', '10.83.0.2')
PORTS_EACH = 8  # of a run, which has its own: what one has left need not be free
PATIENCE = 60
NEW_NET = 0x40000000


def setUpModule():
    for host in range(2):
        for name in (f'host{host}', f'between{host}'):
            check_hosts.ip('netns', 'add', name)
            check_hosts.ip('-n', name, 'link', 'set', 'lo', 'up')
        check_hosts.ip('link', 'add', 'net0', 'netns', f'host{host}', 'type', 'veth', 'peer', 'name', 'net0', 'netns', f'between{host}')
        for name, address in ((f'host{host}', ADDRESSES[host]), (f'between{host}', ADDRESSES[1 - host])):
            check_hosts.ip('-n', name, 'addr', 'add', f'{address}/24', 'dev', 'net0')
            check_hosts.ip('-n', name, 'link', 'set', 'net0', 'up')


def tearDownModule():
    for host in range(2):
        for name in (f'host{host}', f'between{host}'):
            subprocess.run(['ip', 'netns', 'del', name], check=False, timeout=30)


class ThirdParty:
    """Sockets stay in the namespace in which they were made; a thread may be in one of its own."""
    libc = ctypes.CDLL(None, use_errno=True)


    def __init__(self, flip_at, ports, flipped):
        self.ports = ports
        self.flip_at = flip_at  # byte of a connection's stream in which a bit flips; 0: none
        self.flipped = flipped
        self.namespaces = [os.open(f'/run/netns/between{host}', os.O_RDONLY) for host in range(2)]
        self.listeners = []
        for host in range(2):
            maker = threading.Thread(target=self.listen, args=(host,))
            maker.start()
            maker.join()

    def enter(self, host):
        if self.libc.setns(self.namespaces[host], NEW_NET) != 0:
            raise OSError(ctypes.get_errno(), 'setns')

    def listen(self, host):
        self.enter(host)
        for port in self.ports:
            listener = socket.create_server((ADDRESSES[1 - host], port), backlog=64)
            self.listeners.append(listener)
            threading.Thread(target=self.accept, args=(listener, host, port), daemon=True).start()

    def accept(self, listener, host, port):
        self.enter(1 - host)
        while True:
            near = listener.accept()[0]
            far = self.connect(host, port)
            far.settimeout(None)
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=self.carry, args=(one, other), daemon=True).start()

    @staticmethod
    def connect(host, port):
        """A rank that dials has come to a listener; the one that is meant may not be there yet."""
        for _ in range(200):
            try:
                return socket.create_connection((ADDRESSES[1 - host], port), timeout=5)
            except OSError:
                time.sleep(0.05)
        raise TimeoutError(f'nobody listens at port {port}')

    def carry(self, one, other):
        passed = 0
        try:
            while data := one.recv(1 << 16):
                if self.flip_at and passed <= self.flip_at < passed + len(data):
                    data = bytearray(data)
                    data[self.flip_at - passed] ^= 1
                    with self.flipped.get_lock():
                        self.flipped.value += 1
                passed += len(data)
                other.sendall(data)
            other.shutdown(socket.SHUT_WR)
        except OSError:
            pass


def be_third_party(flip_at, ports, ready, flipped):
    third = ThirdParty(flip_at, ports, flipped)
    assert len(third.listeners) == 2 * PORTS_EACH, 'a port is in use'
    ready.set()
    threading.Event().wait()


class FlippedBitsTest(unittest.TestCase):
    runs = 0

    def run_job(self, flip_at, **settings):
        """(exit statuses, what rank 0 measured, what both said, bits that flipped)"""
        FlippedBitsTest.runs += 1
        ports = range(20000 + PORTS_EACH * self.runs, 20000 + PORTS_EACH * (self.runs + 1))  # the last one is the launcher's
        ready, flipped = multiprocessing.Event(), multiprocessing.Value('i', 0)
        third = multiprocessing.Process(target=be_third_party, args=(flip_at, ports, ready, flipped))
        third.start()
        self.addCleanup(lambda: (third.kill(), third.join()))
        self.assertTrue(ready.wait(PATIENCE))
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        command = [WEFT, 'perf', 'sendrecv', '-b', '1M', '-e', '1M', '--iters', '20', '-w', '2', '--json', '-']
        common = {**os.environ, 'WORLD_SIZE': '2', 'WEFT_TOKEN': '0123456789abcdef0123456789abcdef', 'MASTER_ADDR': ADDRESSES[0], 'MASTER_PORT': str(ports[-1]), 'WEFT_PROVIDER': 'tcp',
                  'WEFT_PORT_RANGE': f'{ports[0]}-{ports[-2]}', **settings}
        ranks = [subprocess.Popen(check_hosts.on_host(rank, folder.name, command), env={**common, 'RANK': str(rank)},
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for rank in range(2)]
        try:
            done = [rank.communicate(timeout=PATIENCE) for rank in ranks]
        finally:
            for rank in ranks:
                rank.kill()
        return [rank.returncode for rank in ranks], done[0][0], done[0][1] + done[1][1], flipped.value

    def test_whole_bytes_pass(self):
        statuses, _, said, flipped = self.run_job(0, WEFT_CHECKSUM='all')
        self.assertEqual((statuses, flipped), ([0, 0], 0), said)
        self.assertNotIn('is not what was sent', said)

    def test_a_flipped_bit_is_found_and_its_place_is_said(self):
        statuses, _, said, flipped = self.run_job(3_300_000, WEFT_CHECKSUM='all')
        self.assertGreater(flipped, 0)
        self.assertNotEqual(statuses, [0, 0])
        self.assertRegex(said, r"checking a message's bytes: tag \d+, message [1-9]\d* of \d+ bytes from rank [01] on \S+ pid \d+ "
                               r'\(10\.83\.0\.[12]\) over rail net0 is not what was sent: its bytes from \d+ to \d+ differ, in 1 of 16 parts')

    def test_nobody_looks_where_that_is_off(self):
        _, _, said, flipped = self.run_job(3_300_000, WEFT_CHECKSUM='off')
        self.assertGreater(flipped, 0)
        self.assertNotIn('is not what was sent', said)


if __name__ == '__main__':
    unittest.main(argv=sys.argv[:1])
