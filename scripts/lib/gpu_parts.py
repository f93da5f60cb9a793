# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""The parts of scripts/gpu-check: what is run on a machine with a GPU, in how much time, and what is said of it."""
import contextlib
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import time
import types

import check_parts
import nccl_group
import nccl_host
import nccl_programs
from check_parts import SKIP, failures, last_lines
from ports import free_port

PLUGIN = 'plugin/libnccl-net-weft.so'
WITH_LOOP = 'tests/complete/libnccl-net-weft.so'  # the copy that has the fabrics for tests, too
NEEDED = (PLUGIN, WITH_LOOP, 'tools/weft', 'tests/nccl/nccl-ranks', 'tests/nccl/nccl-time', 'tests/system/gpu-memory', 'tests/system/local/local-gpu',
          'tests/softgpu/libcuda.so.1')
LIB = pathlib.Path(__file__).resolve().parent
MPS_CONTROL = 'nvidia-cuda-mps-control'

# How weft carries data, and whether NCCL's log has to say that GPU memory went without a copy.
TCP = {'WEFT_PROVIDER': 'tcp'}
SHARED = {'WEFT_PROVIDER': 'local'}
SHARED_GPU = {'WEFT_PROVIDER': 'local', 'WEFT_LOCAL_GPU': '1', 'NCCL_NET_GDR_LEVEL': 'SYS'}
COLLNET = {**TCP, 'WEFT_COLLNET': 'peers', 'NCCL_COLLNET_ENABLE': '1', 'NCCL_ALGO': 'CollnetChain,Ring'}
WAYS = (('tcp', TCP), ('shared memory', SHARED), ('shared memory, GPU to GPU', SHARED_GPU))
MOST = ('all_reduce', 'all_gather', 'reduce_scatter', 'roots', 'types', 'all_to_all', 'graph', 'several', 'split', 'shrink')
FEW = ('all_reduce', 'all_gather', 'all_to_all', 'split')


class Check(check_parts.Parts):
    """The machine, and what was found."""

    def __init__(self, options):
        super().__init__('gpu-check', options.out, options.seconds)
        self.options, self.build = options, options.build
        self.mps_settings, self.no_nccl = {}, ''
        try:
            self.host = nccl_host.Host(self.build / 'tests' / 'softgpu', options.nccl, options.python)
            self.software = self.host.software
        except nccl_host.CannotRun as reason:
            gpus = nccl_host.find_gpus()
            if gpus.names or gpus.software:
                raise
            # The software GPU does without NCCL what it can.
            self.host, self.software, self.no_nccl = None, True, str(reason)
        self.played_by = 'a software GPU' if self.software else ''
        self.note('GPU', f'SOFTWARE GPU ({nccl_host.find_gpus().why}): results are real, times are not a GPU\'s' if self.software
                  else f'{", ".join(self.host.gpus.names)} ({self.host.gpus.driver})')
        if self.host:
            library = self.host.library
            self.note('NCCL', f'{nccl_host.version_text(library.version)}, {library.file} ({library.where})')
        else:
            self.note('NCCL', f'left out: {self.no_nccl}')

    @contextlib.contextmanager
    def mps(self):
        """NVIDIA's MPS, by which the ranks on one GPU need not take turns. Its pipes are of this run alone."""
        if self.software or not shutil.which(MPS_CONTROL):
            if not self.software:
                self.note('MPS', f'left out: there is no {MPS_CONTROL}, so ranks take turns on the GPU and times say little')
            yield
            return
        with tempfile.TemporaryDirectory(prefix='weft-mps-') as pipes:
            settings = {'CUDA_MPS_PIPE_DIRECTORY': pipes, 'CUDA_MPS_LOG_DIRECTORY': pipes}
            started = subprocess.run([MPS_CONTROL, '-d'], env={**os.environ, **settings}, capture_output=True, text=True, check=False)
            if started.returncode != 0:
                self.note('MPS', f'left out: {MPS_CONTROL} says {(started.stderr or started.stdout).strip()[:120]}')
                yield
                return
            self.mps_settings = settings
            try:
                yield
            finally:
                self.mps_settings = {}
                subprocess.run([MPS_CONTROL], input='quit\n', env={**os.environ, **settings}, text=True, capture_output=True, check=False, timeout=30)

    def environment(self, rank=0, plugin='', settings=None):
        """A rank's; `plugin` is weft's unless "none" is said, which is NCCL's own transport."""
        if self.host:
            environment = self.host.environment(plugin or str(self.build / PLUGIN))
        else:
            environment = {**os.environ, 'LD_LIBRARY_PATH': ':'.join(filter(None, [str(self.build / 'tests' / 'softgpu'), os.environ.get('LD_LIBRARY_PATH')]))}
        environment['LD_LIBRARY_PATH'] = ':'.join(filter(None, [environment.get('LD_LIBRARY_PATH'), str(self.build / 'lib')]))
        environment.update({'NCCL_HOSTID': f'gpu-check-{rank}', 'NCCL_SOCKET_IFNAME': 'lo', 'GLOO_SOCKET_IFNAME': 'lo', **self.mps_settings, **(settings or {})})
        return environment

    def device(self, rank):
        return self.host.device(rank) if self.host else 0


