# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""Programs of ours on the software EFA device: their environment, and what the device counted."""
import contextlib
import dataclasses
import glob
import os
import re
import shlex
import shutil
import struct
import subprocess
import tempfile
import time

STATISTICS = re.compile(r'^(?:\[rank \d+\] )?softefa: (\w+): (sent \d+.*)$', re.M)
COUNTER = re.compile(r'([a-z ]+?) (\d+)(?:, |$)')

# For checks that are not about silence: where processors are few, a card's work may rest for over a second.
PATIENT = {'WEFT_RAIL_TIMEOUT': '5000'}


@dataclasses.dataclass
class Result:
    status: int
    output: str  # both streams of all processes, without the statistics
    nics: dict  # name: {counter: sum over all processes that lived to say it}

    def total(self, counter):
        return sum(counters[counter] for counters in self.nics.values())

    def must_have_had(self, *counters):
        """A run without the faults that it is about proves nothing."""
        for counter in counters:
            assert self.total(counter) > 0, f'no packet was {counter}: this run shows nothing'

    def nics_used(self):
        return sorted(name for name, counters in self.nics.items() if counters['received'] > 0)

    @property
    def counters(self):
        return '\n'.join(f'{name}: ' + ', '.join(f'{what} {n}' for what, n in counters.items()) for name, counters in
                         sorted(self.nics.items()))


def parse(status, text):
    nics = {}
    for name, counters in STATISTICS.findall(text):
        for what, number in COUNTER.findall(counters):
            sums = nics.setdefault(name, {})
            sums[what] = sums.get(what, 0) + int(number)
    return Result(status, STATISTICS.sub('', text).replace('\n\n', '\n'), nics)


def maker_of(region):
    """The process that made libfabric's shared memory (struct smr_region begins with 4 bytes and that)."""
    with open(region, 'rb') as file:
        return struct.unpack('=4xi', file.read(8))[0]


def remove_abandoned(since):
    """4 MiB a card: libfabric 1.17 opens that memory even if it may not use it, and a process that is killed leaves it behind."""
    for region in glob.glob('/dev/shm/fe80::5efa:*'):  # named after the card, and no other has such an address
        with contextlib.suppress(OSError, struct.error):
            if os.stat(region).st_ctime >= since and not os.path.exists(f'/proc/{maker_of(region)}'):
                os.unlink(region)


class VirtualHosts:
    """A fabric of its own, on which a program plays host `a` and may start others on other hosts; gone on exit."""

    def __init__(self, library, nics, faults='', **more):
        self.began = time.time()
        self.fabric = f'weft-{os.getpid()}'
        self.folder = tempfile.mkdtemp()
        # All goes through the cards, past the shared memory that libfabric has for processes of one host.
        # glibc overwrites what is freed, for users of freed memory to be found: providers/ofi/freed_early.h.
        self.environment = {**os.environ, 'LD_LIBRARY_PATH': library, 'WEFT_PROVIDER': os.environ.get('WEFT_TEST_PROVIDER', 'ofi:efa'), 'SOFTEFA_FABRIC': self.fabric,
                            'SOFTEFA_HOST': 'a', 'SOFTEFA_NICS': str(nics), 'SOFTEFA_FAULTS': faults, 'SOFTEFA_STRICT': 'all',
                            'SOFTEFA_STATISTICS': '1', 'FI_EFA_ENABLE_SHM_TRANSFER': '0', 'MALLOC_PERTURB_': '165',
                            'WEFT_MERGE_NICS': 'off', **more}  # the programs merge

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(f'/dev/shm/softefa-{os.getuid()}/{self.fabric}', ignore_errors=True)
        shutil.rmtree(self.folder)
        remove_abandoned(self.began)

    def changing_faults(self, host, first, then):
        """For a host's SOFTEFA_CONTROL: a file with its first faults, and the command that puts others in their place."""
        path = os.path.join(self.folder, host)
        for name, faults in ((path, first), (path + '.then', then)):
            with open(name, 'w', encoding='ascii') as file:
                file.write(faults)
        return path, shlex.join(['mv', path + '.then', path])

    @staticmethod
    def other(host, **more):
        """Options of the test programs that put their second process on another host."""
        return [word for name, value in {'SOFTEFA_HOST': host, **more}.items() for word in ('--other', f'{name}={value}')]

    def run(self, command, timeout):
        result = subprocess.run(command, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                timeout=timeout, check=False)
        return parse(result.returncode, result.stdout)
