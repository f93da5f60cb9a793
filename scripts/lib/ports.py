# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""A TCP port for a program that takes a number and listens a moment later."""
import random
import socket


def free_port():
    """Below the range that the kernel hands out by itself (ip(7), ip_local_port_range), so no connection takes it meanwhile."""
    while True:
        port = random.randrange(10000, 30000)
        with socket.socket() as probe:
            try:
                probe.bind(('127.0.0.1', port))
                return port
            except OSError:
                continue
