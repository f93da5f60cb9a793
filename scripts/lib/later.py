# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""Which of the EFA tests run once more with a later Debian's libfabric, over each of the two fabrics that it has."""
import os
import re
import subprocess

FABRICS = {'': 'ofi:efa', '-direct': 'ofi:efa-direct'}
OF_WEFT = 'efa-weft-'
# It plays a newer libfabric to the old one.
HERE_ONLY = {'efa-weft-lines'}
PLAIN_ONLY = {'efa-weft-setup'}  # most cards that lack something are not shown by the direct fabric
# libfabric 2.1 asks every peer but itself what its card can do, and so refuses a write with data to the own endpoint: a
# process cannot talk to itself within one engine on the plain fabric. Which card gets how much is the same on both.
DIRECT_ONLY = {'efa-weft-lifecycle', 'efa-weft-balance'}


def libraries_of(program):
    """Paths of what the tools are linked with and a later release has in another version only."""
    listed = subprocess.run(['ldd', program], capture_output=True, text=True, check=False).stdout
    return re.findall(r'libfmt\S* => (\S+)', listed)


def command_of(test):
    """The interpreter is the other release's."""
    first, *rest = test['cmd']
    return ['python3' if os.path.basename(first).startswith('python') else first, *rest]


def fabrics_of(name):
    """[(suffix of the test's name, fabric or None)]"""
    if not name.startswith(OF_WEFT):
        return [('', None)]
    left_out = '-direct' if name in PLAIN_ONLY else '' if name in DIRECT_ONLY else None
    return [item for item in FABRICS.items() if item[0] != left_out]


def tests_of(tests, names, folder):
    """From Meson's list of all tests and the names of those of the suite: what run_listed.py reads.

    Programs start in the build folder, as Meson starts them."""
    listed = []
    for test in tests:
        if test['name'] not in names or test['name'] in HERE_ONLY:
            continue
        for suffix, fabric in fabrics_of(test['name']):
            environment = {**test['env'], **({'WEFT_TEST_PROVIDER': fabric} if fabric else {})}
            listed.append({'name': test['name'] + suffix, 'command': command_of(test), 'environment': environment,
                           'timeout': test['timeout'], 'directory': test.get('workdir') or str(folder)})
    return listed
