# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""Programs of others over weft and over NCCL's own transport, for scripts/nccl-check: PyTorch and nccl-tests. Both have GPU code of their own, so
they want a real GPU."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

import nccl_host
from ports import free_port

TORCH_PROGRAM = pathlib.Path(__file__).resolve().parent / 'nccl_torch.py'
TORCH_SECONDS = 300
PERF_SECONDS = 300
PERF_PROGRAMS = ['all_reduce_perf', 'all_gather_perf', 'reduce_scatter_perf', 'sendrecv_perf', 'alltoall_perf']
WAYS = ('weft', 'built-in')
ASK_TORCH = '''
import json, torch
cuda = torch.cuda.is_available()
has = torch.distributed.is_available() and torch.distributed.is_nccl_available()
print(json.dumps({'torch': torch.__version__, 'gpus': torch.cuda.device_count() if cuda else 0, 'nccl': list(torch.cuda.nccl.version()) if has and cuda else []}))
'''


def plugin_of(setting, way):
    return str(setting.options.plugin) if way == 'weft' else 'none'


def wait_all(processes, seconds):
    """Exit statuses; all are ended when one of them fails or does not end in time."""
    statuses = []
    for process in processes:
        try:
            statuses.append(process.wait(seconds if not any(statuses) else 5))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            statuses.append(124)
    return statuses


def text_of(file):
    with open(file, encoding='utf-8', errors='replace') as lines:
        return lines.read()


def run_ranks(commands, environments, folder, seconds):
    """(statuses, what each rank said)"""
    files = [f'{folder}/{number}.log' for number in range(len(commands))]
    processes = []
    for command, environment, file in zip(commands, environments, files):
        with open(file, 'wb') as log:
            processes.append(subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT))
    return wait_all(processes, seconds), [text_of(file) for file in files]


def judge(what, way, statuses, texts):
    wrong = [f'{what} over {way}: rank {rank} ended with {status}\n' + '\n'.join(texts[rank].splitlines()[-15:]) for rank, status in enumerate(statuses) if status != 0]
    if not wrong and way == 'weft' and not all('via NET/weft' in text for text in texts):
        wrong.append(f'{what}: NCCL did not use weft\n' + '\n'.join(line for text in texts for line in text.splitlines() if 'WARN' in line))
    return wrong


# PyTorch


def torch_here(setting, say):
    """What PyTorch has; None, and the reason is said, when it is not run."""
    try:
        done = subprocess.run([setting.options.python, '-c', ASK_TORCH], capture_output=True, text=True, check=False, timeout=120)
    except (OSError, subprocess.TimeoutExpired) as error:
        say('PyTorch', f'left out: {error}')
        return None
    if done.returncode != 0:
        complaint = (done.stderr.strip().splitlines() or ['it does not start'])[-1]
        say('PyTorch', f'left out: {complaint} ({setting.options.python}; --python FILE names another interpreter)')
        return None
    found = json.loads(done.stdout.splitlines()[-1])
    if setting.host.software or not found['gpus']:
        say('PyTorch', f'{found["torch"]} is left out: it computes with GPU code of its own, which wants a real GPU')
    elif not found['nccl']:
        say('PyTorch', f'{found["torch"]} is left out: it was built without NCCL')
    return found if found['gpus'] and found['nccl'] and not setting.host.software else None


def torch_command(python, backend):
    return [python, str(TORCH_PROGRAM), backend]


def torch_environment(environment, rank, ranks, device, port, python='python3'):
    """PyTorch's own NCCL comes first in the path: with another version than it was built with, which the loader may know, nobody runs it."""
    own = nccl_host.package_folders(python, 'nccl/lib')
    path = ':'.join(filter(None, [*own, environment.get('LD_LIBRARY_PATH')]))
    return {**environment, **({'LD_LIBRARY_PATH': path} if path else {}), 'RANK': str(rank), 'WORLD_SIZE': str(ranks), 'LOCAL_RANK': str(device),
            'MASTER_ADDR': '127.0.0.1', 'MASTER_PORT': str(port)}


