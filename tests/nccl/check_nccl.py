#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""Runs cases under real NCCL over weft: check_nccl.py SOFTGPU_DIR PROGRAM PLUGIN LAYOUT NETWORK NAME=VALUE... -- CASE...

LAYOUT is how many ranks each process has: 1,1 are two processes, each a node with one GPU; 2,2 are two with two each. NETWORK is what
weft is told (ofi:net, ofi:shm, ...). NCCL is WEFT_NCCL's or one that the loader finds; without one, the test is skipped. NCCL's own lines have to
show that weft carried the data, as a network that reduces where NCCL_COLLNET_ENABLE is set. A setting LOST=N says that process N is killed or stopped
in the middle, FROM=VERSION that older ones are skipped (23007 is 2.30.7), AGGD=FILE that an aggregation daemon is started and named to the ranks.
"""
import contextlib
import ctypes.util
import os
import re
import subprocess
import sys
import tempfile
import time

SKIP = 77
PATIENCE = 240


def find_nccl():
    """The library with the shared CUDA runtime that the software GPU stands in for, or why there is none."""
    name = os.environ.get('WEFT_NCCL')
    if name:
        if not os.path.isfile(name):
            sys.exit(f'WEFT_NCCL={name} is not a file')
        return name, ''
    if not ctypes.util.find_library('nccl'):
        return None, 'no libnccl in the loader\'s path; WEFT_NCCL=FILE names one'
    return '-', ''


def shares_runtime(nccl, environment):
    """NCCL with a runtime of its own wants NVIDIA's driver."""
    if nccl == '-':
        listing = subprocess.run(['ldconfig', '-p'], capture_output=True, text=True, check=False).stdout
        found = re.search(r'libnccl\.so\.2 .*=> (\S+)', listing)
        if not found:
            return False
        nccl = found.group(1)
    needed = subprocess.run(['ldd', nccl], capture_output=True, text=True, check=False, env=environment).stdout
    return 'libcudart.so' in needed


def version_of(nccl, environment):
    """The number that ncclGetVersion gives, asked in a process that has the software GPU."""
    program = f'import ctypes; number = ctypes.c_int(); ctypes.CDLL({("libnccl.so.2" if nccl == "-" else nccl)!r}).ncclGetVersion(ctypes.byref(number)); print(number.value)'
    said = subprocess.run([sys.executable, '-c', program], capture_output=True, text=True, check=False, env=environment).stdout
    return int(said.split()[-1]) if said else 0


def environment_of(softgpu, plugin, network, settings, node, gpus):
    environment = dict(os.environ)
    environment.update({
        'LD_LIBRARY_PATH': ':'.join(filter(None, [softgpu, os.environ.get('LD_LIBRARY_PATH')])),
        'NCCL_HOSTID': f'node{node}', 'NCCL_SOCKET_IFNAME': 'lo', 'NCCL_NET_PLUGIN': plugin, 'NCCL_NET': 'weft', 'NCCL_DEBUG': 'INFO',
        'NCCL_BUFFSIZE': '524288', 'SOFTGPU_COUNT': str(gpus), 'WEFT_PROVIDER': network})
    environment.update(settings)
    environment.pop('WEFT_NCCL', None)  # weft would say that it is no setting of its own
    return environment


def usable_nccl(softgpu, plugin, oldest=0):
    """The library, as find_nccl, where it runs on the software GPU and is no older; else why it does not."""
    nccl, why = find_nccl()
    environment = environment_of(softgpu, plugin, 'tcp', {}, 0, 1)
    if nccl is not None and not shares_runtime(nccl, environment):
        return None, 'its CUDA runtime is a static one, which wants NVIDIA\'s driver'
    if nccl is not None and version_of(nccl, environment) < oldest:
        return None, f'it is older than {oldest}'
    return nccl, why


def start(command, environment, log):
    return subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)


