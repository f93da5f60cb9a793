# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""How a rank introduces itself to rank 0 of `weft perf` (tools/netdriver/greeting.h), for tests that stand in for one."""
import os
import socket
import struct

MAGIC = 0x776566747065726a
MASK = (1 << 64) - 1


def rotated(value, bits):
    return (value << bits | value >> (64 - bits)) & MASK


def sip_hash_128(key, message):
    """SipHash-2-4 with 128 bits (Aumasson and Bernstein, 2012)."""
    k0, k1 = struct.unpack('<QQ', key)
    v = [k0 ^ 0x736f6d6570736575, k1 ^ 0x646f72616e646f6d ^ 0xee, k0 ^ 0x6c7967656e657261, k1 ^ 0x7465646279746573]

    def rounds(count):
        for _ in range(count):
            v[0] = (v[0] + v[1]) & MASK
            v[2] = (v[2] + v[3]) & MASK
            v[1] = rotated(v[1], 13) ^ v[0]
            v[3] = rotated(v[3], 16) ^ v[2]
            v[0] = rotated(v[0], 32)
            v[2] = (v[2] + v[1]) & MASK
            v[0] = (v[0] + v[3]) & MASK
            v[1] = rotated(v[1], 17) ^ v[2]
            v[3] = rotated(v[3], 21) ^ v[0]
            v[2] = rotated(v[2], 32)

    tail = message[len(message) // 8 * 8:]
    last = int.from_bytes(tail, 'little') | (len(message) & 0xff) << 56
    for word in (*struct.unpack(f'<{len(message) // 8}Q', message[:len(message) // 8 * 8]), last):
        v[3] ^= word
        rounds(2)
        v[0] ^= word
    v[2] ^= 0xee
    rounds(4)
    low = v[0] ^ v[1] ^ v[2] ^ v[3]
    v[1] ^= 0xdd
    rounds(4)
    return struct.pack('<QQ', low, v[0] ^ v[1] ^ v[2] ^ v[3])


def key_of(token):
    return sip_hash_128(b'weft'.ljust(16, b'\0'), token.encode())


def greet(link, rank, size, token=''):
    """(rank, size, verdict) of the answer."""
    opening = link.recv(24, socket.MSG_WAITALL)
    assert struct.unpack('<Q', opening[:8])[0] == MAGIC
    hello = struct.pack('<Qiii64si', MAGIC, rank, size, 4711, b'node7', 0) + os.urandom(16)
    label = b'weft run, caller'
    link.sendall(hello + sip_hash_128(key_of(token), struct.pack('<H', len(label)) + label + opening + hello))
    answer = link.recv(128, socket.MSG_WAITALL)
    magic, from_rank, from_size = struct.unpack('<Qii', answer[:16])
    assert magic == MAGIC
    return from_rank, from_size, struct.unpack('<i', answer[104:108])[0]
