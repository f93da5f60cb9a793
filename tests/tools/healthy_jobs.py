#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""Healthy jobs with noise, one after the other: nobody may be blamed, neither in a log nor by `weft autopsy`.

usage: healthy_jobs.py WEFT [COUNT [SEED]]

Each job has another fabric, size and number of ranks, and runs for some seconds while other programs want all processors and
single ranks are stopped for up to half a second at a time. tests/world/diagnosis_test.cc does so with 1,000 jobs in virtual time.
"""
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'support'))
import own_sockets

WEFT = sys.argv[1]
COUNT = int(sys.argv[2]) if len(sys.argv) > 2 else 6
SEED = int(sys.argv[3]) if len(sys.argv) > 3 else 1
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(('WEFT_', 'NCCL_'))}
CLEAN['WEFT_CONF'] = ''
PATIENCE = 60
SECONDS = 4.0
LONGEST_STOP = 0.5
FABRICS = ({'WEFT_PROVIDER': 'tcp', 'WEFT_LOCAL': 'off'}, {'WEFT_PROVIDER': 'tcp', 'WEFT_LOCAL': 'on'}, {'WEFT_PROVIDER': own_sockets.fabric(), 'WEFT_LOCAL': 'off'})
OPERATIONS = ('all_reduce', 'all_gather', 'alltoall', 'broadcast', 'sendrecv')


def autopsy(folder):
    done = subprocess.run([WEFT, 'autopsy', '--json', folder], env=CLEAN, capture_output=True, text=True, check=False, timeout=PATIENCE)
    return json.loads(done.stdout) if done.returncode == 0 else {}


def pids_of(folder):
    return [int(name.split('.')[-2]) for name in os.listdir(folder) if name.endswith('.stats')]


def stop_for_a_while(chance, folder):
    pids = pids_of(folder)
    if not pids:
        return
    pid = chance.choice(pids)
    try:
        os.kill(pid, signal.SIGSTOP)
        time.sleep(chance.random() * LONGEST_STOP)
        os.kill(pid, signal.SIGCONT)
    except ProcessLookupError:
        pass


def disturb(chance, folder, process):
    """What autopsy said meanwhile that is no praise, and whether there was anything to look at."""
    bad, looked = [], False
    end = time.monotonic() + SECONDS
    while time.monotonic() < end and process.poll() is None:
        stop_for_a_while(chance, folder)
        time.sleep(chance.random() * 0.3)
        found = autopsy(folder)
        looked = looked or bool(found)
        if found and found['verdict'] != 'none':
            bad.append(f"autopsy: {found['verdict']} {found['culprit'] or found['peer']} {found['evidence'][:2]}")
    return bad, looked


def run(chance):
    fabric, size, ranks = chance.choice(FABRICS), chance.choice(('8', '4K', '64K', '1M', '16M')), chance.choice((2, 3, 4))
    operation = chance.choice(OPERATIONS)
    command = [WEFT, 'perf', operation, '-n', str(ranks), '-b', size, '-e', size, '-c', '0', '--iters', '1000000']
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile('w+') as log:
        hogs = [subprocess.Popen(['sh', '-c', 'while :; do :; done']) for _ in range(chance.randrange(0, 2 * (os.cpu_count() or 1)))]
        process = subprocess.Popen(command, env={**CLEAN, **fabric, 'WEFT_CONF': '', 'WEFT_STATE_DIR': folder}, stdout=log, stderr=log)
        try:
            bad, looked = disturb(chance, folder, process)
            if process.poll() is not None:
                bad.append(f'it ended with {process.returncode}')
            if not looked:
                bad.append('nothing was counted')
            log.seek(0)
            bad += [line.strip() for line in log if re.search('verdict|has not answered|ended', line)]
        finally:
            process.terminate()
            process.wait(timeout=PATIENCE)
            for hog in hogs:
                hog.kill()
                hog.wait()
    return f'{ranks} ranks, {operation} of {size}, {fabric}, {len(hogs)} other programs', bad


def main():
    blamed = 0
    for number in range(COUNT):
        what, bad = run(random.Random(SEED * 1_000_003 + number))
        blamed += bool(bad)
        if bad:
            print(f'job {number}: {what}:', *bad[:4], sep='\n  ', flush=True)
    print(f'{COUNT} healthy jobs with noise, {blamed} of them with a culprit', flush=True)
    sys.exit(blamed > 0)


main()
