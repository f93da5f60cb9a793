# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""`python -m weft path` prints what NCCL_NET_PLUGIN has to be; anything else is handed to the weft command."""
import os
import pathlib
import sys

import weft


def become(name):
    """This process goes on as that program of the package."""
    program = str(pathlib.Path(__file__).resolve().parent / name)
    try:
        os.execv(program, [name, *sys.argv[1:]])
    except OSError as error:
        print(f'{name}: {program} does not start: {error}; it needs glibc 2.35 or later on the processor it was built for',
              file=sys.stderr)
        return 1


def command():
    if sys.argv[1:] == ['path']:
        print(weft.path())
        return 0
    return become('weft')


def daemon():
    return become('weft-aggd')


if __name__ == '__main__':
    sys.exit(command())
