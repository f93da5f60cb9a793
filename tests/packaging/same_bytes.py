#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""Two releases of one commit, built in two places without a compiler cache, have the same bytes and name no place.

usage: same_bytes.py TOP [KIND,...]
"""
import hashlib
import os
import pathlib
import subprocess
import sys
import tempfile


def release(top, kinds, commit, folder):
    place = folder / 'place'
    place.mkdir(parents=True)
    cache = {} if os.environ.get('WEFT_TEST_CACHED') else {'CCACHE_DISABLE': '1'}
    subprocess.run([str(top / 'scripts/release'), '--only', kinds, '--output', str(folder / 'made'), commit], check=True,
                   env={**os.environ, **cache, 'TMPDIR': str(place)}, stdout=subprocess.DEVNULL)
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (folder / 'made').iterdir()}


def main(arguments):
    if not arguments:
        sys.exit(__doc__)
    top, kinds = pathlib.Path(arguments[0]), (arguments[1:] or ['source,tarball,deb,rpm,wheel'])[0]
    commit = subprocess.run(['git', '-C', str(top), 'rev-parse', 'HEAD'], check=True, capture_output=True, text=True).stdout.strip()
    with tempfile.TemporaryDirectory(prefix='weft-twice-') as folder:
        first, second = (release(top, kinds, commit, pathlib.Path(folder) / name) for name in ('one', 'a-place-with-another-name'))
        differing = sorted(name for name in first.keys() | second.keys() if first.get(name) != second.get(name))
    print(*(f'{name}: {digest}' for name, digest in sorted(first.items())), sep='\n')
    print(f'differing: {differing}')
    return 1 if differing or not first else 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
