#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""`weft perf --fit` between processes here: what it writes is what the tuner then uses, and it refuses what it cannot fit.

usage: check_fit.py WEFT
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / 'scripts' / 'lib'))
from ports import free_port

PATIENCE = 120


def run(weft, *arguments, **settings):
    return subprocess.run([weft, *arguments], env={**os.environ, **settings}, capture_output=True, text=True,
                          timeout=PATIENCE, check=False)


def complaints(weft, table):
    done = run(weft, 'perf', '--fit', str(table), '-n', '2', '--cluster-bytes', '1M')
    if done.returncode != 0:
        yield f'--fit ended with {done.returncode}: {done.stdout}{done.stderr}'
        return
    lines = [line.split() for line in table.read_text().splitlines()[1:] if not line.startswith('#')]
    written = dict(lines)
    of_host = ['processors', 'send_us', 'receive_us', 'test_us', 'look_us', 'step_us', 'shared_step_us',
               *(f'{where}_{what}_GBps' for where in ('near', 'far') for what in ('send', 'receive', 'copy', 'reduce'))]
    if [name for name, _ in lines if name != 'machine'] != ['provider', 'date', 'hosts', 'ranks', 'step_us', 'device_GBps', 'devices_per_node',
                                                            *(f'host_{name}' for name in of_host)]:
        yield f'the table has other lines: {lines}'
    if (written['hosts'], written['ranks']) != ('1', '2'):
        yield f'it is not of one host and two ranks: {written}'
    found = json.loads(run(weft, 'info', '--tuner', '--json', WEFT_TUNER_TABLE=str(table)).stdout)
    numbers = {number['what']: number for number in found['numbers']}
    if not (found['platform'] or '').startswith('table ') or not found['choices']:
        yield f'the tuner does not use the table: {found["reasons"]}'
    elif numbers['step between nodes, LL']['value'] != float(written['step_us']):
        yield f'the tuner has other numbers: {numbers}'
    elif str(table) not in numbers['rate of a node']['source']:
        yield f'a number does not name the table: {numbers}'
    table.write_text(table.read_text().replace('step_us', 'steps_us'))
    found = json.loads(run(weft, 'info', '--tuner', '--json', WEFT_TUNER_TABLE=str(table)).stdout)
    if found['platform'] is not None or 'line 7 does not begin with' not in found['reasons'][0]:
        yield f'a damaged table is not refused: {found["reasons"]}'
    for wrong in (['all_reduce'], ['--plugin', 'other.so'], ['--csv', '-'], ['--merge']):
        if run(weft, 'perf', '--fit', str(table), '-n', '2', *wrong).returncode != 2:
            yield f'--fit takes {wrong}'


def disagreement(weft):
    """Ranks that would advise NCCL differently would hang it; they must not connect."""
    common = {**os.environ, 'WORLD_SIZE': '2', 'MASTER_ADDR': '127.0.0.1', 'MASTER_PORT': str(free_port())}
    ranks = [subprocess.Popen([weft, 'perf', 'sendrecv', '-b', '8', '-e', '8'], stdout=subprocess.PIPE, text=True,
                              stderr=subprocess.STDOUT, env={**common, 'RANK': str(rank), 'WEFT_TUNER': str(rank)})
             for rank in range(2)]
    try:
        outputs = [rank.communicate(timeout=PATIENCE)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    for rank, output in zip(ranks, outputs):
        if rank.returncode == 0 or 'the two processes do not fit: tuner is ' not in output:
            yield f'ranks with different tuners connected, or do not say why not: {rank.returncode}, {output}'


def main():
    with tempfile.TemporaryDirectory() as folder:
        found = list(complaints(sys.argv[1], pathlib.Path(folder) / 'table'))
    found += disagreement(sys.argv[1])
    for complaint in found:
        print(complaint)
    return 1 if found else 0


if __name__ == '__main__':
    sys.exit(main())
