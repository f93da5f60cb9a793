# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""What callgrind has counted, by whose code it was."""
import collections
import re

LIBRARY = 'libnccl-net-weft.so'

Costs = collections.namedtuple('Costs', 'weft libfabric rest')


def costs(path):
    """Self cost by the file of the code, from callgrind's format: positions and costs below ob= lines."""
    names, inside, skip, found = {}, '', False, collections.Counter()
    for line in path.read_text(encoding='utf-8', errors='replace').splitlines():
        named = re.match(r'(c?)ob=\((\d+)\)(?: (.*))?$', line)
        if named:
            names.setdefault(named[2], named[3] or '')
            if not named[1]:
                inside = names[named[2]]
        elif line.startswith('calls='):
            skip = True  # the line after it is the callee's inclusive cost
        elif line[:1].isdigit() or line[:1] in '+-*':
            if not skip:
                found[owner(inside)] += sum(map(int, line.split()[1:2]))  # a cost of zero is left out
            skip = False
    return Costs(found['weft'], found['libfabric'], found['rest'])


def owner(file):
    if file.endswith(LIBRARY):
        return 'weft'
    return 'libfabric' if '/libfabric.so' in file else 'rest'