def info(check):
    statuses, texts, seconds = check.ranks('info', [[check.build / 'tools' / 'weft', 'info']], [check.environment(settings={'WEFT_LOCAL_GPU': '1'})], 30)
    check.judge('info', 'weft info', failures(statuses, texts), seconds)
    for line in re.findall(r'^.*GPUDirect of .*$', texts[0], re.MULTILINE)[:4]:
        check.note('info', line.strip())


def programs(check):
    """weft's own test programs of GPU memory, on this driver."""
    strict = {'SOFTGPU_STRICT': '1'} if check.software else {}
    memory = check.build / 'tests' / 'system' / 'gpu-memory'
    for name, command, settings in (
            ('two processes, by handles', [check.build / 'tests' / 'system' / 'local' / 'local-gpu'], {}),
            ('gpu-memory over local', [memory, '--plugin', check.build / PLUGIN, '--abi', '12'], {'WEFT_PROVIDER': 'local', 'WEFT_LOCAL_GPU': '1'}),
            ('gpu-memory over loop', [memory, '--plugin', check.build / WITH_LOOP, '--abi', '12'], {'WEFT_PROVIDER': 'loop'})):
        statuses, texts, seconds = check.ranks(name, [command], [check.environment(settings={**strict, **settings})], 60)
        if statuses == [SKIP]:
            check.note('programs', f'left out: {name}: {(texts[0].strip().splitlines() or ["no reason"])[-1]}')
            continue
        check.judge('programs', name, failures(statuses, texts), seconds)
        for reason in sorted(set(re.findall(r'^skip .*? s  (.*)$', texts[0], re.MULTILINE))):
            check.note('programs', f'left out: cases of {name}: {reason}')


def run_nccl_ranks(check, head, what, count, settings, cases, seconds=60, lost=None, says=''):
    """nccl-ranks over weft, a process and a node each. Every element of every result is compared by it."""
    folder = tempfile.mkdtemp(prefix='gpu-check-')
    try:
        commands = [[check.build / 'tests' / 'nccl' / 'nccl-ranks', check.host.library.file, count, rank, 1, f'{folder}/id', *cases] for rank in range(count)]
        environments = [check.environment(rank, settings={'NCCL_NET': 'weft', 'CUDA_VISIBLE_DEVICES': str(check.device(rank)), **settings}) for rank in range(count)]
        name = f'{count} ranks over {what}'
        statuses, texts, took = check.ranks(f'{head} {name}', commands, environments, seconds, lost)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    wrong = failures(statuses, texts)
    carrier = 'COLLNET' if 'NCCL_COLLNET_ENABLE' in settings else 'NET'
    for rank, text in enumerate(texts):
        if not wrong and rank != lost and f'via {carrier}/weft' not in text:
            wrong.append(f'rank {rank}: no channel went via {carrier}/weft\n' + last_lines(text))
        if not wrong and rank != lost and says and says not in text:
            wrong.append(f'rank {rank}: NCCL did not say {says}\n' + last_lines(text))
    return check.judge(head, f'{name}: {" ".join(cases)}', wrong, took)


