# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""usage: check_broken_way.py LIBRARY_FOLDER PROGRAM PLUGIN [NICS...]

Host `a` sends to `b` and `c`. One of its NICs hears no more of `b`, and `b` nothing of it, while `c` is reached by all of
them. The device waits long for such a peer, so what is under way there can only be taken back by closing what the NIC's
traffic to `c` goes through, too.
"""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from virtual_hosts import VirtualHosts

FAULTS = 'reorder=50 loss=1'
MUTE = 1  # the number of the NIC
PATIENCE = '3s'  # of the device, more than weft's
TIMEOUT = 240


def one_run(library, program, plugin, nics):
    with VirtualHosts(library, nics, SOFTEFA_UNRESPONSIVE=PATIENCE) as hosts:
        (faults_of_a, deaf_to_b), (faults_of_b, deaf_to_a) = (
            hosts.changing_faults(here, FAULTS, f'{FAULTS} nic{MUTE}.mute={there}') for here, there in ('ab', 'ba'))
        hosts.environment['SOFTEFA_CONTROL'] = faults_of_a
        third = ['--third' if word == '--other' else word for word in hosts.other('c', SOFTEFA_CONTROL='', SOFTEFA_FAULTS=FAULTS)]
        result = hosts.run([program, '--plugin', plugin, '--mode', 'processes', '--abi', '12', '--merge', '--case',
                            'way-breaks', '--break', f'{deaf_to_b}; {deaf_to_a}',
                            *hosts.other('b', SOFTEFA_CONTROL=faults_of_b), *third], TIMEOUT)
    print(f'== one of {nics} NICs does not reach one of two peers\n{result.output}{result.counters}', flush=True)
    assert result.status == 0, f'exit status {result.status}'
    result.must_have_had('held', 'lost', 'out of order')


def main():
    library, program, plugin, *runs = sys.argv[1:]
    for nics in runs * (5 if os.environ.get('WEFT_TEST_FULL') == '1' else 1):
        one_run(library, program, plugin, int(nics))


if __name__ == '__main__':
    main()
