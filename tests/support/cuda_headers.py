#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""Prints the folder of the newest cuda.h that is here; nothing where there is none.

CUDA_HOME or CUDA_PATH comes first where it is set and has one. The rest is looked for where NVIDIA's installer (/usr/local/cuda*)
and Debian's package nvidia-cuda-dev put it; none of them has to be there.
"""
import glob
import os
import re
import sys


def version_of(folder):
    """CUDA_VERSION of its cuda.h (12080 is 12.8); 0 without one."""
    try:
        with open(os.path.join(folder, 'cuda.h'), encoding='utf-8', errors='replace') as header:
            found = re.search(r'^#define\s+CUDA_VERSION\s+(\d+)', header.read(), re.MULTILINE)
    except OSError:
        return 0
    return int(found[1]) if found else 0


def below(top):
    """Where an installation at `top` may have its headers."""
    return [f'{top}/include', *sorted(glob.glob(f'{top}/targets/*/include'))]


def newest(folders):
    found = max(folders, key=version_of, default='')
    return found if found and version_of(found) else ''


def find(environment, installed='/usr/local/cuda*', packaged=('/usr/include', '/usr/lib/cuda/include')):
    named = [environment[name] for name in ('CUDA_HOME', 'CUDA_PATH') if environment.get(name)]
    of_user = newest([folder for top in named for folder in below(top)])
    return of_user or newest([folder for top in sorted(glob.glob(installed)) for folder in below(top)] + list(packaged))


if __name__ == '__main__':
    print(find(os.environ))
    sys.exit(0)
