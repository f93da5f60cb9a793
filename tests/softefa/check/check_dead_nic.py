# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""usage: check_dead_nic.py LIBRARY_FOLDER PROGRAM PLUGIN [NICS...]

One NIC of several dies on one host while messages are under way in both directions, with packets out of order and lost. The
NIC takes the work along that it was just given: a run counts only if that was flushed, and the NIC carried far less than the
others on average, which went on.
"""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from virtual_hosts import VirtualHosts

FAULTS = 'reorder=50 loss=1 delay=2ms'  # so that work is always under way
DEAD = 1  # the number of the NIC
TIMEOUT = 240


def one_run(library, program, plugin, nics):
    with VirtualHosts(library, nics) as hosts:
        faults, kill = hosts.changing_faults('a', FAULTS, f'{FAULTS} nic{DEAD}.dying=1')
        hosts.environment['SOFTEFA_CONTROL'] = faults
        result = hosts.run([program, '--plugin', plugin, '--mode', 'processes', '--abi', '12', '--merge',
                            '--break', f'(sleep 0.02; {kill}) &',  # with traffic going on
                            *hosts.other('b', SOFTEFA_CONTROL='', SOFTEFA_FAULTS=FAULTS)], TIMEOUT)
    print(f'== one of {nics} NICs dies\n{result.output}{result.counters}', flush=True)
    assert result.status == 0, f'exit status {result.status}'
    names = sorted(result.nics)
    assert len(names) == nics, names
    dead, others = result.nics[names[DEAD]], [result.nics[name] for name in names if name != names[DEAD]]
    # Taken together: which of them carries how much is a matter of how fast each seems to be.
    carried = [nic['bytes received'] for nic in others]
    assert 2 * dead['bytes received'] < sum(carried) / len(carried), 'the others did not go on without it'
    assert dead['flushed'] > 0, 'nothing was under way on the NIC when it died'
    result.must_have_had('held', 'lost', 'out of order')


def main():
    library, program, plugin, *runs = sys.argv[1:]
    for nics in runs * (20 if os.environ.get('WEFT_TEST_FULL') == '1' else 1):
        one_run(library, program, plugin, int(nics))


if __name__ == '__main__':
    main()
