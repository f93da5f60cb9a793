# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""One rank of torch.distributed: nccl_torch.py BACKEND, with RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT as torchrun sets them.

Does each operation that training uses, compares every element and prints how long it took. BACKEND is nccl, or gloo for the CPU.
"""
import datetime
import os
import sys
import time

import torch
import torch.distributed as dist

COUNT = 1 << 20
RANK, RANKS = int(os.environ['RANK']), int(os.environ['WORLD_SIZE'])


def given(rank, count, device):
    """What a rank gives: small whole numbers, whose sums every type holds."""
    return ((torch.arange(count, device=device) + rank) % 7 + 1).float()


def summed(count, device):
    return sum(given(rank, count, device) for rank in range(RANKS))


def all_reduce(device):
    mine = given(RANK, COUNT, device)
    dist.all_reduce(mine)
    return torch.equal(mine, summed(COUNT, device))


def all_gather_into_tensor(device):
    everyone = torch.zeros(COUNT * RANKS, device=device)
    dist.all_gather_into_tensor(everyone, given(RANK, COUNT, device))
    return torch.equal(everyone, torch.cat([given(rank, COUNT, device) for rank in range(RANKS)]))


def reduce_scatter_tensor(device):
    part = torch.zeros(COUNT, device=device)
    dist.reduce_scatter_tensor(part, given(RANK, COUNT * RANKS, device))
    return torch.equal(part, summed(COUNT * RANKS, device)[RANK * COUNT:(RANK + 1) * COUNT])


def send_recv(device):
    """To the next rank, from the one before."""
    before = (RANK - 1) % RANKS
    got = torch.zeros(COUNT, device=device)
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, given(RANK, COUNT, device), (RANK + 1) % RANKS), dist.P2POp(dist.irecv, got, before)]):
        work.wait()
    return torch.equal(got, given(before, COUNT, device))


def barrier(device):
    del device
    dist.barrier()
    return True


def gradient(model, rank, device):
    model.zero_grad()
    model(given(rank, 64 * 32, device).reshape(32, 64)).square().mean().backward()
    return model.weight.grad.clone()


def ddp_step(device):
    """A step of DistributedDataParallel: the gradient is the mean of all ranks', and the weights stay the same everywhere."""
    torch.manual_seed(7)
    model = torch.nn.Linear(64, 16, bias=False).to(device)
    wanted = sum(gradient(model, rank, device) for rank in range(RANKS)) / RANKS
    model.zero_grad()
    parallel = torch.nn.parallel.DistributedDataParallel(model, device_ids=[device.index] if device.type == 'cuda' else None)
    optimizer = torch.optim.SGD(parallel.parameters(), lr=1e-4)
    parallel(given(RANK, 64 * 32, device).reshape(32, 64)).square().mean().backward()
    right = torch.allclose(model.weight.grad, wanted, rtol=1e-4)
    optimizer.step()
    everyone = [torch.zeros_like(model.weight) for _ in range(RANKS)]
    dist.all_gather(everyone, model.weight.detach())
    return right and all(torch.equal(each, everyone[0]) for each in everyone)


def main():
    backend = sys.argv[1]
    device = torch.device('cuda', int(os.environ['LOCAL_RANK'])) if backend == 'nccl' else torch.device('cpu')
    if device.type == 'cuda':
        torch.cuda.set_device(device)
    dist.init_process_group(backend, timeout=datetime.timedelta(seconds=120))
    for operation in (all_reduce, all_gather_into_tensor, reduce_scatter_tensor, send_recv, barrier, ddp_step):
        begin = time.monotonic()
        if not operation(device):
            sys.exit(f'{operation.__name__}: rank {RANK} has wrong numbers')
        if device.type == 'cuda':
            torch.cuda.synchronize()
        print(f'right: {operation.__name__}, {1e3 * (time.monotonic() - begin):.1f} ms with its check', flush=True)
    dist.destroy_process_group()


if __name__ == '__main__':
    main()
