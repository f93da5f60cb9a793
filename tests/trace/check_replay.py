#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""Records runs of `weft perf` and replays them; or replays traces that are kept.

usage: check_replay.py WEFT RECORDER
       check_replay.py WEFT --kept FOLDER [PROVIDER ...]

Every byte of a replay is verified by the command itself; here the number of messages is compared with what the traces say.
"""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'support'))
import own_sockets

OFI = own_sockets.fabric()
FAULTS = 'fault(seed=1,fault=delay,p=0.05,fault=reorder,p=0.05,fault=refuse,p=0.05)'
RUNS = {
    'all_reduce': (2, ['all_reduce', '-e', '1M', '-f', '8']),
    'sendrecv': (3, ['sendrecv', '--group', '4', '-e', '256K', '-f', '8']),
    'alltoall': (4, ['alltoall', '-b', '64', '-e', '256K', '-f', '8']),
    'puts': (2, ['put', '-e', '1M', '-f', '8']),
    'puts with signals': (4, ['put_signal', '-e', '1M', '-f', '8', '--channels', '2']),
    'gets': (2, ['get', '-e', '1M', '-f', '8']),
    'collective all_reduce': (3, ['all_reduce', '--algo', 'collnet', '-e', '256K', '-f', '8', '-d', 'half', '-o', 'max']),
    'collective all_gather': (3, ['all_gather', '--algo', 'collnet', '-e', '256K', '-f', '8']),
    'collective reduce_scatter': (3, ['reduce_scatter', '--algo', 'collnet', '-e', '256K', '-f', '8', '-d', 'int32']),
}
ONE_SIDED = ('iput', 'iputSignal', 'iget')
LIMIT = 250  # a job of some gigabytes takes its time where other work has the processors


def environment(provider, **more):
    clean = {name: value for name, value in os.environ.items() if not name.startswith('WEFT_') or name.startswith('WEFT_TEST_')}
    return {**clean, 'WEFT_PROVIDER': provider, **more}


def run(command, provider, **more):
    return subprocess.run(command, env=environment(provider, **more), check=False, timeout=LIMIT, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def demand(condition, what):
    if not condition:
        print(f'FAILED: {what}')
        sys.exit(1)


def moved(weft, folder):
    """How many messages the traces' receives have got, how many puts and gets there were, and how many of the puts had bytes."""
    shown = run([weft, 'trace', '--json', '--events', folder], 'ofi')
    demand(shown.returncode == 0, f'weft trace ended with {shown.returncode}: {shown.stderr}')
    calls = [call for document in json.loads(shown.stdout) for call in document['trace'] if call['result'] == 0]
    received = sum(len(call['sizes']) for call in calls if call['call'] == 'test')
    reaching = [call for call in calls if call['call'] in ONE_SIDED]
    puts = sum(1 for call in reaching if call['call'] != 'iget' and call['messages'][0]['bytes'] > 0)
    return received, len(reaching), puts


def demand_same(what, document, expected):
    """That a replay did what the traces have. What an abort cut off is not done again; of puts to one place the last is seen."""
    received, reaching, puts = expected
    if document['aborted_comms'] > 0:
        return
    demand(document['messages'] == received, f'{what}: {document["messages"]} of {received}')
    again = sum(document['calls'].get(call, {'calls': 0})['calls'] for call in ONE_SIDED)
    demand(again == reaching, f'{what}: {again} of {reaching} puts and gets')
    demand((document['puts'] > 0) == (puts > 0), f'{what}: {document["puts"]} puts were compared, of {puts}')
    print(f'{what}: {received} messages, {reaching} puts and gets')


def replay(weft, folder, provider, *more):
    done = run([weft, 'perf', '--replay', folder, '--stall-timeout', '20', '--json', '-', *more], provider, WEFT_COLLNET='peers')
    demand(done.returncode == 0, f'replay of {folder} over {provider} {more}: {done.returncode}\n{done.stdout}{done.stderr}')
    return json.loads(done.stdout)


