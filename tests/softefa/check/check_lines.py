# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""usage: check_lines.py LIBRARY_FOLDER NEWER_LIBFABRIC WEFT PROGRAM PLUGIN

Whether lines of 128 bytes land in order is asked of each EFA card and told to the tuner: yes, no, not to be asked of this
fabric, and a card that says yes at first and no to the endpoint that carries data, which must not be opened then.
"""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from virtual_hosts import VirtualHosts

DIRECT = {'WEFT_PROVIDER': 'ofi:efa-direct'}


def promised(hosts, weft):
    text = hosts.run([weft, 'info', '--tuner'], 60).output
    promises = hosts.run([weft, 'info', '--json'], 60).output.count('"lines128InOrder": true')
    priced_out = 'LL128 between nodes is priced out' in text or 'LL128 between nodes is unsafe' in text
    print(f'{promises} cards promise it, LL128 {"is priced out" if priced_out else "is as NCCL has it"}', flush=True)
    assert priced_out == (promises == 0), text
    return promises


def connects(hosts, program, plugin, case, words=()):
    result = hosts.run([program, '--plugin', plugin, '--mode', 'processes', '--abi', '12', '--merge', '--verbose', '--case', case,
                        '--timeout', '60', *hosts.other('b')], 150)
    print(result.output, flush=True)
    assert result.status == 0, f'exit status {result.status}'
    assert not words or any(all(word in line for word in words) for line in result.output.splitlines()), words


def main():
    library, newer, weft, program, plugin = sys.argv[1:]
    direct = DIRECT | {'WEFT_LIBFABRIC': newer}
    with VirtualHosts(library, 2, NEWER_LINES='1', **direct) as hosts:
        assert promised(hosts, weft) == 2
        connects(hosts, program, plugin, 'works')
    with VirtualHosts(library, 2, NEWER_LINES='0', **direct) as hosts:
        assert promised(hosts, weft) == 0
        connects(hosts, program, plugin, 'works')
    with VirtualHosts(library, 2) as hosts:  # may copy
        assert promised(hosts, weft) == 0
    with VirtualHosts(library, 1, NEWER_LINES='once', WEFT_CONNECT_TIMEOUT='60000', **direct) as hosts:
        connects(hosts, program, plugin, 'refused', ('connect failed', 'rdmap', '128-byte lines'))


if __name__ == '__main__':
    main()