def without_nccl(check, head):
    if not check.host:
        check.note(head, 'left out: see NCCL above')
    return not check.host


def killed(check):
    """A rank that dies, leaves or never comes: the others are told in time, and can abort."""
    if without_nccl(check, 'killed'):
        return
    for case, lost in (('killed', 1), ('left', None)):
        for what, settings in WAYS:
            run_nccl_ranks(check, 'killed', what, 3, settings, [case], 30, lost)
    run_nccl_ranks(check, 'killed', 'tcp', 3, {**TCP, 'WEFT_PEER_TIMEOUT': '4000'}, ['stopped'], 30, 1)
    run_nccl_ranks(check, 'killed', 'tcp', 2, TCP, ['abort'], 30)


def ranks(check):
    if without_nccl(check, 'ranks'):
        return
    for what, settings in WAYS:
        says = 'GDRDMA' if settings is SHARED_GPU else ''
        for count in (2, 3, 4, 8):
            run_nccl_ranks(check, 'ranks', what, count, settings, MOST if count == 2 else FEW, says=says)
    run_nccl_ranks(check, 'ranks', 'tcp, PAT', 8, {**TCP, 'NCCL_ALGO': 'PAT'}, ['all_gather', 'reduce_scatter'])
    run_nccl_ranks(check, 'ranks', 'CollNet among peers', 3, COLLNET, ['all_reduce', 'types'])


# Programs of others: they have GPU code of their own, so they want a real GPU.


def python_ranks(check, name, program, arguments, count, plugin, settings, seconds=90):
    """That program as `count` ranks; what the first one said that begins with "right: " or "loss "."""
    port = free_port()
    environments = [nccl_programs.torch_environment(check.environment(rank, plugin, settings), rank, count, check.device(rank), port, check.options.python)
                    for rank in range(count)]
    commands = [[check.options.python, LIB / program, *arguments]] * count
    statuses, texts, took = check.ranks(name, commands, environments, seconds)
    wrong = failures(statuses, texts)
    if not wrong and plugin != 'none' and not all('via NET/weft' in text for text in texts):
        wrong.append('NCCL did not use weft\n' + last_lines(texts[0]))
    return wrong, took, re.findall(r'^(?:loss|same) .*$', texts[0], re.MULTILINE)


TORCH_WAYS = (('tcp', TCP), ('shared memory', SHARED), ('GPU to GPU', SHARED_GPU),
              ('GPU to GPU, expandable segments', {**SHARED_GPU, 'PYTORCH_CUDA_ALLOC_CONF': 'expandable_segments:True'}))


def wants_gpu(check, head, module):
    if check.software:
        check.note(head, f'left out: {module} computes with GPU code of its own, which wants a real GPU')
        return False
    done = subprocess.run([check.options.python, '-c', f'import {module}'], capture_output=True, text=True, check=False, timeout=120)
    if done.returncode != 0:
        check.note(head, f'left out: {(done.stderr.strip().splitlines() or ["it does not start"])[-1]} ({check.options.python}; --python FILE names another one)')
    return done.returncode == 0


def torch(check):
    """DDP, FSDP2, sub-groups, all_to_all_single, a captured graph: the losses are those that NCCL's own transport gives, bit for bit."""
    if not wants_gpu(check, 'torch', 'torch'):
        return
    fixed = {'CUBLAS_WORKSPACE_CONFIG': ':4096:8'}
    wrong, took, wanted = python_ranks(check, 'torch built-in', 'gpu_torch.py', ['nccl'], 2, 'none', fixed)
    check.judge('torch', 'over NCCL\'s own transport, for comparison', wrong, took)
    for what, settings in TORCH_WAYS:
        wrong, took, got = python_ranks(check, f'torch {what}', 'gpu_torch.py', ['nccl'], 2, '', {**fixed, **settings})
        if not wrong and wanted and got != wanted:
            different = next((f'{a} / {b}' for a, b in zip(got, wanted) if a != b), 'there are more of one')
            wrong.append(f'losses differ from those over NCCL\'s own transport: {different}')
        check.judge('torch', f'DDP, FSDP2, groups, graph over {what}', wrong, took)