def record(weft, recorder, folder, ranks, arguments):
    done = run([weft, 'perf', *arguments, '-n', str(ranks), '--iters', '3', '-w', '1', '--plugin', recorder], OFI,
               WEFT_RECORD_DIR=folder, WEFT_COLLNET='peers')
    demand(done.returncode == 0, f'recording ended with {done.returncode}: {done.stderr}')
    demand('is not a setting' not in done.stderr, f'the recorder\'s settings are unknown: {done.stderr}')
    demand(len(list(pathlib.Path(folder).glob('*.trace'))) == ranks, f'{ranks} ranks did not leave as many traces')


def check_recorded(weft, recorder):
    for name, (ranks, arguments) in RUNS.items():
        with tempfile.TemporaryDirectory() as folder:
            record(weft, recorder, folder, ranks, arguments)
            expected = moved(weft, folder)
            demand(expected[0] + expected[1] > 0, f'{name}: nothing was recorded')
            ways = [(OFI, ['-n', str(ranks)]), (OFI, []), ('loop', []), (f'{FAULTS}:{OFI}', ['-n', str(ranks)])]
            for provider, more in ways:
                document = replay(weft, folder, provider, *more)
                demand_same(f'{name} over {provider} {" ".join(more)}', document, expected)
            check_refused(weft, folder)


def check_refused(weft, folder):
    """A rank's trace is missing; a wrong number of processes."""
    traces = sorted(str(path) for path in pathlib.Path(folder).glob('*.trace'))
    for arguments, words in ([traces[:1], 'give the traces of all ranks'], [[folder, '-n', '9'], 'traces and 9 processes']):
        done = run([weft, 'perf', '--replay', *arguments], OFI)
        demand(done.returncode != 0 and words in done.stderr, f'{arguments} was not refused in words: {done.stderr}')


def check_killed(weft, recorder):
    """A rank is killed while it is recorded: what was written can be read and replayed."""
    with tempfile.TemporaryDirectory() as folder:
        command = [weft, 'perf', 'all_reduce', '-n', '2', '-b', '64K', '-e', '64K', '--iters', '1000000', '-c', '0', '--plugin', recorder]
        with subprocess.Popen(command, env=environment(OFI, WEFT_RECORD_DIR=folder), stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL) as job:
            try:
                traces = wait_for_traces(folder, 2)
                os.kill(int(traces[0].stem.split('-')[-1]), signal.SIGKILL)
                job.wait(timeout=60)
            finally:
                job.kill()
        demand(moved(weft, folder)[0] > 0, 'nothing of a killed rank was recorded')
        document = replay(weft, folder, OFI)
        print(f'after a kill: {document["messages"]} messages, {document["aborted_comms"]} comms aborted')


def wait_for_traces(folder, ranks):
    end = time.monotonic() + 60
    while time.monotonic() < end:
        traces = sorted(pathlib.Path(folder).glob('*.trace'))
        if len(traces) == ranks and min(path.stat().st_size for path in traces) > 60000:
            return traces
        time.sleep(0.05)
    demand(False, 'the ranks did not record anything within a minute')
    return []


def check_kept(weft, folder, providers):
    """Every folder of traces, over every provider."""
    for job in sorted(path for path in pathlib.Path(folder).iterdir() if path.is_dir()):
        expected = moved(weft, str(job))
        ranks = len(list(job.glob('*.trace')))
        for provider, *more in providers or [(OFI,), ('tcp',), (f'{FAULTS}:{OFI}',), (f'{FAULTS}:tcp',), ('tcp', '-n', str(ranks))]:
            document = replay(weft, str(job), provider, *more)
            demand_same(f'{job.name} over {provider} {" ".join(more)}', document, expected)


def main(arguments):
    if arguments[1] == '--kept':
        check_kept(arguments[0], arguments[2], [(provider,) for provider in arguments[3:]])
        return 0
    check_recorded(*arguments)
    check_killed(*arguments)
    return 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
