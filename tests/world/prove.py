#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""usage: prove.py [--seeds N] [--first SEED] [--copy FOLDER] [FAULT...]

Shows that the world finds faults: puts each of tests/world/faults/*.patch, or those that are named, into a copy of this
commit's sources, builds it there, and runs the seed that its "Seed:" line names, or seeds from --first on until one fails, with the
options of simulate on its "Worlds:" line.
Prints a line a fault: the seed, how many it took, and what was said. Exit status 1: one was not found. The patches are faults that weft had, or that a repair of it keeps out.
"""
import argparse
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

TOP = pathlib.Path(__file__).resolve().parents[2]
FAULTS = TOP / 'tests/world/faults'


def run(*command, **options):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, **options)


def must(*command, **options):
    done = run(*command, **options)
    if done.returncode != 0:
        sys.exit(f'{" ".join(map(str, command))}:\n{done.stdout[-3000:]}{done.stderr[-3000:]}')
    return done


def prepare(copy):
    """A copy of HEAD that builds the world alone."""
    copy.mkdir(parents=True, exist_ok=True)
    archive = subprocess.Popen(['git', '-C', str(TOP), 'archive', 'HEAD'], stdout=subprocess.PIPE)
    must('tar', '-x', '-C', copy, stdin=archive.stdout)
    if archive.wait() != 0:
        sys.exit('git archive failed')
    if not (copy / 'build/build.ninja').exists():
        must('meson', 'setup', copy / 'build', copy, '-Dbuildtype=plain', '-Doptimization=1', '-Dunity=on',
             '-Dunity_size=1000', '-Dtests=enabled', '-Dtools=disabled', '-Dofi=disabled', '-Dverbs=disabled')


def simulate(copy, first, seeds, last, options=()):
    must('ninja', '-C', copy / 'build', 'tests/world/simulate')
    found = run(copy / 'build/tests/world/simulate', '--seed', first, '--seeds', seeds, *options, timeout=last)
    if found.returncode == 0:
        return None
    failed = re.search(r'^seed (\d+) failed: (.*)$', found.stdout, re.MULTILINE)
    if failed:
        return int(failed[1]), failed[2]
    return int(first), f'it ended with {found.returncode}: {found.stderr.strip()[-200:]}'


def prove(copy, patch, first, seeds):
    must('patch', '-p1', '-s', '-i', patch, cwd=copy)
    try:
        text = patch.read_text()
        known = re.search(r'^Seed: (\d+)$', text, re.MULTILINE)
        options = re.search(r'^Worlds: (.+)$', text, re.MULTILINE)
        options = shlex.split(options[1]) if options else []
        found = simulate(copy, known[1], 1, 600, options) if known else None
        if found:
            print(f'{patch.stem}: its seed {found[0]}: {found[1]}', flush=True)
            return True
        found = simulate(copy, first, seeds, 1200, options)
    finally:
        must('patch', '-p1', '-s', '-R', '-i', patch, cwd=copy)
    if not found:
        print(f'{patch.stem}: NOT FOUND in {seeds} seeds', flush=True)
        return False
    print(f'{patch.stem}: seed {found[0]}, the {found[0] - first + 1}. from {first}: {found[1]}', flush=True)
    return True


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument('--seeds', type=int, default=1000)
    options.add_argument('--first', type=int, default=1)
    options.add_argument('--copy', type=pathlib.Path)
    options.add_argument('faults', nargs='*')
    arguments = options.parse_args()
    patches = [path for path in sorted(FAULTS.glob('*.patch')) if not arguments.faults or path.stem in arguments.faults]
    with tempfile.TemporaryDirectory() as temporary:
        copy = arguments.copy or pathlib.Path(temporary) / 'weft'
        prepare(copy)
        if wrong := simulate(copy, arguments.first, arguments.seeds, 1200):
            sys.exit(f'nothing was put back, and seed {wrong[0]} fails: {wrong[1]}')
        found = [prove(copy, patch, arguments.first, arguments.seeds) for patch in patches]
    print(f'{sum(found)} of {len(found)} found')
    return 0 if all(found) else 1


if __name__ == '__main__':
    sys.exit(main())
