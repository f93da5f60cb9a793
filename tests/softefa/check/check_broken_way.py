# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""usage: check_broken_way.py LIBRARY_FOLDER PROGRAM PLUGIN [NICS...]

Host `a` sends to `b` and `c`. One of its NICs hears no more of `b`, and `b` nothing of it, while `c` is reached by all of
them. The device waits long for such a peer, so what is under way there can only be taken back by closing what the NIC's
traffic to `c` goes through, too.
"""
import os
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from virtual_hosts import VirtualHosts

FAULTS = 'reorder=50 loss=1'
MUTE = 1  # the number of the NIC
PATIENCE = '3s'  # of the device, more than weft's
TIMEOUT = 240


def with_control(folder, host, other):
    """Writes the host's faults, and says what command makes its NIC deaf to the other host."""
    path = os.path.join(folder, host)
    for name, text in ((path, FAULTS), (path + '.new', f'{FAULTS} nic{MUTE}.mute={other}')):
        with open(name, 'w', encoding='ascii') as file:
            file.write(text)
    return f'mv {path}.new {path}'


def one_run(library, program, plugin, nics):
    with tempfile.TemporaryDirectory() as folder:
        silence = [with_control(folder, here, there) for here, there in ('ab', 'ba')]
        with VirtualHosts(library, nics, SOFTEFA_CONTROL=f'{folder}/a', SOFTEFA_UNRESPONSIVE=PATIENCE) as hosts:
            third = ['--third' if word == '--other' else word for word in hosts.other('c', SOFTEFA_CONTROL='', SOFTEFA_FAULTS=FAULTS)]
            result = hosts.run([program, '--plugin', plugin, '--mode', 'processes', '--abi', '12', '--merge', '--case',
                                'way-breaks', '--break', '; '.join(silence), *hosts.other('b', SOFTEFA_CONTROL=f'{folder}/b'),
                                *third], TIMEOUT)
    print(f'== one of {nics} NICs does not reach one of two peers\n{result.output}{result.counters}', flush=True)
    assert result.status == 0, f'exit status {result.status}'
    for counter in ('held', 'lost', 'out of order'):
        assert result.total(counter) > 0, f'no packet was {counter}: this run shows nothing'


def main():
    library, program, plugin, *runs = sys.argv[1:]
    for nics in runs * (5 if os.environ.get('WEFT_TEST_FULL') == '1' else 1):
        one_run(library, program, plugin, int(nics))


if __name__ == '__main__':
    main()
