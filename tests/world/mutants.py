#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""usage: mutants.py [--count N] [--seed S] [--room FOLDER]... [--only FILE:LINE:COLUMN] [--worlds N] [--copy FOLDER] [--jobs N] [--minutes T] [--known FILE]

How much the tests see. Draws changes of one comparison, one boolean, one && or ||, or one +1 or -1 of src/core, src/control,
providers/tcp and src/coll, and weaves all of them into a copy of this commit, which is built once: WEFT_MUTANT says which of them
is on (mutant.inc). What does not compile is dropped. A first run shows which programs reach which mutant; then, for each mutant,
those that reach it run, the quick ones first, until one fails or hangs: unit and protocol tests, the parts of the world, N worlds
over each fabric, without groups, with them, and with daemons, and three times as many more where nothing else has found it. A failure of programs that use the time of day counts
if it comes twice. A line for each mutant says which found it. Those that nothing finds are to be looked at: some change nothing
that can be seen, the others lack a case or an oracle. The same seed draws the same mutants, and --known FILE takes the
results of those that an earlier run has printed there.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass

from mutant_places import places, weave

TOP = pathlib.Path(__file__).resolve().parents[2]
ROOMS = ['src/core', 'src/control', 'providers/tcp', 'src/coll']
SUITES = {'unit', 'protocol', 'world'}
WORLDS = [['--fabric', fabric, *more] for more in ([], ['--groups', '--refusals'], ['--daemons']) for fabric in ('loop', 'tcp', 'local')]
NOT_RUN = {'world', 'world-quiet'}  # the worlds run by their seeds
MARKS = 1 << 16  # mutant.inc


@dataclass
class Program:
    name: str
    command: list
    environment: dict
    again: bool  # it uses the time of day, so what fails once may hold the next time
    last: bool = False  # only for what nothing else has found
    takes: float = 0
    reaches: frozenset = frozenset()

    def runs(self, limit, **environment):
        """None: it ended well. Otherwise how it ended."""
        try:
            done = subprocess.run(self.command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, timeout=limit,
                                  check=False, env={**os.environ, **self.environment, **environment})
        except subprocess.TimeoutExpired:
            return 'hangs'
        return None if done.returncode == 0 else 'fails'


class Copy:
    """The commit with mutants in it, and its build."""

    def __init__(self, folder):
        self.folder = folder
        self.build = folder / 'build'
        self.originals = {}

    def prepare(self):
        if (self.build / 'build.ninja').exists():  # of an earlier run; its sources are taken anew
            subprocess.run(['find', str(self.folder / 'src'), str(self.folder / 'providers'), '-delete'], check=True)
        self.folder.mkdir(parents=True, exist_ok=True)
        archive = subprocess.Popen(['git', '-C', str(TOP), 'archive', 'HEAD'], stdout=subprocess.PIPE)
        subprocess.run(['tar', '-x', '-m', '-C', str(self.folder)], stdin=archive.stdout, check=True)
        if archive.wait() != 0:
            sys.exit('git archive failed')
        if (self.build / 'build.ninja').exists():
            return
        include = f'-include {TOP / "tests/world/mutant.inc"} -w -D_GLIBCXX_ASSERTIONS'  # an index that is off by one ends the program
        subprocess.run(['meson', 'setup', str(self.build), str(self.folder), '-Dbuildtype=plain', '-Doptimization=1', '-Dunity=on', '-Dunity_size=40',
                        '-Dtests=enabled', '-Dtools=disabled', '-Dofi=disabled', '-Dverbs=disabled', f'-Dcpp_args={include}'],
                       check=True, stdout=subprocess.DEVNULL, env={**os.environ, **({'CXX_LD': 'mold'} if shutil.which('mold') else {})})

    def put(self, path, mutants):
        file = self.folder / path
        text = self.originals.setdefault(path, file.read_text())
        file.write_text(weave(text, mutants))

    def introspect(self, what):
        return json.loads(subprocess.run(['meson', 'introspect', what, str(self.build)], capture_output=True, check=True).stdout)

    def ninja(self, targets):
        """What the compiler said, where something did not build."""
        done = subprocess.run(['ninja', '-C', str(self.build), '-k', '0', *targets], capture_output=True, text=True, check=False)
        return done.stdout if done.returncode else ''


def programs(copy, worlds):
    """What is run, and what has to be built for it."""
    outputs = {target['id']: target['filename'] for target in copy.introspect('--targets')}
    found, needed = [], []
    for test in copy.introspect('--tests'):
        suites = {suite.rpartition(':')[2] for suite in test['suite']}
        if not suites & SUITES or test['name'] in NOT_RUN:
            continue
        direct = len(test['cmd']) == 1 and test['cmd'][0].startswith(str(copy.build))
        found.append(Program(test['name'], test['cmd'] + ['--abort'] * direct, test['env'], 'world' not in suites))
        needed += [name for target in test['depends'] for name in outputs[target]]
    simulate = str(copy.build / 'tests/world/simulate')
    for kind in WORLDS:
        for first, seeds, last in ((1, worlds, False), (1001, 3 * worlds, True)):
            name = f'{seeds} worlds with {" ".join(kind)}'
            found.append(Program(name, [simulate, *kind, '--seed', str(first), '--seeds', str(seeds)], {}, False, last))
    wanted = {word for program in found for word in program.command if word.startswith(str(copy.build))} | set(needed)
    return found, sorted(os.path.relpath(name, copy.build) for name in wanted)


