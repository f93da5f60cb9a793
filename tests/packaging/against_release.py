#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""The last release in a job with this build: what docs/compatibility.md promises of mixed versions.

usage: against_release.py WEFT PLUGIN [REVISION]

WEFT and PLUGIN are this build's. REVISION is the other side, a tag or a commit: the newest tag `v*` before HEAD unless given; without
one there is nothing to try, and the exit status is 77. Its plugin is built from the repository, and two ranks, one with each plugin,
verify an all_reduce over every fabric that works on one machine, each of the two as rank 0 once. Of one wire version they must be
right; of two, both ranks must end in time and one of them name both versions.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

TOP = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / 'scripts/lib'))
sys.path.insert(0, str(TOP / 'tests/support'))
import own_sockets
from ports import free_port

FABRICS = ('tcp', own_sockets.fabric(), 'ofi:shm')
SKIP = 77
PATIENCE = 120  # seconds, for a run that needs two


def git(*arguments):
    return subprocess.run(['git', '-C', TOP, *arguments], text=True, capture_output=True, check=False)


def last_release():
    """The newest tag of a release before this commit; empty where there is none."""
    return git('describe', '--tags', '--abbrev=0', '--match', 'v[0-9]*', 'HEAD^').stdout.strip()


def wire_version(revision):
    found = re.search(r'constexpr uint\d+_t kWireVersion = (\d+);', git('grep', '-h', 'kWireVersion = ', revision, '--', 'src').stdout)
    if not found:
        sys.exit(f'FAILED: {revision} does not say which wire version it speaks')
    return int(found[1])


def build(revision, folder):
    """The plugin of a revision."""
    source = folder / 'source'
    source.mkdir()
    archive = subprocess.Popen(['git', '-C', TOP, 'archive', revision], stdout=subprocess.PIPE)
    subprocess.run(['tar', '-x', '-C', source], stdin=archive.stdout, check=True)
    if archive.wait() != 0:
        sys.exit(f'FAILED: there is no revision "{revision}"')
    plugin = 'plugin/libnccl-net-weft.so'
    for command in (['meson', 'setup', folder / 'build', source, '-Dbuildtype=release', '-Dtests=disabled', '-Dtools=disabled'],
                    ['ninja', '-C', folder / 'build', plugin]):
        done = subprocess.run(command, text=True, capture_output=True, check=False)
        if done.returncode != 0:
            sys.exit(f'FAILED: {revision} does not build here:\n{done.stdout[-3000:]}{done.stderr[-3000:]}')
    return folder / 'build' / plugin


def job(weft, plugins, fabric):
    """Exit statuses of two ranks, none of one that does not end, and all that they say."""
    # Shared memory of one host would stand in for the fabric; and of the two only this build knows it, maybe.
    environment = {**os.environ, 'WORLD_SIZE': '2', 'MASTER_ADDR': '127.0.0.1', 'MASTER_PORT': str(free_port()),
                   'WEFT_PROVIDER': fabric, 'WEFT_LOCAL': 'off', 'WEFT_SOCKET_IFNAME': '=lo'}
    ranks = [subprocess.Popen([weft, 'perf', 'all_reduce', '-b', '8', '-e', '1M', '-f', '16', '--iters', '20', '--plugin', plugin],
                              env={**environment, 'RANK': str(rank)}, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
             for rank, plugin in enumerate(plugins)]
    statuses, texts = [], []
    for rank in ranks:
        try:
            texts.append(rank.communicate(timeout=PATIENCE)[0])
            statuses.append(rank.returncode)
        except subprocess.TimeoutExpired:
            rank.kill()
            texts.append(rank.communicate()[0])
            statuses.append(None)
    return statuses, '\n'.join(texts)


def complaint(statuses, text, versions):
    if None in statuses:
        return f'a rank did not end within {PATIENCE} s'
    if versions[0] == versions[1]:
        return f'the ranks ended with {statuses}' if any(statuses) else ''
    if not all(statuses):
        return f'the ranks ended with {statuses}, though they speak different versions'
    named = any(str(versions[0]) in line and str(versions[1]) in line for line in text.splitlines() if 'wire version' in line)
    return '' if named else f'no rank names the wire versions {versions[0]} and {versions[1]}'


def main(arguments):
    if len(arguments) not in (2, 3):
        sys.exit(__doc__)
    weft, plugin = arguments[:2]
    revision = arguments[2] if len(arguments) == 3 else last_release()
    if not revision:
        print('skipped: no release is tagged before this commit')
        return SKIP
    versions = (wire_version(revision), wire_version('HEAD'))
    print(f'{revision} speaks wire version {versions[0]}, this build {versions[1]}', flush=True)
    wrong = tried = 0
    with tempfile.TemporaryDirectory(prefix='weft-release-') as folder:
        older = build(revision, pathlib.Path(folder))
        for fabric in FABRICS:
            for plugins in ((older, plugin), (plugin, older)):
                statuses, text = job(weft, plugins, fabric)
                if 'there is no such provider' in text:
                    print(f'{fabric}: {revision} does not know it', flush=True)
                    break
                tried += 1
                why = complaint(statuses, text, versions)
                first = revision if plugins[0] == older else 'this build'
                print(f'{fabric}, {first} is rank 0: {why or "as promised"}', flush=True)
                if why:
                    wrong += 1
                    print(text[-6000:])
    return 0 if tried and not wrong else 1


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