def run_torch(setting, say):
    """What is wrong."""
    found = torch_here(setting, say)
    if found is None:
        return []
    say('PyTorch', f'{found["torch"]} with its NCCL {".".join(map(str, found["nccl"]))}, {setting.options.ranks} ranks')
    wrong, ranks = [], setting.options.ranks
    for way in WAYS:
        port = free_port()
        environments = [torch_environment(setting.environment(rank, plugin_of(setting, way)), rank, ranks, setting.device(rank), port, setting.options.python)
                        for rank in range(ranks)]
        with tempfile.TemporaryDirectory(prefix='nccl-check-') as folder:
            statuses, texts = run_ranks([torch_command(setting.options.python, 'nccl')] * ranks, environments, folder, TORCH_SECONDS)
        wrong += judge('PyTorch', way, statuses, texts)
        for line in re.findall(r'^right: .*$', texts[0], re.MULTILINE):
            say(way, line)
    return wrong


# nccl-tests


# MPICH's launcher: processes of this host, and no ssh. A program of one MPI does not start under the other's.
MPICH = ('mpiexec.hydra', 'mpiexec.mpich', 'mpirun.mpich', 'mpiexec', 'mpirun')
OPEN_MPI = ('mpirun.openmpi', 'mpirun', 'mpiexec')


def launcher_of(linked):
    """(the command that begins a job of a program that is linked so, ''), or (None, why there is none)."""
    mpich = re.search(r'libmpich|libmpi\.so\.12', linked) is not None
    for name in MPICH if mpich else OPEN_MPI:
        file = shutil.which(name)
        if not file:
            continue
        says = subprocess.run([file, '--version'], capture_output=True, text=True, check=False).stdout
        if ('HYDRA' in says or 'MPICH' in says) and mpich:
            return [file, '-launcher', 'fork', '-iface', 'lo'], ''
        if 'Open MPI' in says and not mpich:
            return [file, '--oversubscribe'] + (['--allow-run-as-root'] if os.getuid() == 0 else []), ''
    return None, f'was built with {"MPICH, and there is no mpiexec" if mpich else "Open MPI, and there is no mpirun"} of it'


def perf_commands(setting, program, way):
    """[(command, environment)], or why there is none. Built with MPI each rank is a process and a node; otherwise all GPUs are one process's,
    and NCCL is told not to go past the network."""
    arguments = ['-b', '8', '-e', str(setting.options.max), '-f', '8', '-n', '5', '-w', '1']
    environment = setting.environment(0, plugin_of(setting, way))
    linked = subprocess.run(['ldd', program], capture_output=True, text=True, check=False).stdout
    if 'libmpi' in linked:
        command, why = launcher_of(linked)
        if command is None:
            return None, why
        for rank in range(setting.options.ranks):
            # The ranks of one host take the GPUs by turns unless they are told: here each has one.
            of_rank = {'NCCL_HOSTID': f'nccl-check-{rank}', 'CUDA_VISIBLE_DEVICES': str(setting.device(rank)), 'NCCL_TESTS_DEVICE': '0'}
            command += [':'] * (rank > 0) + ['-np', '1', 'env', *(f'{name}={value}' for name, value in of_rank.items()), program, *arguments]
        return (command, environment), ''
    gpus = len(setting.host.gpus.names)
    if gpus < 2:
        return None, 'was built without MPI, so it needs two GPUs; build it with MPI=1 for one'
    return ([program, *arguments, '-g', str(min(gpus, 8))], {**environment, 'NCCL_P2P_DISABLE': '1', 'NCCL_SHM_DISABLE': '1'}), ''


def run_perf(setting, say, program, way):
    command, why = perf_commands(setting, program, way)
    if command is None:
        say('nccl-tests', f'{os.path.basename(program)} is left out: it {why}')
        return []
    with tempfile.TemporaryDirectory(prefix='nccl-check-') as folder:
        statuses, texts = run_ranks([command[0]], [command[1]], folder, PERF_SECONDS)
    wrong = judge(os.path.basename(program), way, statuses, texts)
    for line in re.findall(r'^ +\d+ +\d+ .*$|^# (?:Out of bounds|Avg bus).*$', texts[0], re.MULTILINE):
        say(way, line)
    return wrong


def run_nccl_tests(setting, say):
    """What is wrong."""
    folder = setting.options.nccl_tests.resolve()
    programs = [str(folder / name) for name in PERF_PROGRAMS if os.access(folder / name, os.X_OK)]
    if not programs:
        return [f'--nccl-tests: none of {", ".join(PERF_PROGRAMS)} is in {folder}; that is the folder "build" of nccl-tests, after make']
    if setting.host.software:
        say('nccl-tests', 'left out: they fill and compare memory with GPU code of their own, which wants a real GPU')
        return []
    wrong = []
    for program in programs:
        for way in WAYS:
            say('nccl-tests', f'{os.path.basename(program)} over {way}')
            wrong += run_perf(setting, say, program, way)
    return wrong
