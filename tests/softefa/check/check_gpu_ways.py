# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""usage: check_gpu_ways.py LIBRARY_FOLDER GPU_FOLDER WEFT PROGRAM PLUGIN

Which way weft takes to a GPU's memory, and what it says about the others, on the software GPU and the software EFA device: as
`weft info --json` has it where a driver, a card or a setting refuses, and in a run whose card has few registrations.
It wants a libfabric with the fabric efa-direct (2.0 and later).
"""
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from virtual_hosts import VirtualHosts

GPU = {'SOFTGPU_DMABUF': 'card', 'SOFTGPU_STRICT': '1', 'SOFTGPU_ORDERED': '0'}
STAGED = 'through host memory'

# What is changed, the way that is taken, and words in the reasons of those that are not.
CASES = (
    ({}, 'dma-buf', ()),
    ({'SOFTGPU_DMABUF': '0', 'SOFTGPU_STRICT': '0'}, 'peer memory', ('the driver does not offer it',)),
    ({'SOFTGPU_DMABUF': '0'}, STAGED, ('the driver does not offer it', 'no module for it is loaded')),
    ({'SOFTGPU_DMABUF': '0', 'SOFTGPU_GDR': '0'}, STAGED, ('this GPU has no GPUDirect RDMA',)),
    ({'SOFTEFA_FAULTS': 'fail=reg_dmabuf_mr:524@1'}, STAGED, ('PCIe or C2C, wrongly paired', 'no module for it is loaded')),
    ({'SOFTEFA_FAULTS': 'fail=reg_dmabuf_mr:95@1'}, STAGED, ('its kernel driver registers no dma-buf',)),
    ({'SOFTEFA_FAULTS': 'fail=reg_dmabuf_mr:12@1'}, STAGED, ("the GPU's BAR or the card's table is full",)),
    ({'SOFTEFA_FAULTS': 'fail=reg_dmabuf_mr:22@1'}, STAGED, ('the descriptor is no dma-buf',)),
    ({'SOFTGPU_MEMORY_MIB': '1'}, STAGED, ('CUDA_ERROR_OUT_OF_MEMORY',)),
    ({'WEFT_GDR': 'off'}, STAGED, ('WEFT_GDR is off',)),
)


def ask(hosts, weft, changes):
    result = subprocess.run([weft, 'info', '--json'], env={**hosts.environment, **changes}, stdout=subprocess.PIPE,
                            stderr=subprocess.DEVNULL, text=True, timeout=60, check=False)
    return json.loads(result.stdout)


def check_ways(hosts, weft):
    for changes, way, words in CASES:
        survey = ask(hosts, weft, changes)
        pairs = survey['gpuDirect']['pairs']
        assert len(pairs) == 1, f'{changes}: {survey["gpuDirect"]}, {survey["failure"]}'
        pair = pairs[0]
        print(f'{changes}: {pair["by"]}; {pair["why"]}')
        assert pair['by'] == way, f'{changes}: {pair}'
        assert pair['on'] == (way != STAGED)
        reasons = pair['why'] + ''.join(one['why'] for one in pair['ways'])
        for word in words:
            assert word.lower() in reasons.lower(), f'{changes}: no "{word}" in {pair}'
        pointers = survey['devices'][0]['pointers']
        assert ('dmabuf' in pointers) == (way == 'dma-buf') and ('cuda' in pointers) == (way != STAGED), pointers


def check_required(hosts, weft):
    survey = ask(hosts, weft, {'WEFT_GDR': 'require'})
    assert survey['failure'] == '' and len(survey['devices']) == 1
    survey = ask(hosts, weft, {'WEFT_GDR': 'require', 'SOFTGPU_DMABUF': '0'})
    assert survey['devices'] == [] and 'WEFT_GDR is require' in survey['failure'], survey['failure']
    assert 'the driver does not offer it' in survey['failure'], survey['failure']
    survey = ask(hosts, weft, {'WEFT_GDR': 'sometimes'})
    assert 'auto, require or off' in survey['failure'], survey['failure']


def check_few(hosts, program, plugin):
    """A card that is full gives back what nobody uses; more registrations follow one another than its table has."""
    command = [program, '--plugin', plugin, '--mode', 'processes', '--abi', '12', '--case', 'churn', *hosts.other('b')]
    hosts.environment.update({'SOFTEFA_MAX_MR': '24', 'WEFT_MR_CACHE': '1000'})
    result = hosts.run(command, 120)
    print(result.output)
    assert result.status == 0, f'exit status {result.status}'


def main():
    library, gpu, weft, program, plugin = sys.argv[1:]
    with VirtualHosts(f'{library}:{gpu}', 1, **GPU) as hosts:
        check_ways(hosts, weft)
        check_required(hosts, weft)
        check_few(hosts, program, plugin)


if __name__ == '__main__':
    main()
