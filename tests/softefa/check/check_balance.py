# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""usage: check_balance.py LIBRARY_FOLDER PROGRAM PLUGIN CASE...

Cases of tests/system/rails_balance: messages of 16 MiB over 4 NICs as one device, whose speed the cases limit on the
receiving host. The device reads its settings once a process, so each case is a run of its own.
"""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from virtual_hosts import PATIENT, VirtualHosts

NICS = 4
TIMEOUT = 200


def main():
    library, program, plugin, *cases = sys.argv[1:]
    for case in cases:
        with VirtualHosts(library, NICS, **PATIENT) as hosts:
            result = hosts.run([program, '--plugin', plugin, '--mode', 'processes', '--abi', '12', '--merge', '--case', case,
                                *hosts.other('b', SOFTEFA_FAULTS='none')], TIMEOUT)
        print(f'== {case}\n{result.output}{result.counters}', flush=True)
        assert result.status == 0, f'exit status {result.status}'
        assert len(result.nics_used()) == NICS, result.nics_used()


if __name__ == '__main__':
    main()
