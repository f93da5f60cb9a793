# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""usage: check_gpu.py LIBRARY_FOLDER GPU_FOLDER PROGRAM PLUGIN [CASES]

GPU memory through weft over libfabric's EFA provider: the software GPU's memory, registered with the software EFA device by
its dma-bufs, two processes on two virtual hosts. Every strict check of both is on: the processor must not touch what is the
GPU's, nor the cards what is not registered. It wants a libfabric with the fabric efa-direct (2.0 and later).
"""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from virtual_hosts import VirtualHosts

GPU = {'SOFTGPU_DMABUF': 'card', 'SOFTGPU_STRICT': '1', 'SOFTGPU_ORDERED': '0'}
RUNS = ((1, 'reorder=50 loss=1'), (2, 'reorder=50'))


def main():
    library, gpu, program, plugin, *cases = sys.argv[1:]
    for nics, faults in RUNS:
        with VirtualHosts(f'{library}:{gpu}', nics, faults, **GPU) as hosts:
            command = [program, '--plugin', plugin, '--mode', 'processes', '--abi', '12', '--merge', *hosts.other('b'),
                       *(['--case', cases[0]] if cases else [])]
            result = hosts.run(command, 280)
        print(f'== {nics} NICs, faults: {faults}\n{result.output}{result.counters}', flush=True)
        assert result.status == 0, f'exit status {result.status}'
        assert len(result.nics_used()) == nics, f'of {nics} NICs only these carried anything: {result.nics_used()}'


if __name__ == '__main__':
    main()
