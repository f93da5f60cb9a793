# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""One rank of a training job for scripts/gpu-check: gpu_torch.py BACKEND, with RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT as torchrun
sets them. BACKEND is nccl, or gloo for the CPU.

Trains a small transformer by DistributedDataParallel and by FSDP2, with data loaders that fork, and does what jobs do beside that. Lines that begin with
"loss" and "same" have every bit of what came out, for comparison with another run.
"""
import datetime
import hashlib
import os
import struct
import sys

import torch
import torch.distributed as dist

RANK, RANKS = int(os.environ['RANK']), int(os.environ['WORLD_SIZE'])
WIDTH, WORDS, BLOCKS, CLASSES, STEPS, BATCH = 256, 32, 4, 500, 6, 8


class Block(torch.nn.Module):
    """One layer: attention written out, whose kernels always add in the same order, and two linear ones."""

    def __init__(self):
        super().__init__()
        self.before, self.after = torch.nn.LayerNorm(WIDTH), torch.nn.LayerNorm(WIDTH)
        self.mix, self.out = torch.nn.Linear(WIDTH, 3 * WIDTH), torch.nn.Linear(WIDTH, WIDTH)
        self.wide, self.narrow = torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        asked, key, value = self.mix(self.before(x)).chunk(3, -1)
        x = x + self.out(torch.softmax(asked @ key.transpose(1, 2) / WIDTH ** 0.5, -1) @ value)
        return x + self.narrow(torch.nn.functional.gelu(self.wide(self.after(x))))


class Examples(torch.utils.data.Dataset):
    """The same everywhere: each example is made of its number."""

    def __len__(self):
        return BATCH * RANKS * STEPS

    def __getitem__(self, index):
        made = torch.Generator().manual_seed(index)
        return torch.randn(WORDS, WIDTH, generator=made), torch.randint(0, CLASSES, (WORDS,), generator=made)


def new_model(device):
    torch.manual_seed(7)
    return torch.nn.Sequential(*(Block() for _ in range(BLOCKS)), torch.nn.Linear(WIDTH, CLASSES)).to(device)


def train(name, model, device):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    sampler = torch.utils.data.DistributedSampler(Examples(), RANKS, RANK, shuffle=False)
    loader = torch.utils.data.DataLoader(Examples(), BATCH, sampler=sampler, num_workers=2, multiprocessing_context='fork')
    for step, (x, wanted) in enumerate(loader):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x.to(device)).flatten(0, 1), wanted.flatten().to(device))
        loss.backward()
        optimizer.step()
        print(f'loss {name} {step}: {struct.pack(">f", loss.item()).hex()} {loss.item():.6f}', flush=True)


def ddp(device):
    model = torch.nn.parallel.DistributedDataParallel(new_model(device), device_ids=[device.index] if device.type == 'cuda' else None)
    train('ddp', model, device)
    every_bit = hashlib.sha256(b''.join(each.detach().cpu().numpy().tobytes() for each in model.parameters())).hexdigest()[:16]
    everyone = [None] * RANKS
    dist.all_gather_object(everyone, every_bit)
    print(f'same ddp parameters {every_bit}', flush=True)
    return len(set(everyone)) == 1


def fsdp2(device):
    try:
        from torch.distributed.fsdp import fully_shard
    except ImportError:
        print('left out: this PyTorch has no fully_shard', flush=True)
        return True
    model = new_model(device)
    if device.type == 'cpu':
        mesh = torch.distributed.device_mesh.init_device_mesh('cpu', (RANKS,))
        options = {'mesh': mesh}
    else:
        options = {}
    for block in model:
        fully_shard(block, **options)
    fully_shard(model, **options)
    train('fsdp2', model, device)
    return True


def groups(device):
    """A group of everybody and one of each by itself."""
    alone = [dist.new_group([rank]) for rank in range(RANKS)][RANK]
    everyone = dist.new_group(list(range(RANKS)))
    mine, ours = (torch.full((1000,), RANK + 1.0, device=device) for _ in range(2))
    dist.all_reduce(mine, group=alone)
    dist.all_reduce(ours, group=everyone)
    return bool((mine == RANK + 1).all() and (ours == RANKS * (RANKS + 1) / 2).all())


def all_to_all_single(device):
    count = 100_003
    given = torch.arange(RANKS * count, device=device) + RANK
    got = torch.empty_like(given)
    dist.all_to_all_single(got, given)
    wanted = [torch.arange(RANK * count, (RANK + 1) * count, device=device) + rank for rank in range(RANKS)]
    return torch.equal(got, torch.cat(wanted))


def graph(device):
    """A captured all_reduce, replayed five times with other numbers."""
    if device.type == 'cpu':
        return True
    data = torch.ones(1 << 20, device=device)
    dist.all_reduce(data)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        dist.all_reduce(data)
    right = True
    for turn in range(1, 6):
        data.fill_(float(turn * (RANK + 1)))
        captured.replay()
        torch.cuda.synchronize()
        right = right and bool((data == turn * RANKS * (RANKS + 1) / 2).all())
    return right


def large(device):
    data = torch.ones((256 << 20) // 4 if device.type == 'cuda' else 1 << 20, device=device)
    dist.all_reduce(data)
    return bool((data == RANKS).all())


def main():
    backend = sys.argv[1]
    device = torch.device('cuda', int(os.environ['LOCAL_RANK'])) if backend == 'nccl' else torch.device('cpu')
    if device.type == 'cuda':
        torch.cuda.set_device(device)
    torch.use_deterministic_algorithms(True, warn_only=True)
    dist.init_process_group(backend, timeout=datetime.timedelta(seconds=60))
    for part in (ddp, fsdp2, groups, all_to_all_single, graph, large):
        if not part(device):
            sys.exit(f'{part.__name__}: rank {RANK} has wrong numbers')
        if device.type == 'cuda':
            torch.cuda.synchronize()
        print(f'right: {part.__name__}', flush=True)
    dist.destroy_process_group()


if __name__ == '__main__':
    main()
