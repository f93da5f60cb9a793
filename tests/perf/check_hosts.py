#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""Runs `weft perf` between network namespaces that stand for hosts: ranks with torchrun's variables, and Open MPI's.

usage: tests/unit/in_own_network check_hosts.py WEFT

Two hosts of two ranks each, connected by one cable. Everything is gone when the process that made it ends.
"""
import json
import os
import subprocess
import sys
import tempfile

HOSTS = 2
RANKS_EACH = 2
PATIENCE = 120


def ip(*arguments):
    subprocess.run(['ip', *arguments], check=True, timeout=30)


def make_hosts():
    for host in range(HOSTS):
        ip('netns', 'add', f'host{host}')
    ip('link', 'add', 'cable0', 'type', 'veth', 'peer', 'name', 'cable1')
    for host in range(HOSTS):
        ip('link', 'set', f'cable{host}', 'netns', f'host{host}')
        ip('-n', f'host{host}', 'addr', 'add', f'10.77.0.{host + 1}/24', 'dev', f'cable{host}')
        for link in ('lo', f'cable{host}'):
            ip('-n', f'host{host}', 'link', 'set', link, 'up')


def remove_hosts():
    for host in range(HOSTS):
        subprocess.run(['ip', 'netns', 'del', f'host{host}'], check=False, timeout=30)


def perf(weft):
    return [weft, 'perf', 'all_reduce', '-b', '8', '-e', '1M', '-f', '8', '--iters', '3', '-w', '1', '--json', '-']


def on_host(host, folder, command):
    """Enters a host. The kernel's boot_id tells machines apart, so each host has its own."""
    own = os.path.join(folder, f'boot_id{host}')
    with open(own, 'w', encoding='ascii') as file:
        file.write(f'{host:08}-0000-4000-8000-000000000000\n')
    script = f'mount --bind {own} /proc/sys/kernel/random/boot_id && exec "$@"'
    return ['ip', 'netns', 'exec', f'host{host}', 'sh', '-c', script, 'sh', *command]


def with_torchrun_variables(weft):
    """Exit statuses by rank, and what rank 0 measured."""
    size = HOSTS * RANKS_EACH
    common = {**os.environ, 'WEFT_LOCAL': 'off', 'WORLD_SIZE': str(size), 'WEFT_TOKEN': '0123456789abcdef0123456789abcdef', 'MASTER_ADDR': '10.77.0.1', 'MASTER_PORT': '29600'}
    ranks = []
    with tempfile.TemporaryDirectory() as folder:
        for rank in range(size):
            command = on_host(rank // RANKS_EACH, folder, perf(weft))
            ranks.append(subprocess.Popen(command, env={**common, 'RANK': str(rank)}, stdout=subprocess.PIPE, text=True))
        try:
            output = ranks[0].communicate(timeout=PATIENCE)[0]
            return [rank.wait(timeout=PATIENCE) for rank in ranks], output
        finally:
            for rank in ranks:
                rank.kill()
                rank.wait()


def with_open_mpi(weft):
    """The same by mpirun, which enters the other host where it would use ssh. A batch system's allocation is not this test's.

    Both hosts have this one's name, of which Open MPI 5 believes the processors and not the places asked for.
    """
    with tempfile.TemporaryDirectory() as folder:
        enter = os.path.join(folder, 'enter')
        with open(enter, 'w', encoding='utf-8') as file:
            file.write('#!/bin/sh\ncase $1 in 10.77.0.1) host=host0 ;; *) host=host1 ;; esac\nshift\n'
                       'exec ip netns exec $host sh -c "$*"\n')
        os.chmod(enter, 0o755)
        hosts = ','.join(f'10.77.0.{host + 1}:{RANKS_EACH}' for host in range(HOSTS))
        environment = {name: value for name, value in os.environ.items() if not name.startswith(('SLURM_', 'OMPI_', 'PMI'))}
        root = {'OMPI_ALLOW_RUN_AS_ROOT': '1', 'OMPI_ALLOW_RUN_AS_ROOT_CONFIRM': '1'}
        command = ['ip', 'netns', 'exec', 'host0', 'mpirun', '--mca', 'plm_rsh_agent', enter, '--mca', 'oob_tcp_if_include',
                   'cable0,cable1', '--host', hosts, '--map-by', f'ppr:{RANKS_EACH}:node:OVERSUBSCRIBE',
                   '-n', str(HOSTS * RANKS_EACH), '-x', 'WEFT_TOKEN=0123456789abcdef0123456789abcdef', '-x', 'MASTER_ADDR=10.77.0.1', '-x', 'MASTER_PORT=29601', *perf(weft)]
        done = subprocess.run(command, env={**environment, 'WEFT_LOCAL': 'off', **root}, stdout=subprocess.PIPE, text=True, timeout=PATIENCE, check=False)
        return [done.returncode], done.stdout


def complaints(machines, statuses, output):
    if any(statuses):
        yield f'the ranks ended with {statuses}'
        return
    document = json.loads(output)
    rows = document['results']
    if document['conditions']['processes'] != HOSTS * RANKS_EACH or len(rows) != 6:
        yield f'{document["conditions"]["processes"]} ranks, {len(rows)} sizes'
    said = document['conditions']
    if (said['hosts'], said['processes_here']) != (machines, HOSTS * RANKS_EACH // machines):
        yield f'{said["hosts"]} hosts, {said["processes_here"]} processes on the first'
    for row in rows:
        for place in ('out_of_place', 'in_place'):
            if row[place]['wrong'] != 0 or row[place]['messages'] == 0:
                yield f'{row["bytes"]} bytes, {place}: {row[place]["wrong"]} wrong, {row[place]["messages"]} messages'


def cable_carried():
    """Bytes that crossed the cable."""
    text = subprocess.run(['ip', '-n', 'host0', '-s', '-j', 'link', 'show', 'cable0'], check=True, capture_output=True,
                          text=True, timeout=30).stdout
    return json.loads(text)[0]['stats64']['tx']['bytes']


def main(weft):
    wrong = []
    try:
        make_hosts()
        for way, machines in ((with_torchrun_variables, HOSTS), (with_open_mpi, 1)):
            before = cable_carried()
            found = list(complaints(machines, *way(weft)))
            carried = cable_carried() - before
            print(f'{way.__name__}: {carried} bytes crossed the cable')
            if carried < 1 << 20:
                found.append(f'only {carried} bytes crossed the cable between the hosts')
            wrong += [f'{way.__name__}: {line}' for line in found]
    finally:
        remove_hosts()
    for line in wrong:
        print(f'FAILED: {line}')
    return 1 if wrong else 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1]))
