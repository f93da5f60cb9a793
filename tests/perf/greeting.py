# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""How a rank introduces itself to rank 0 of `weft perf` (tools/netdriver/greeting.h), for tests that stand in for one."""
import hashlib
import hmac
import os
import socket
import struct

MAGIC = 0x776566747065726b


def mac_of(key, said):
    return hmac.new(key, said, hashlib.sha256).digest()


def key_of(token):
    """HKDF without a salt, of one block (RFC 5869)."""
    return mac_of(mac_of(bytes(32), token.encode()), b'weft run token\x01')


def greet(link, rank, size, token=''):
    """(rank, size, verdict) of the answer."""
    opening = link.recv(24, socket.MSG_WAITALL)
    assert struct.unpack('<Q', opening[:8])[0] == MAGIC
    hello = struct.pack('<Qiii64si', MAGIC, rank, size, 4711, b'node7', 0) + os.urandom(16)
    label = b'weft run, caller'
    link.sendall(hello + mac_of(key_of(token), struct.pack('<H', len(label)) + label + opening + hello)[:16])
    answer = link.recv(128, socket.MSG_WAITALL)
    magic, from_rank, from_size = struct.unpack('<Qii', answer[:16])
    assert magic == MAGIC
    return from_rank, from_size, struct.unpack('<i', answer[104:108])[0]
