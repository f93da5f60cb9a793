#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""`weft perf --verbose` tells what each rail of a device carried, and so does a profile: over sockets, on two interfaces of this host.

usage: tests/unit/in_own_network check_rails.py WEFT PROVIDER
"""
import json
import os
import re
import subprocess
import sys
import tempfile


def ip(*arguments):
    subprocess.run(['ip', *arguments], check=True, timeout=30)


def carried(weft, folder):
    """(writes and bytes of both rails) of each process, by its profile."""
    report = subprocess.run([weft, 'report', '--json', folder], capture_output=True, text=True, timeout=60, check=True)
    text = subprocess.run([weft, 'report', '--text', folder], capture_output=True, text=True, timeout=60, check=True).stdout
    assert re.search(r'(?m)^Rails\n.*\n +near0\+near1 +near0 +\d', text), text
    run = json.loads(report.stdout)
    processes = run['processes'] if 'processes' in run else run['run']['processes']
    return [[rail[what] for rail in process['rails'] for what in ('writes', 'bytes')] for process in processes]


def main():
    weft, provider = sys.argv[1:]
    for rail in range(2):
        ip('link', 'add', f'near{rail}', 'type', 'veth', 'peer', 'name', f'far{rail}')
        ip('addr', 'add', f'10.78.{rail}.1/24', 'dev', f'near{rail}')
        for end in ('near', 'far'):
            ip('link', 'set', f'{end}{rail}', 'up')
    environment = dict(os.environ, WEFT_PROVIDER=provider, WEFT_MERGE_NICS='near0,near1', WEFT_STRIPE_MIN='4096')
    folder = tempfile.TemporaryDirectory()
    environment['WEFT_PROFILE'] = folder.name
    ran = subprocess.run([weft, 'perf', 'sendrecv', '-n', '2', '-b', '1M', '-e', '1M', '--iters', '5', '--verbose'],
                         env=environment, capture_output=True, text=True, timeout=120, check=False)
    told = re.findall(r'sent to .* over near0: (\d+) writes, (\d+) bytes[^;]*; near1: (\d+) writes, (\d+) bytes', ran.stderr)
    wrong = ran.returncode != 0 or 'Out of bounds values : 0 OK' not in ran.stdout or len(told) != 2
    for line in told:
        # 5 iterations and more of 1 MiB. How it is shared follows what this host does meanwhile.
        works, first, more, second = map(int, line)
        wrong |= min(works, first, more, second) == 0 or first + second < 5 << 20
    profiles = carried(weft, folder.name)
    wrong |= sorted(profiles) != sorted([int(number) for number in line] for line in told)
    if wrong:
        sys.exit(f'unexpected: exit {ran.returncode}, {told}, {profiles}\n{ran.stdout}\n{ran.stderr}')


if __name__ == '__main__':
    main()
