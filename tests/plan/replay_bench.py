#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""Compares what `weft plan` says of a recorded job's communication with what `weft perf --replay` takes for it here.

usage: replay_bench.py WEFT RECORDER PLUGIN FOLDER [PROVIDER]

The network's numbers come from replays of other traces, recorded here: of a run with few messages, one with small and one with large messages. What they
take is a constant, so much a message and so much a byte; nothing is taken from the job itself. Prints both times; exit status 1 where they differ by
more than 20 %. A bench and no test: other work on the machine changes its result.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

LIMIT = 0.20
TURNS = 2
COMMON = ['all_reduce', '-n', '2', '-c', '0', '--channels', '2', '-w', '0', '--iters']
RUNS = {  # name: arguments of weft perf: two rings, as the job has them
    'few': ['1', '-b', '1M', '-e', '1M'],
    'small': ['20', '-b', '8M', '-e', '8M', '--buffsize', '512K'],
    'large': ['4', '-b', '64M', '-e', '64M'],
}


def run(command, **more):
    environment = {name: value for name, value in os.environ.items() if not name.startswith('WEFT_')}
    done = subprocess.run(command, env={**environment, **more}, check=False, text=True, timeout=400, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if done.returncode != 0:
        sys.exit(f'{" ".join(map(str, command))} ended with {done.returncode}: {done.stdout}{done.stderr}')
    return done.stdout


def replay_ms(weft, plugin, folder, fabric):
    """The least of some turns: other work on the machine only adds."""
    documents = [json.loads(run([weft, 'perf', '--replay', folder, '-n', '2', '--plugin', plugin, '--json', '-'], **fabric)) for _ in range(TURNS)]
    return min(document['wall']['replayed_ns'] for document in documents) / 1e6


def traffic(weft, folder, cluster):
    return json.loads(run([weft, 'plan', folder, '--cluster', cluster, '-n', '2', '--json', '-']))['recorded']


def cluster_file(place, gap_us=0.0, rail=1.0, alpha_us=0.0):
    place.write_text(json.dumps({'name': 'this machine', 'gpus_per_node': 1,
                                 'network': {'alpha_us': alpha_us, 'gap_us': gap_us, 'rail_GBps': rail}}))
    return place


def solve(points):
    """(constant ms, ms a message, ms a byte) from three (messages, bytes, ms), by Cramer's rule."""
    def determinant(m):
        return (m[0][0] * (m[1][1] * m[2][2] - m[1][2] * m[2][1]) - m[0][1] * (m[1][0] * m[2][2] - m[1][2] * m[2][0])
                + m[0][2] * (m[1][0] * m[2][1] - m[1][1] * m[2][0]))
    rows = [[1.0, messages, size] for messages, size, _ in points]
    times = [ms for _, _, ms in points]
    whole = determinant(rows)
    return [determinant([[times[i] if column == j else row[column] for column in range(3)] for i, row in enumerate(rows)]) / whole for j in range(3)]


def main(arguments):
    if len(arguments) not in (4, 5):
        sys.exit(__doc__)
    weft, recorder, plugin, job = (pathlib.Path(word).resolve() for word in arguments[:4])
    fabric = {'WEFT_PROVIDER': arguments[4] if len(arguments) == 5 else 'tcp', 'WEFT_LOCAL': 'off'}
    with tempfile.TemporaryDirectory() as top:
        cluster = cluster_file(pathlib.Path(top) / 'cluster.json')
        points = []
        for name, words in RUNS.items():
            folder = pathlib.Path(top) / name
            folder.mkdir()
            run([weft, 'perf', *COMMON, *words, '--plugin', recorder], WEFT_RECORD_DIR=str(folder), WEFT_RECORD_PLUGIN=str(plugin), **fabric)
            seen = traffic(weft, folder, cluster)
            points.append((seen['messages'] / 2, seen['bytes'] / 2, replay_ms(weft, plugin, folder, fabric)))
            print(f'{name:6} {seen["messages"] / 2:8.0f} messages {seen["bytes"] / 2e6:10.1f} MB each way {points[-1][2]:10.1f} ms')
        constant, message, byte = solve(points)
        print(f'here: {constant:.1f} ms, {message * 1e3:.2f} us a message, {1e-6 / byte:.3f} GB/s')
        cluster_file(cluster, max(0.0, message * 1e3), 1e-6 / byte, max(0.0, constant * 1e3))
        predicted = traffic(weft, job, cluster)['network_us'] / 1e3
        replayed = replay_ms(weft, plugin, job, fabric)
    print(f'{job.name}: predicted {predicted:.1f} ms, replayed {replayed:.1f} ms, {predicted / replayed - 1:+.1%}')
    return 0 if abs(predicted / replayed - 1) <= LIMIT else 1


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
