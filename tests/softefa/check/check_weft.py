# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""usage: check_weft.py [--alone] LIBRARY_FOLDER PROGRAM PLUGIN RUN...

A test program of weft (tests/system) over libfabric's EFA provider on the software EFA device: two processes on two
virtual hosts, half of the packets out of order, one in a hundred lost, every strict check on. A run is NICS or
NICS:CASE,CASE, the NICs of a host being one device for weft. In the second tier (WEFT_TEST_FULL=1) all cases run with 1, 2
and 4 NICs instead, and with 4 also without faults.

--alone: the program is one process that connects to itself, over one NIC. weft takes the fabric it likes best: version 2
refuses to write to the own endpoint on the plain one.

A run counts only if the device saw what it was told to do: traffic on every NIC, packets held, and lost and overtaken where
there were enough of them for it to be certain.
"""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from virtual_hosts import VirtualHosts

FAULTS = ' '.join(['reorder=50', 'loss=1', os.environ.get('WEFT_TEST_HABITS', '')])  # and what a test adds
ENOUGH = 2000  # packets, of which none is lost once in 10^8 runs
ENOUGH_TOGETHER = 50_000  # packets; where few are under way at once, nothing may be overtaken
FIRST_TIER_TIMEOUT = 280
SECOND_TIER_TIMEOUT = 600
SECOND_TIER = ((1, FAULTS), (2, FAULTS), (4, FAULTS), (4, ''))
SECOND_TIER_ALONE = ((1, FAULTS), (1, ''))
ALONE = {'WEFT_PROVIDER': os.environ.get('WEFT_TEST_PROVIDER', 'ofi')}


def one_run(library, program, plugin, nics, cases, faults, timeout, alone):
    with VirtualHosts(library, nics, faults, **(ALONE if alone else {})) as hosts:
        command = [program, '--plugin', plugin, '--mode', 'processes', '--abi', '12', '--merge', *hosts.other('b'),
                   *(['--case', cases] if cases else [])]
        result = hosts.run(command, timeout)
    print(f'== {nics} NICs, {cases or "all cases"}, faults: {faults or "none"}\n{result.output}{result.counters}', flush=True)
    assert result.status == 0, f'exit status {result.status}'
    assert len(result.nics_used()) == nics, f'of {nics} NICs only these carried anything: {result.nics_used()}'
    sent = result.total('sent')
    certain = {'held': 1, 'lost': ENOUGH, 'out of order': ENOUGH_TOGETHER}
    result.must_have_had(*(name for name, packets in certain.items() if faults and sent >= packets))


def main():
    alone = '--alone' in sys.argv
    library, program, plugin, *runs = [word for word in sys.argv[1:] if word != '--alone']
    if os.environ.get('WEFT_TEST_FULL') == '1':
        for nics, faults in SECOND_TIER_ALONE if alone else SECOND_TIER:
            one_run(library, program, plugin, nics, '', faults, SECOND_TIER_TIMEOUT, alone)
        return
    for run in runs:
        nics, _, cases = run.partition(':')
        one_run(library, program, plugin, int(nics), cases, FAULTS, FIRST_TIER_TIMEOUT, alone)


if __name__ == '__main__':
    main()
