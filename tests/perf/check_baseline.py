#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""`weft perf --baseline`: the same data over plain sockets, and what is said where that plugin is not.

usage: check_baseline.py WEFT PLUGIN
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile

OPERATIONS = [['all_reduce', '-n', '3'], ['alltoall', '-n', '3', '--comms', '2'], ['sendrecv', '-n', '2']]


def run(weft, *arguments):
    return subprocess.run([weft, 'perf', *arguments], capture_output=True, text=True, timeout=200, check=False)


def complaints(document, operation):
    """Every result is there, right, and of both."""
    if document['summary']['wrong'] != 0:
        yield f'{operation}: {document["summary"]["wrong"]} wrong'
    halves = [row[place] for row in document['results'] for place in ('out_of_place', 'in_place') if row.get(place)]
    if not halves:
        yield f'{operation}: no results'
    for half in halves:
        if half['latency']['count'] != half['other']['latency']['count'] or half['messages'] != half['other']['messages']:
            yield f'{operation}: the two did not do the same'
    decades = document['summary']['decades']
    if [(decade['smallest'] // 10**6, decade['largest'] // 10**6) for decade in decades] != [(0, 0), (2, 5)]:
        yield f'{operation}: the decades are {decades}'
    if 'plain-sockets' not in document['conditions']['other_plugin']:
        yield f'{operation}: the other plugin is {document["conditions"]["other_plugin"]}'


def verified(weft):
    """What is wrong with comparisons of sizes from nothing to several slots."""
    for operation in OPERATIONS:
        done = run(weft, *operation, '-b', '0', '-e', '5M', '-i', '2560000', '--iters', '3', '--rounds', '2', '--baseline', '--json', '-')
        sys.stderr.write(done.stderr)
        if done.returncode != 0:
            yield f'{operation}: status {done.returncode}'
        else:
            yield from complaints(json.loads(done.stdout), operation)


def missing(weft, plugin):
    """What is wrong with the error of a program that stands alone."""
    with tempfile.TemporaryDirectory() as folder:
        alone = shutil.copy(weft, os.path.join(folder, 'weft'))
        done = run(alone, 'all_reduce', '-n', '2', '-e', '8', '--plugin', plugin, '--baseline')
    print(done.stderr)
    if done.returncode == 0 or 'libnccl-net-plain-sockets.so is not where this command looks' not in done.stderr:
        yield f'without the plugin: status {done.returncode} and {done.stderr}'
    done = run(weft, 'all_reduce', '-n', '2', '-e', '8', '--baseline', '--compare', plugin)
    if done.returncode == 0 or 'not together with' not in done.stderr:
        yield f'--baseline and --compare: status {done.returncode} and {done.stderr}'


def main(weft, plugin):
    wrong = [*verified(weft), *missing(weft, plugin)]
    for line in wrong:
        print(f'FAILED: {line}')
    return 1 if wrong else 0


if __name__ == '__main__':
    sys.exit(main(*sys.argv[1:]))
