#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""usage: check_world.py SIMULATE SEEDS_FILE COUNT

Runs the kept seeds twice each, where COUNT is not small, then the seeds from 1 to COUNT, half of them over tcp and over shared memory too, and an eighth with collective groups, by daemons too. All of them are the same in each run of the tests, so that
none of it fails by chance; scripts/simulate draws new ones. At last some of them run one after the other, and each in a process of
its own: they must be the same runs.
"""
import pathlib
import re
import subprocess
import sys


def kept(path):
    """The arguments for each kept seed: a line is a seed, maybe options, and after # why it is kept."""
    for line in path.read_text().splitlines():
        words = line.partition('#')[0].split()
        if words:
            yield ['--seed', *words]


def hash_of(simulate, *arguments):
    """Of all that happened in those worlds; None: something did not hold."""
    said = subprocess.run([simulate, *arguments], check=False, capture_output=True, text=True).stdout
    found = re.search(r'hash ([0-9a-f]{16})', said)
    print(said, end='' if found else '\n', flush=True)
    return int(found[1], 16) if found else None


def same_alone(simulate, count, *arguments):
    """Whether seeds that run one after the other are the runs that they are in processes of their own."""
    print('seeds 1 to', count, 'alone and after each other', *arguments, flush=True)
    alone = 0
    for seed in range(1, count + 1):
        one = hash_of(simulate, '--seed', str(seed), *arguments)
        if one is None:
            return False
        alone = (alone * 31 + one) % 2**64  # as simulate reckons them up
    return alone == hash_of(simulate, '--seed', '1', '--seeds', str(count), *arguments)


def main():
    simulate, seeds, count = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3]
    twice = ['--twice'] if int(count) >= 100 else []
    for arguments in kept(seeds):
        print('kept:', *arguments, flush=True)
        if subprocess.run([simulate, *arguments, *twice], check=False).returncode != 0:
            return 1
    many = int(count)
    for fabric, seeds, *more in (('loop', many), ('tcp', many // 2), ('local', many // 2), ('loop', many // 8, '--groups'),
                                 ('tcp', many // 8, '--groups', '--refusals'), ('local', many // 8, '--groups', '--refusals'),
                                 ('loop', many // 8, '--daemons'), ('tcp', many // 8, '--daemons', '--refusals'), ('local', many // 8, '--daemons')):
        print('seeds 1 to', seeds, 'over', fabric, *more, flush=True)
        if subprocess.run([simulate, '--fabric', fabric, '--seeds', str(seeds), *more], check=False).returncode != 0:
            return 1
    for fabric, *more in (('loop', '--groups'), ('tcp', '--groups'), ('local', '--groups'), ('tcp', '--daemons')):
        if not same_alone(simulate, min(many // 20, 20), '--fabric', fabric, '--refusals', *more):
            print('a seed that runs after others is another run than alone')
            return 1
    return 0


sys.exit(main())
