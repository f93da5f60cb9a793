#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""usage: check_world.py SIMULATE SEEDS_FILE SECONDS

Runs the kept seeds twice each, then new ones for so many seconds. The commit gives the first new seed, so that a commit's
run can be had again and each commit sees others.
"""
import pathlib
import subprocess
import sys


def kept(path):
    """The arguments for each kept seed: a line is a seed, maybe options, and after # why it is kept."""
    for line in path.read_text().splitlines():
        words = line.partition('#')[0].split()
        if words:
            yield ['--seed', *words]


def first_new_seed(folder):
    found = subprocess.run(['git', '-C', str(folder), 'rev-parse', 'HEAD'], capture_output=True, text=True, check=False)
    return int(found.stdout[:12], 16) if found.returncode == 0 else 1


def main():
    simulate, seeds, seconds = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3]
    for arguments in kept(seeds):
        print('kept:', *arguments, flush=True)
        if subprocess.run([simulate, *arguments, '--twice'], check=False).returncode != 0:
            return 1
    first = first_new_seed(seeds.parent)
    print('new seeds from', first, flush=True)
    return subprocess.run([simulate, '--seed', str(first), '--seconds', seconds], check=False).returncode


sys.exit(main())
