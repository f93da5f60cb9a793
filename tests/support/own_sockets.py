# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""How weft names libfabric's own code over sockets: `net` in 1.x, and from 2.0 on what `tcp` means."""
import ctypes


def fabric():
    """Asks the library that the tests' processes will open."""
    version = ctypes.CDLL('libfabric.so.1').fi_version  # major and minor in 16 bits each
    version.restype = ctypes.c_uint32
    return 'ofi:tcp' if version() >> 16 >= 2 else 'ofi:net'