def jax(check):
    if not wants_gpu(check, 'jax', 'jax'):
        return
    for what, settings in WAYS:
        wrong, took, _ = python_ranks(check, f'jax {what}', 'gpu_jax.py', [], 2, '', {'XLA_PYTHON_CLIENT_PREALLOCATE': 'false', **settings})
        check.judge('jax', f'psum and all_gather over {what}', wrong, took)


def nccl_tests(check):
    """NVIDIA's programs, a rank a node, by whichever MPI they were built with."""
    folder = check.options.nccl_tests
    if not folder or check.software:
        check.note('nccl-tests', 'left out: ' + ('they have GPU code of their own, which wants a real GPU' if folder else '--nccl-tests names none'))
        return
    options = types.SimpleNamespace(plugin=check.build / PLUGIN, ranks=2, max=16 << 20, nccl_tests=folder)
    setting = types.SimpleNamespace(host=check.host, options=options, device=check.device,
                                    environment=lambda rank, plugin: check.environment(rank, plugin, TCP if plugin != 'none' else {}))
    begin = time.monotonic()
    check.left(60)
    wrong = nccl_programs.run_nccl_tests(setting, lambda head, text: log(check, f'{head} {text}'))
    check.judge('nccl-tests', 'sendrecv, alltoall and collectives', wrong, time.monotonic() - begin)


def log(check, line):
    with open(check.out / 'nccl-tests.txt', 'a', encoding='utf-8') as file:
        file.write(line + '\n')


def groups_for_times(check, folder):
    for name, plugin, settings in (('tcp', '', TCP), ('GPU-to-GPU', '', SHARED_GPU), ('built-in', 'none', {})):
        program = [str(check.build / 'tests' / 'nccl' / 'nccl-time'), check.host.library.file]
        yield nccl_group.Group(name, program, folder, lambda rank, p=plugin, s=settings: check.environment(rank, p, s), check.device, 2)


def times(check):
    """Microseconds of an operation, and how many times as fast as NCCL's own transport, in turn in one run."""
    if without_nccl(check, 'times'):
        return
    groups = []
    with tempfile.TemporaryDirectory(prefix='gpu-check-') as folder:
        try:
            for group in groups_for_times(check, folder):
                groups.append(group)
                group.ready()
            for operation in ('all_reduce', 'send_recv', 'all_to_all'):
                for size, text in ((8, '8 B'), (65536, '64 KiB'), (1 << 20, '1 MiB'), (16 << 20, '16 MiB')):
                    check.left(30)
                    check.note('times', time_line(groups, operation, size, text))
            for group in groups:
                check.wrong += group.end()
        except nccl_group.GroupFailed as failure:
            check.judge('times', 'nccl-time', [str(failure)], 0)
        finally:
            for group in groups:
                group.kill()


def best_times(groups, operation, size):
    """{name: microseconds}, the best of three rounds; every element of the result was compared before."""
    count = max(2, min(20, (4 << 20) // size))
    best = {}
    for group in groups:
        group.check(operation, size)
    for _ in range(3):
        for group in groups:
            best[group.name] = min(best.get(group.name, 1e12), group.time(operation, size, count))
    return best


def time_line(groups, operation, size, text):
    best = best_times(groups, operation, size)
    own = best['built-in']
    return f'{operation:12}{text:>7}  ' + ', '.join(f'{name} {value:.1f} us' + (f' ({own / value:.2f})' if name != 'built-in' else '') for name, value in best.items())
