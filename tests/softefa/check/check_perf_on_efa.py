# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""usage: check_perf_on_efa.py LIBRARY_FOLDER WEFT MAXBYTES

`weft perf all_reduce` of 4 ranks over 4 EFA cards as one device, then `put_signal` and `get` over the first card, as one-sided operations
have no devices of several cards; packets out of order and lost: every element right, and no signal before the bytes of its put. The
four ranks are one host.
"""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from virtual_hosts import VirtualHosts

NICS = 4
RUNS = (('all_reduce', ['--merge'], NICS), ('put_signal', [], 1), ('get', [], 1))


def main():
    library, weft, most = sys.argv[1:]
    for operation, how, cards in RUNS:
        with VirtualHosts(library, NICS, 'reorder=50 loss=1') as hosts:
            result = hosts.run([weft, 'perf', operation, '-n', '4', *how, '-b', '8', '-e', most, '-f', '16', '--iters', '3',
                                '-w', '1', '-c', '1'], 90)
        print(f'{result.output}{result.counters}')
        assert result.status == 0, f'{operation}: exit status {result.status}'
        assert len(result.nics_used()) == cards, result.nics_used()
        result.must_have_had('held', 'lost', 'out of order')


if __name__ == '__main__':
    main()
