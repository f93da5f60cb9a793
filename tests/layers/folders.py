# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""Refuses folders of one machine in meson files and scripts: what they name by an absolute path below /usr, /opt, /home and
the like may be missing on the next machine. Every exception stands here with its reason."""
import fnmatch
import re

# A path below one of the folders that differ from machine to machine.
ABSOLUTE = re.compile(r'(?:^|(?<=[\s"\'=(,\[:]))/(?:usr|opt|home|root|work|mnt|media|srv|var)(?:/[A-Za-z0-9_.+*-]+)*')
EVERYWHERE = ('/usr/bin/env',)

# (path pattern, folder pattern, reason)
ALLOWED = [
    ('tests/support/cuda_headers.py', '/usr/*', 'some of the places where NVIDIA\'s headers may be; none has to exist'),
    ('scripts/lib/nccl_host.py', '/usr/local/cuda*', 'likewise for its libraries'),
    ('tests/meson.build', '/usr/local/cuda*', 'a sentence for whoever has none'),
    ('tests/plan/meson.build', '/usr/bin/python3', 'the interpreter that has Debian\'s protobuf, if it is there; else any'),
    ('scripts/bake', '/usr/*', 'the PATH inside the image that it changes'),
    ('scripts/rdma-vm', '/usr/sbin', 'added to PATH, in case it is not there'),
    ('scripts/test-in', '/home', 'the home of a user of the root that it made'),
    ('scripts/lib/root.sh', '/usr/*', 'the PATH of a root that it made'),
    ('scripts/lib/root.sh', '/root', 'likewise its home'),
    ('scripts/lib/guest_*', '*', 'paths of the guest that it made'),
]


def is_script(path, text):
    if path.startswith(('tests/', 'packaging/')) and not path.endswith('meson.build') and path != 'tests/support/cuda_headers.py':
        return False  # what a test makes up is not a place of this machine
    return path.endswith(('meson.build', '.sh')) or path.startswith('.ci/') or (path.startswith('scripts/') and (text.startswith('#!') or path.endswith('.py')))


def without_comment(line):
    return re.split(r'(?:^|\s)#\s', line, maxsplit=1)[0]


def check(path, text):
    """(line, complaint) for each folder of one machine."""
    if not is_script(path, text):
        return
    for number, line in enumerate(text.splitlines(), 1):
        for match in ABSOLUTE.finditer(without_comment(line)):
            folder = match[0]
            if folder in EVERYWHERE:
                continue
            if not any(fnmatch.fnmatch(path, where) and fnmatch.fnmatch(folder, what) for where, what, _ in ALLOWED):
                yield number, f'names {folder}, which another machine may not have; look for it, or list it with a reason in tests/layers/folders.py'
