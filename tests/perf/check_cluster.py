#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""`weft perf --check-cluster` between ranks of which one has a fabric that delays: it must name that rank or path.

usage: check_cluster.py WEFT
"""
import json
import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / 'scripts' / 'lib'))
from ports import free_port

RANKS = 4
PATIENCE = 300
TRIES = 4
EVEN = 'fault(seed=1):ofi'  # all ranks must have the same provider
ONCE = (2, 'fault(fault=delay,count=1000,polls=300):ofi', None)  # while it is measured first
# Rank that is slow, its faults, and what must be said of its latency: far beyond what a busy machine does.
SLOW = [
    (2, 'fault(fault=delay,count=0,polls=300):ofi', {'kind': 'slow sender', 'rank': 2}),
    (1, 'fault(fault=delay,op=notified,count=0,polls=300):ofi', {'kind': 'slow receiver', 'rank': 1}),
    # To whomever its second lane leads, and the lanes of both second looks, which are the next ones that it makes.
    (1, 'fault(' + ','.join(f'fault=delay,lane={lane},count=0,polls=300' for lane in (1, 3, 4)) + '):ofi',
     {'kind': 'bad path', 'rank': 1}),
]


def check(weft, slow_rank, faults):
    """(exit statuses by rank, what rank 0 printed), with every rank started as torchrun would."""
    common = {**os.environ, 'WORLD_SIZE': str(RANKS), 'MASTER_ADDR': '127.0.0.1', 'MASTER_PORT': str(free_port())}
    ranks = []
    for rank in range(RANKS):
        provider = faults if rank == slow_rank else EVEN
        ranks.append(subprocess.Popen([weft, 'perf', '--check-cluster', '--slow', '8', '--json', '-'],
                                      env={**common, 'RANK': str(rank), 'WEFT_PROVIDER': provider},
                                      stdout=subprocess.PIPE, text=True))
    try:
        output = ranks[0].communicate(timeout=PATIENCE)[0]
        statuses = [rank.wait(timeout=PATIENCE) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    return statuses, output


def died(statuses):
    """Whether the ranks ended otherwise than with an answer: 3 is rank 0's for something slow."""
    return any(statuses[1:]) or statuses[0] not in (0, 3)


def complaints(status, document, wanted):
    cells = [value for name in ('latency_us', 'bandwidth_gbps') for row in document[name] for value in row]
    if len(cells) != 2 * RANKS * RANKS or sum(value is None for value in cells) != 2 * RANKS:
        yield f'the matrices are not complete: {cells}'
    if any(value is not None and value <= 0 for value in cells):
        yield f'a cell is not positive: {cells}'
    found = [finding for finding in document['findings'] if finding['in'] == 'latency']
    named = [{key: finding[key] for key in finding if key not in ('in', 'times')} for finding in found]
    if wanted is None:
        if named:
            yield f'named although nothing is slow: {named}'
        return
    if status != 3:
        yield f'status {status} instead of 3'
    if not any(wanted.items() <= one.items() for one in named):
        yield f'{wanted} was not named: {named}'
    others = [one for one in named if one['kind'] != 'bad path' and not wanted.items() <= one.items()]
    if others:
        yield f'named besides {wanted}: {others}'


def verdict(weft, slow_rank, faults, wanted):
    """What is wrong with the answer. The check tells the truth of its moment: four ranks on a machine that does something
    else as well can make another one slow for that long, so it may be asked again."""
    for _ in range(TRIES):
        statuses, output = check(weft, slow_rank, faults)
        if died(statuses):
            return [f'{wanted}: the ranks ended with {", ".join(f"status {status}" for status in statuses)}']
        document = json.loads(output)
        print(f'{wanted}: status {statuses[0]}, {document["findings"]}')
        wrong = list(complaints(statuses[0], document, wanted))
        if not wrong:
            break
    return wrong


def main(weft):
    wrong = []
    for slow_rank, faults, wanted in [(None, None, None), ONCE, *SLOW]:
        wrong += verdict(weft, slow_rank, faults, wanted)
    for line in wrong:
        print(f'FAILED: {line}')
    return 1 if wrong else 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1]))
