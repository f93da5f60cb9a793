# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""usage: check_perf_on_efa.py LIBRARY_FOLDER WEFT MAXBYTES

`weft perf all_reduce -n 4` over 4 EFA cards as one device, packets out of order and lost: every element right. The four
ranks are one host.
"""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from virtual_hosts import VirtualHosts

NICS = 4


def main():
    library, weft, most = sys.argv[1:]
    with VirtualHosts(library, NICS, 'reorder=50 loss=1') as hosts:
        result = hosts.run([weft, 'perf', 'all_reduce', '-n', '4', '--merge', '-b', '8', '-e', most, '-f', '16', '--iters', '3',
                            '-w', '1', '-c', '1'], 280)
    print(f'{result.output}{result.counters}')
    assert result.status == 0, f'exit status {result.status}'
    assert len(result.nics_used()) == NICS, result.nics_used()
    result.must_have_had('held', 'lost', 'out of order')


if __name__ == '__main__':
    main()