def wait_all(processes, lost):
    """Exit statuses; what is not done in time is ended and counts as 124. One that is lost is ended in any case, and counts as 0."""
    until = time.monotonic() + PATIENCE
    statuses = []
    for process in [process for i, process in enumerate(processes) if i != lost]:
        try:
            statuses.append(process.wait(max(until - time.monotonic(), 0.1)))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            statuses.append(124)
    if lost is not None:
        processes[lost].kill()
        processes[lost].wait()
        statuses.insert(lost, 0)
    return statuses


@contextlib.contextmanager
def daemon(program):
    """Settings that name an aggregation daemon, which runs meanwhile; none without a program."""
    if not program:
        yield {}
        return
    secret = {'WEFT_AGGD_SECRET': 'the secret of this check'}
    process = subprocess.Popen([program, '--listen', '127.0.0.1:0'], env={**os.environ, **secret}, stdout=subprocess.PIPE, text=True)
    try:
        port = next(found.group(1) for found in (re.search(r'on port (\d+)', line) for line in process.stdout) if found)
        yield {'WEFT_AGGD': f'127.0.0.1:{port}', **secret}
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def judge(statuses, logs, lost, carrier, says):
    complaints = [f'process {i} ended with {status}' for i, status in enumerate(statuses) if status != 0]
    for i, text in enumerate(logs):
        if i == lost:
            continue  # what it had not written yet is lost with it
        if 'Using network weft' not in text:
            complaints.append(f'process {i}: NCCL did not say "Using network weft"')
        if f'via {carrier}/weft' not in text:
            complaints.append(f'process {i}: no channel went via {carrier}/weft')
        if says and not re.search(says, text):
            complaints.append(f'process {i}: NCCL did not say "{says}"')
        if carrier == 'COLLNET' and i == 0 and not re.search(r'AllReduce: \d+ Bytes -> Algo COLLNET_CHAIN', text):
            complaints.append(f'process {i}: NCCL did not have the network reduce')
    return complaints


def main():
    softgpu, program, plugin, layout, network, *rest = sys.argv[1:]
    split = rest.index('--')
    settings = dict(pair.split('=', 1) for pair in rest[:split])
    lost = int(settings.pop('LOST')) if 'LOST' in settings else None
    says = settings.pop('SAYS', '')
    oldest = int(settings.pop('FROM', 0))
    carrier = 'COLLNET' if 'NCCL_COLLNET_ENABLE' in settings else 'NET'
    if carrier == 'COLLNET':
        settings['NCCL_DEBUG_SUBSYS'] = 'INIT,NET,TUNING'
    aggd = settings.pop('AGGD', '')
    cases = rest[split + 1:]
    counts = [int(count) for count in layout.split(',')]
    nccl, why = usable_nccl(softgpu, plugin, oldest)
    if nccl is None:
        print(f'skipped: {why}')
        sys.exit(SKIP)
    with tempfile.TemporaryDirectory() as folder, daemon(aggd) as more:
        settings.update(more)
        files = [open(f'{folder}/{node}.log', 'w+', encoding='utf-8') for node in range(len(counts))]
        processes, first = [], 0
        for node, count in enumerate(counts):
            command = [program, nccl, str(sum(counts)), str(first), str(count), f'{folder}/id', *cases]
            processes.append(start(command, environment_of(softgpu, plugin, network, settings, node, count), files[node]))
            first += count
        statuses = wait_all(processes, lost)
        logs = []
        for file in files:
            file.seek(0)
            logs.append(file.read())
    complaints = judge(statuses, logs, lost, carrier, says)
    for text in logs if complaints else logs[:1]:
        lines = text.splitlines()
        shown = lines[-60:] if complaints else [line for line in lines if re.search(r'software GPU|NCCL version|Using network|is right|last error', line)]
        print('\n'.join(shown))
    if complaints:
        sys.exit('\n'.join(complaints))


if __name__ == '__main__':
    main()
