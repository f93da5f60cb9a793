#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""`weft perf --compare` with a copy of our own plugin: alike when both are set alike, slower when its fabric delays.

usage: check_compare.py WEFT PLUGIN
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile

ROUNDS = 10
TRIES = 3  # two plugins that are alike can differ for as long as a comparison takes, when the machine does something else as well
DELAYED = 'WEFT_PROVIDER=fault(fault=delay,count=0,polls=100):ofi'


def compare(weft, other, *options):
    command = [weft, 'perf', 'all_reduce', '-n', '2', '-b', '1K', '-e', '8K', '-f', '8', '--iters', '5', '--rounds', str(ROUNDS),
               '--compare', other, '--json', '-', *options]
    run = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    sys.stderr.write(run.stderr)
    return run.returncode, json.loads(run.stdout) if run.stdout else None, run.stderr


def complaints(document):
    """What must be so in every comparison."""
    halves = [row[place] for row in document['results'] for place in ('out_of_place', 'in_place')]
    if len(halves) != 4 or document['summary']['wrong'] != 0:
        yield f'{len(halves)} results, {document["summary"]["wrong"]} wrong'
    for half in halves:
        ratio = half['ratio']
        if half['latency']['count'] != half['other']['latency']['count'] or half['messages'] != half['other']['messages']:
            yield 'the two did not do the same'
        if not ratio['low'] <= ratio['median'] <= ratio['high']:
            yield f'a ratio out of order: {ratio}'


def compare_copy(weft, other):
    """What is wrong with a comparison of two plugins that are the same."""
    wrong = []
    for _ in range(TRIES):
        status, document, _ = compare(weft, other)
        alike = document['summary']['ratio']
        print(f'a copy: {alike}')
        wrong += [*complaints(document)] + ([f'status {status}'] if status else [])
        if wrong or (alike['low'] <= 1 <= alike['high'] and not alike['differs']):
            return wrong
    return ['a copy of the plugin was found to be different']


def main(weft, plugin):
    with tempfile.TemporaryDirectory() as folder:
        other = shutil.copy(plugin, os.path.join(folder, 'libnccl-net-other.so'))
        wrong = compare_copy(weft, other)
        status, document, _ = compare(weft, other, '--compare-env', DELAYED)
        delayed = document['summary']['ratio']
        print(f'a delayed copy: {delayed}')
        wrong += [*complaints(document)] + ([f'status {status}'] if status else [])
        said = document['conditions']
        if (said['rounds'], said['other_settings']) != (ROUNDS, [DELAYED]) or 'fault' not in said['other_fabric'] or 'fault' in said['fabric']:
            wrong.append(f'the conditions do not tell what was compared: {said}')
        if not delayed['differs'] or delayed['low'] <= 1:
            wrong.append('the delay was not found')
        status, _, log = compare(weft, plugin)
        if status == 0 or 'make a copy' not in log:
            wrong.append(f'the same file as both plugins: status {status}')
    for line in wrong:
        print(f'FAILED: {line}')
    return 1 if wrong else 0


if __name__ == '__main__':
    sys.exit(main(*sys.argv[1:]))