def blamed(said, mutants):
    """The mutants of the lines that the compiler does not take; otherwise those of lines that it speaks of."""
    by_line = {}
    for mutant in mutants:
        by_line.setdefault((mutant[1].path, mutant[1].line), []).append(mutant)
    spoken = [[], []]
    for line in said.splitlines():
        for path, number in re.findall(r'((?:src|providers)/[\w/]+\.(?:cc|h)):(\d+)', line):
            spoken[0 if 'error:' in line else 1].append((path, int(number)))
    for away in (0, 1, 2, 3):
        for lines in spoken:
            hits = [mutant for path, number in set(lines) for near in {number - away, number + away} for mutant in by_line.get((path, near), [])]
            if hits:
                return hits
    return []


def build(copy, mutants, targets):
    """Drops what does not compile."""
    fresh = {mutant[1].path for mutant in mutants}
    while True:
        for path in fresh:
            copy.put(path, [mutant for mutant in mutants if mutant[1].path == path])
        said = copy.ninja(targets)
        if not said:
            return mutants
        wrong = blamed(said, mutants)
        if not wrong and all(re.match('mold|collect2|.*ld: ', line) for line in said.splitlines() if 'error: ' in line):
            return mutants  # some programs want providers that are not built
        if not wrong:
            sys.exit(f'it does not build, and no mutant is blamed for it:\n{said[-3000:]}')
        print(f'{len(wrong)} do not compile: {", ".join(str(mutant[1]) for mutant in wrong)}', flush=True)
        mutants = [mutant for mutant in mutants if mutant not in wrong]
        fresh = {mutant[1].path for mutant in wrong}


def measure(program, marks):
    """How long it takes, and what it reaches. False: it fails without a mutant."""
    marks.write_bytes(bytes(MARKS))
    for _ in range(3 if program.again else 1):
        began = time.monotonic()
        how = program.runs(900, WEFT_MUTANT_REACHED=str(marks))
        program.takes = time.monotonic() - began
        if not how:
            break
    program.reaches = frozenset(number for number, mark in enumerate(marks.read_bytes()) if mark)
    if how:
        print(f'left out, as it {how} without a mutant: {program.name}', flush=True)
    return how is None


def measure_all(found, folder, jobs):
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        good = list(pool.map(lambda one: measure(one[1], folder / f'reached{one[0]}'), enumerate(found)))
    return sorted((program for program, holds in zip(found, good) if holds), key=lambda program: (program.last, program.takes))


def finder(number, found):
    """Which program finds that mutant, and how; None: none. Also how many have reached it."""
    reaching = [program for program in found if number in program.reaches]
    for program in reaching:
        limit = 20 + 8 * program.takes
        how = program.runs(limit, WEFT_MUTANT=str(number))
        if how and program.again:
            how = program.runs(limit, WEFT_MUTANT=str(number))
        if how:
            return f'{program.name} {how}', len(reaching)
    return None, len(reaching)


def draw(arguments, copy):
    everywhere = list(places(copy.folder, arguments.room or ROOMS))
    print(f'{len(everywhere)} places', flush=True)
    if arguments.only:
        chosen = [place for place in everywhere if str(place) == arguments.only]
    else:
        chosen = random.Random(arguments.seed).sample(everywhere, min(len(everywhere), arguments.count))
    choice = random.Random(arguments.seed)
    return [(number + 1, place, choice.choice(place.others)) for number, place in enumerate(chosen)]


def known_results(file):
    """Whether it was found, by place."""
    lines = file.read_text().splitlines() if file else []
    hits = (re.match(r'(\S+:\d+:\d+): ".*": (found|NOT FOUND)', line) for line in lines)
    return {hit[1]: hit[2] == 'found' for hit in hits if hit}


def run(arguments, copy):
    end = time.monotonic() + 60 * arguments.minutes
    copy.prepare()
    found, targets = programs(copy, arguments.worlds)
    began = time.monotonic()
    mutants = build(copy, draw(arguments, copy), targets)
    print(f'built in {time.monotonic() - began:.0f} s', flush=True)
    began = time.monotonic()
    found = measure_all([program for program in found if pathlib.Path(program.command[0]).exists()], copy.folder, arguments.jobs)
    for program in found:
        print(f'  {program.takes:6.1f} s, reaches {len(program.reaches):3}: {program.name}')
    print(f'{len(found)} programs, {time.monotonic() - began:.0f} s', flush=True)

    known = known_results(arguments.known)

    def one(mutant):
        if time.monotonic() > end:
            return None
        number, place, other = mutant
        by, reaching = finder(number, found)
        result = f'found: {by}' if by else f'NOT FOUND by {reaching} that reach it'
        line = copy.originals[place.path].splitlines()[place.line - 1].strip()
        print(f'{place}: "{place.what.strip()}" -> "{other}": {result}: {line}', flush=True)
        return by is not None

    mutants = [mutant for mutant in mutants if str(mutant[1]) not in known]
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        results = list(known.values()) + [result for result in pool.map(one, mutants) if result is not None]
    print(f'{sum(results)} of {len(results)} found')


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument('--count', type=int, default=110)
    options.add_argument('--seed', type=int, default=1)
    options.add_argument('--minutes', type=float, default=1e9)
    options.add_argument('--room', action='append')
    options.add_argument('--copy', type=pathlib.Path)
    options.add_argument('--only')
    options.add_argument('--known', type=pathlib.Path)
    options.add_argument('--worlds', type=int, default=15)
    options.add_argument('--jobs', type=int, default=2)
    arguments = options.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        run(arguments, Copy(arguments.copy or pathlib.Path(temporary) / 'weft'))


if __name__ == '__main__':
    main()
