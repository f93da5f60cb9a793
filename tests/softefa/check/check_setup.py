# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""usage: check_setup.py LIBRARY_FOLDER PROGRAM PLUGIN [SCENARIO...]

Hosts and cards that are not what they should be: tests/system/faults_setup on the software EFA device. What cannot work
ends in an error on both sides, long before a connection's deadline, and one line names the object and the next step; the
rest works all the same.
"""
import ctypes
import dataclasses
import os
import re
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from virtual_hosts import PATIENT, VirtualHosts

TIMEOUT = 150


@dataclasses.dataclass
class Scenario:
    case: str = 'works'
    nics: int = 2
    here: dict = dataclasses.field(default_factory=dict)
    there: dict = dataclasses.field(default_factory=dict)
    words: tuple = ()  # one line of the plugin's has them all
    status: int = 0


def libfabric_without(folder, library):
    """A copy of this machine's libfabric that needs another library instead, which is nowhere."""
    ctypes.CDLL('libfabric.so.1')
    with open('/proc/self/maps', encoding='ascii', errors='replace') as maps:
        paths = [line.split()[-1] for line in maps if re.search(r'/libfabric\.so', line)]
    with open(paths[0], 'rb') as file:
        content = file.read()
    missing = library[:-1] + '9'
    path = os.path.join(folder, 'libfabric.so.1')
    with open(path, 'wb') as file:
        file.write(content.replace(library.encode() + b'\0', missing.encode() + b'\0'))
    return path, missing


PROVIDER = os.environ.get('WEFT_TEST_PROVIDER', 'ofi:efa').removeprefix('ofi:')
NO_DEVICE = ('no device',)
SCENARIOS = {
    'send-only': Scenario(here={'SOFTEFA_GENERATION': 'send'}),
    'read-and-write': Scenario(here={'SOFTEFA_GENERATION': 'read'}, there={'SOFTEFA_GENERATION': 'write'}),
    'write-and-send': Scenario(here={'SOFTEFA_GENERATION': 'inorder'}, there={'SOFTEFA_GENERATION': 'send'}),
    'more-cards-here': Scenario(nics=4, there={'SOFTEFA_NICS': '1'}),
    'more-cards-there': Scenario(nics=2, there={'SOFTEFA_NICS': '3'}),
    'peer-returns': Scenario('returns', nics=1),
    'no-memory-at-all': Scenario('refused', here={'SOFTEFA_MEMLOCK': '65536'}, words=('connect', 'ulimit -l')),
    'no-memory-there': Scenario('refused', there={'SOFTEFA_MEMLOCK': '65536'}, words=('connect', 'ulimit -l')),
    'little-memory': Scenario('registered-to-the-end', here={'SOFTEFA_MEMLOCK': str(192 << 20)}, words=('rdmap', 'ulimit -l')),
    'few-registrations': Scenario('registered-to-the-end', here={'SOFTEFA_MAX_MR': '48'}, words=('rdmap', 'ulimit -l')),
    'no-address-handle': Scenario('refused', here={'SOFTEFA_MAX_AH': '1'}, words=('address', 'fe80::', 'rdmap', 'fewer hosts')),
    'no-address-handle-there': Scenario('refused', there={'SOFTEFA_MAX_AH': '1'}, words=('address', 'fe80::', 'fewer hosts')),
    'no-efa-provider': Scenario(here={'FI_PROVIDER': '^efa'}, words=NO_DEVICE + (f'"{PROVIDER}"', 'fi_info -l', 'FI_PROVIDER'), status=1),
    'no-card': Scenario(here={'SOFTEFA_NICS': '0'}, words=NO_DEVICE + (f'"{PROVIDER}"', 'ls /sys/class/infiniband'), status=1),
    'no-libefa': Scenario(words=NO_DEVICE + ('libefa.so.9', 'ibverbs-providers', 'WEFT_LIBFABRIC'), status=1),
}


def run(library, program, plugin, name):
    scenario = SCENARIOS[name]
    with tempfile.TemporaryDirectory() as folder:
        here = dict(scenario.here)
        if name == 'no-libefa':
            here['WEFT_LIBFABRIC'] = libfabric_without(folder, 'libefa.so.1')[0]
        with VirtualHosts(library, scenario.nics, WEFT_CONNECT_TIMEOUT='60000',
                          **PATIENT, **here) as hosts:
            # The other process starts with this one's environment, so it undoes what is not for it.
            undo = {'SOFTEFA_GENERATION': 'inorder', 'SOFTEFA_MEMLOCK': str(1 << 40), 'SOFTEFA_MAX_MR': '65535',
                    'SOFTEFA_MAX_AH': '4096'}
            there = {key: value for key, value in undo.items() if key in here} | scenario.there
            result = hosts.run([program, '--plugin', plugin, '--mode', 'processes', '--abi', '12', '--merge', '--verbose',
                                '--timeout', '60', '--case', scenario.case, *hosts.other('b', **there)], TIMEOUT)
    print(f'== {name}\n{result.output}{result.counters}', flush=True)
    assert result.status == scenario.status, f'exit status {result.status}'
    lines = result.output.splitlines()
    assert not scenario.words or any(all(word in line for word in scenario.words) for line in lines), \
        f'no line has all of {scenario.words}'


def main():
    library, program, plugin, *wanted = sys.argv[1:]
    for name in wanted or SCENARIOS:
        # The direct fabric is not there without writes of the card's own.
        if PROVIDER == 'efa-direct' and 'SOFTEFA_GENERATION' in SCENARIOS[name].here:
            continue
        run(library, program, plugin, name)


if __name__ == '__main__':
    main()
