# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""The weft network plugin for NCCL, as files. Nothing of it runs in Python."""
import pathlib


def path():
    """What NCCL_NET_PLUGIN has to be."""
    return str(pathlib.Path(__file__).resolve().parent / 'libnccl-net-weft.so')
