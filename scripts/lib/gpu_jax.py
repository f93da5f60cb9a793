# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""One rank of a JAX job for scripts/gpu-check, with RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT as for PyTorch: a sum over all ranks and a
gather, every element compared."""
import os
import sys

import jax
import numpy

RANK, RANKS = int(os.environ['RANK']), int(os.environ['WORLD_SIZE'])
COUNT = 1_000_003


def over_ranks(mesh, function, out_spec):
    spec = jax.sharding.PartitionSpec('rank')
    given = jax.make_array_from_callback((RANKS * COUNT,), jax.sharding.NamedSharding(mesh, spec),
                                         lambda index: numpy.full(COUNT, float((index[0].start or 0) // COUNT + 1), numpy.float32))
    shard_map = getattr(jax, 'shard_map', None)
    if shard_map is None:
        from jax.experimental.shard_map import shard_map
    try:
        mapped = shard_map(function, mesh=mesh, in_specs=spec, out_specs=out_spec, check_vma=False)
    except TypeError:  # the older name of that argument
        mapped = shard_map(function, mesh=mesh, in_specs=spec, out_specs=out_spec, check_rep=False)
    return numpy.asarray(jax.jit(mapped)(given).addressable_shards[0].data)


def main():
    on_gpu = os.environ.get('JAX_PLATFORMS') != 'cpu'
    jax.distributed.initialize(f'{os.environ["MASTER_ADDR"]}:{os.environ["MASTER_PORT"]}', RANKS, RANK,
                               local_device_ids=[int(os.environ['LOCAL_RANK'])] if on_gpu else None)
    mesh = jax.sharding.Mesh(numpy.array(jax.devices()), ('rank',))
    everywhere = jax.sharding.PartitionSpec(None)
    total = over_ranks(mesh, lambda part: jax.lax.psum(part, 'rank'), everywhere)
    if not (total == RANKS * (RANKS + 1) / 2).all():
        sys.exit(f'psum: rank {RANK} has wrong numbers')
    print('right: psum', flush=True)
    gathered = over_ranks(mesh, lambda part: jax.lax.all_gather(part, 'rank', tiled=True), everywhere)
    if not all((gathered[rank * COUNT:(rank + 1) * COUNT] == rank + 1).all() for rank in range(RANKS)):
        sys.exit(f'all_gather: rank {RANK} has wrong numbers')
    print('right: all_gather', flush=True)
    jax.distributed.shutdown()


if __name__ == '__main__':
    main()
