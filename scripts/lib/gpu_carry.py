# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""A folder for scripts/gpu-check on a machine that builds nothing and reaches nobody: what was built, stripped, with the libraries that the machine
may lack."""
import os
import pathlib
import re
import shutil
import subprocess

MOST_BYTES = 50 << 20
BUILT = ('plugin/libnccl-net-weft.so', 'tests/complete/libnccl-net-weft.so', 'tools/weft', 'tools/aggd/weft-aggd', 'tests/nccl/nccl-ranks', 'tests/nccl/nccl-time', 'tests/system/gpu-memory',
         'tests/system/local/local-gpu', 'tests/softgpu/libcuda.so.1', 'tests/softgpu/libnvidia-ml.so.1', 'tests/softgpu/libcudart.so.12',
         'tests/softgpu/libcudart.so.13')
SCRIPTS = ('scripts/gpu-check', 'scripts/nccl-check', 'scripts/lib')
# Of every Linux, or of the GPU's machine.
THERE = re.compile(r'^(ld-linux.*|lib(c|m|dl|rt|pthread|resolv|util|stdc\+\+|gcc_s|cuda|cudart|nccl|nvidia-ml)\.so.*)$')


class CannotCarry(Exception):
    """What is in the way, and what to do."""


def libraries_of(file):
    """{name: path} of what it is linked with and a machine may lack."""
    done = subprocess.run(['ldd', file], capture_output=True, text=True, check=False)
    found = re.findall(r'^\s*(\S+) => (/\S+)', done.stdout, re.MULTILINE)
    return {name: path for name, path in found if not THERE.match(name)}


def copy_stripped(source, target):
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(os.path.realpath(source), target)
    shutil.copymode(source, target)
    subprocess.run(['strip', '--strip-unneeded', target], check=False, stderr=subprocess.DEVNULL)


def carry(top, build, folder):
    """What was made, in words."""
    folder = pathlib.Path(folder)
    if folder.exists() and any(folder.iterdir()):
        raise CannotCarry(f'{folder} is not empty; --carry makes a folder anew')
    if not shutil.which('strip'):
        raise CannotCarry('there is no strip (binutils), without which the folder would be too large')
    wanted = {}
    for name in BUILT:
        if (build / name).exists():
            copy_stripped(build / name, folder / 'build' / name)
            wanted.update(libraries_of(build / name))
    for name, path in wanted.items():
        copy_stripped(path, folder / 'build' / 'lib' / name)
    for name in SCRIPTS:
        if (top / name).is_dir():
            shutil.copytree(top / name, folder / name, ignore=shutil.ignore_patterns('__pycache__'))
        else:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(top / name, folder / name)
    size = sum(file.stat().st_size for file in folder.rglob('*') if file.is_file())
    if size > MOST_BYTES:
        raise CannotCarry(f'{folder} has {size >> 20} MiB, more than {MOST_BYTES >> 20}; a build with -Dbuildtype=release is smaller')
    return f'{folder}: {(size + (1 << 20) - 1) >> 20} MiB; there: python3 {folder.name}/scripts/gpu-check'
