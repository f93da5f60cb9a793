# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""Which of the EFA tests run once more with a later Debian's libfabric, over each of the two fabrics that it has."""
import os

FABRICS = {'': 'ofi:efa', '-direct': 'ofi:efa-direct'}
OF_WEFT = 'efa-weft-'
# The tools are linked with this release's libfmt, which the later one has not.
HERE_ONLY = {'efa-weft-perf', 'efa-weft-lines'}
# A process connects to itself without shared memory: posting was seen to fail with libfabric 2.1's plain fabric.
HERE_ONLY |= {'efa-weft-lifecycle'}


def command_of(test):
    """The interpreter is the other release's."""
    first, *rest = test['cmd']
    return ['python3' if os.path.basename(first).startswith('python') else first, *rest]


def tests_of(tests, names, folder):
    """From Meson's list of all tests and the names of those of the suite: what run_listed.py reads.

    Programs start in the build folder, as Meson starts them."""
    listed = []
    for test in tests:
        if test['name'] not in names or test['name'] in HERE_ONLY:
            continue
        for suffix, fabric in FABRICS.items() if test['name'].startswith(OF_WEFT) else [('', None)]:
            environment = {**test['env'], **({'WEFT_TEST_PROVIDER': fabric} if fabric else {})}
            listed.append({'name': test['name'] + suffix, 'command': command_of(test), 'environment': environment,
                           'timeout': test['timeout'], 'directory': test.get('workdir') or str(folder)})
    return listed
