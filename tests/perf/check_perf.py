#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""Runs `weft perf` and demands that every size was moved and every element was right.

usage: check_perf.py WEFT OPERATION PROCESSES MAXBYTES [--smallest BYTES] [--factor F] [--types TYPE] [--ops OP] [--provider SPEC] [-- OPTION...]

Sizes go from 8 bytes (or --smallest) to MAXBYTES by factors of F (2), for each of the types and reductions ("all": every one that
must be there). Few iterations, the command's own number with WEFT_TEST_FULL=1. What follows -- goes to the command.
Without --provider the network is the one weft chooses. With a provider under injected faults every rule must
have hit while works were unfinished, or nothing was shown.
"""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile

BYTES = {'float': 4, 'half': 2, 'bfloat16': 2, 'double': 8, 'int8': 1, 'uint8': 1, 'int32': 4, 'uint32': 4, 'int64': 8, 'uint64': 8}
IN_PARTS = ('all_gather', 'reduce_scatter', 'alltoall')  # one for every rank
OUT_OF_PLACE_ONLY = ('alltoall', 'sendrecv', 'pingpong', 'msgrate', 'put', 'put_signal', 'get')
REDUCTIONS = ['sum', 'prod', 'max', 'min']


def expected_rows(options):
    """(bytes, type, reduction) of every row there must be, in order."""
    types = list(BYTES) if options.types == 'all' else [options.types]
    ops = REDUCTIONS if options.ops == 'all' else [options.ops]
    if options.operation not in ('all_reduce', 'reduce_scatter'):
        ops = ['none']
    parts = options.processes if options.operation in IN_PARTS else 1
    rows, size = [], options.smallest
    while size <= options.maxbytes:
        rows += [(size // BYTES[kind] // parts * parts * BYTES[kind], kind, op) for kind in types for op in ops]
        size *= options.factor
    return rows


def command_of(options, results):
    few = [] if os.environ.get('WEFT_TEST_FULL') == '1' else ['--iters', '3', '-w', '1']
    return [options.weft, 'perf', options.operation, '-n', str(options.processes), '-b', str(options.smallest),
            '-e', str(options.maxbytes), '-f', str(options.factor), '-d', options.types, '-o', options.ops,
            '-c', '1', '-v', '--json', results, *few, *options.extra]


def complaints(document, options):
    rows = document['results']
    measured = [(row['bytes'], row['type'], row['redop']) for row in rows]
    if measured != expected_rows(options):
        yield f'measured were {measured}'
    for row in rows:
        for place in ('out_of_place', 'in_place'):
            if not row[place]:
                if place == 'out_of_place' or options.operation not in OUT_OF_PLACE_ONLY:
                    yield f'nothing measured at {row["bytes"]} bytes, {place}'
                continue
            if row[place]['wrong'] != 0:
                yield f'{row[place]["wrong"]} wrong elements at {row["bytes"]} bytes, {place}'
    if document['conditions']['check'] != 1:
        yield 'the elements were not verified'


def fault_complaints(log, rules):
    """The plugin's own counts, one line a rule and rank, against the number of rules asked for."""
    pattern = r'fault (\w+) on (\w+) hit (\d+) of \d+, with (\d+) works'
    hits = {}
    for kind, operation, count, works in re.findall(pattern, log):
        total = hits.setdefault(f'{kind} on {operation}', [0, 0])
        total[0] += int(count)
        total[1] += int(works)
    for rule, (count, works) in hits.items():
        print(f'{rule}: {count} hits with {works} works unfinished')
        if not count or not works:
            yield f'{rule} hit nothing: {count} times, {works} works unfinished'
    if len(hits) != rules:
        yield f'{rules} rules of faults were asked for, {len(hits)} reported'


def main(arguments):
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument('--provider')
    parser.add_argument('--smallest', type=int, default=8)
    parser.add_argument('--factor', type=int, default=2)
    parser.add_argument('--types', default='float')
    parser.add_argument('--ops', default='sum')
    parser.add_argument('weft')
    parser.add_argument('operation')
    parser.add_argument('processes', type=int)
    parser.add_argument('maxbytes', type=int)
    extra = arguments.index('--') if '--' in arguments else len(arguments)
    options = parser.parse_args(arguments[:extra])
    options.extra = arguments[extra + 1:]
    environment = {name: value for name, value in os.environ.items() if name != 'WEFT_PROVIDER'}
    if options.provider:
        environment['WEFT_PROVIDER'] = options.provider
    with tempfile.TemporaryDirectory() as folder:
        results = os.path.join(folder, 'results.json')
        run = subprocess.run(command_of(options, results), env=environment, check=False, stderr=subprocess.PIPE, text=True)
        sys.stderr.write(run.stderr)
        status = run.returncode
        if status != 0:
            print(f'FAILED: weft perf ended with status {status}')
            return 1
        with open(results, encoding='utf-8') as file:
            wrong = list(complaints(json.load(file), options))
    rules = (options.provider or '').count('fault=')
    if rules:
        wrong += fault_complaints(run.stderr, rules)
    for line in wrong:
        print(f'FAILED: {line}')
    return 1 if wrong else 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
