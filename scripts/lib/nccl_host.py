# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""Which NCCL, which CUDA and which GPUs a machine has. Nothing is loaded into this process: others are asked."""
import collections
import glob
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree

ANSWER_SECONDS = 60
WITHOUT_GPU = ('Without a GPU this needs an NCCL that is linked with the shared CUDA runtime (NVIDIA\'s sources: make src.lib CUDARTLIB=cudart), named '
               'by --nccl FILE; weft itself is checked without NCCL and GPU by  weft perf  and, on a recorded job, by  weft perf --replay')
NO_RUNTIME = ('no libcudart.so.13 or .12 in the loader\'s path, CUDA\'s folders or PyTorch\'s packages, and memory is taken with it: install CUDA\'s '
              'runtime (Debian: libcudart12, pip: nvidia-cuda-runtime) or name its folder in LD_LIBRARY_PATH')
OURS_TO_SET = ('WEFT_NCCL', 'NCCL_NET', 'NCCL_NET_PLUGIN', 'NCCL_DEBUG_SUBSYS', 'NCCL_DEBUG_FILE')

# `runtime`: the shared CUDA runtime's file name when the library wants one, else ''. `version`: 0 when it does not tell, and `why` says why.
Library = collections.namedtuple('Library', 'file where runtime version why')
# `names`: of the GPUs. `software`: they are the software GPU's. `why`: there are none because of it.
Gpus = collections.namedtuple('Gpus', 'driver names software why')

ASK_NCCL = '''
import ctypes, sys
version = ctypes.c_int()
library = ctypes.CDLL(sys.argv[1])
print(version.value if library.ncclGetVersion(ctypes.byref(version)) == 0 else 0)
'''
ASK_DRIVER = '''
import ctypes, json, sys
answer = {'names': [], 'software': False, 'why': '', 'driver': ''}
try:
    library = ctypes.CDLL(sys.argv[1])
    mapped = [line.split()[-1] for line in open('/proc/self/maps') if '/libcuda.so' in line]
    answer['driver'] = mapped[0] if mapped else sys.argv[1]
    answer['software'] = hasattr(library, 'softgpu_refuses_nccl')
    status, count, name = library.cuInit(0), ctypes.c_int(), ctypes.create_string_buffer(128)
    if status == 0:
        status = library.cuDeviceGetCount(ctypes.byref(count))
    if status != 0:
        answer['why'] = f'cuInit of {answer["driver"]} says {status}'
    for device in range(count.value):
        library.cuDeviceGetName(name, len(name), device)
        answer['names'].append(name.value.decode(errors='replace'))
except OSError as error:
    answer['why'] = str(error)
print(json.dumps(answer))
'''
ASK_REFUSAL = '''
import ctypes, sys
refuses = ctypes.CDLL(sys.argv[1]).softgpu_refuses_nccl
refuses.restype = ctypes.c_char_p
print((refuses(int(sys.argv[2])) or b'').decode())
'''


class CannotRun(Exception):
    """What is missing or in the way, and what to do."""


def ask(program, *arguments, environment=None):
    """(last line it printed, the last of what it complained of) of a Python program in a process of its own."""
    try:
        done = subprocess.run([sys.executable, '-c', program, *map(str, arguments)], capture_output=True, text=True, check=False,
                              timeout=ANSWER_SECONDS, env=environment)
    except subprocess.TimeoutExpired:
        return '', f'no answer within {ANSWER_SECONDS} s'
    said, complained = done.stdout.strip().splitlines(), done.stderr.strip().splitlines()
    if done.returncode != 0:
        return '', complained[-1] if complained else f'ended with {done.returncode}'
    return (said[-1] if said else ''), ''


def version_text(version):
    return f'{version // 10000}.{version // 100 % 100}.{version % 100}' if version else 'unknown version'


def path_folders():
    return [folder for folder in os.environ.get('LD_LIBRARY_PATH', '').split(':') if folder]


def loader_files(name):
    """Files of that name that the loader knows, the one that it would take first, each once."""
    files = [os.path.join(folder, name) for folder in path_folders()]
    ldconfig = shutil.which('ldconfig') or '/sbin/ldconfig'
    if os.path.exists(ldconfig):
        cache = subprocess.run([ldconfig, '-p'], capture_output=True, text=True, check=False).stdout
        files += re.findall(rf'^\s*{re.escape(name)} \(.*=> (\S+)$', cache, re.MULTILINE)
    return first_of_each(file for file in files if os.path.isfile(file))


def first_of_each(files):
    """The same file by another name is left out."""
    seen, kept = set(), []
    for file in files:
        real = os.path.realpath(file)
        if real not in seen:
            seen.add(real)
            kept.append(file)
    return kept


def cuda_folders():
    tops = [os.environ[name] for name in ('CUDA_HOME', 'CUDA_PATH') if os.environ.get(name)] + sorted(glob.glob('/usr/local/cuda*'), reverse=True)
    return [folder for top in tops for folder in (f'{top}/lib64', f'{top}/lib', *glob.glob(f'{top}/targets/*/lib')) if os.path.isdir(folder)]


def package_folders(python, parts):
    """`parts` (nccl/lib) below the folder `nvidia` of that interpreter's packages, as PyTorch's packages have it."""
    program = f'import os, sys; print(*[d for p in sys.path for d in [os.path.join(p, "nvidia", {parts!r})] if os.path.isdir(d)], sep="\\n")'
    try:
        done = subprocess.run([python, '-c', program], capture_output=True, text=True, check=False, timeout=ANSWER_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return done.stdout.split('\n')[:-1]


def runtime_of(file):
    """The shared CUDA runtime that the library wants; '' when its own is inside."""
    done = subprocess.run(['ldd', file], capture_output=True, text=True, check=False)
    found = re.search(r'libcudart\.so\.\d+', done.stdout)
    return found.group(0) if found else ''


def nccl_files(given, python):
    """(file, where it was found), the one to take first."""
    if given:
        yield given, '--nccl'
        return
    if os.environ.get('WEFT_NCCL'):
        yield os.environ['WEFT_NCCL'], 'WEFT_NCCL'
        return
    places = [(file, 'loader\'s path') for file in loader_files('libnccl.so.2')]
    places += [(f'{folder}/libnccl.so.2', 'CUDA\'s folder') for folder in cuda_folders()]
    places += [(f'{folder}/libnccl.so.2', 'PyTorch\'s package') for folder in package_folders(python, 'nccl/lib')]
    kept = first_of_each(file for file, _ in places if os.path.isfile(file))
    where = dict(reversed(places))  # of several places with one file, the first
    yield from ((file, where[file]) for file in kept)


def examine(file, where, environment):
    if not os.path.isfile(file):
        return Library(file, where, '', 0, 'there is no such file')
    runtime = runtime_of(file)
    version, why = ask(ASK_NCCL, os.path.abspath(file), environment=environment)
    return Library(os.path.abspath(file), where, runtime, int(version or 0), why)


def find_gpus(file='libcuda.so.1'):
    answer, why = ask(ASK_DRIVER, file)
    if not answer:
        return Gpus(file, [], False, why)
    found = json.loads(answer)
    return Gpus(found['driver'], found['names'], found['software'], found['why'] or ('' if found['names'] else 'the driver shows none'))


def software_refusal(softgpu, version):
    """Why the software GPU cannot play that NCCL's kernels, '' when it can."""
    answer, why = ask(ASK_REFUSAL, pathlib.Path(softgpu) / 'libcuda.so.1', version)
    return answer or why


def drivers_in_the_way(gpus):
    """(what is wrong, what is only worth saying) about several libcuda.so.1: a program takes the first, or by a path of its own another."""
    files = loader_files('libcuda.so.1')
    if len(files) < 2:
        return '', ''
    first, others = files[0], files[1:]
    found = {file: gpus if i == 0 else find_gpus(file) for i, file in enumerate(files)}
    names = f'there are {len(files)} libcuda.so.1 in the loader\'s path: {", ".join(files)}. The first one is taken'
    folder = os.path.dirname(first)
    if found[first].software:
        return f'{names}, and it is the software GPU: take {folder} out of LD_LIBRARY_PATH; where there is no GPU it is added without that', ''
    good = [file for file in others if found[file].names]
    if good and not found[first].names:
        return f'{names}, and it shows no GPU ({found[first].why}), but {good[0]} does: take {folder} out of LD_LIBRARY_PATH', ''
    return '', f'{names}; if it is not this driver\'s, take {folder} out of LD_LIBRARY_PATH'


def broken_topology():
    """What is wrong with the file that NCCL_TOPO_FILE names, '' when nothing is."""
    file = os.environ.get('NCCL_TOPO_FILE')
    if file is None:
        return ''
    mend = 'mend the file, or unset NCCL_TOPO_FILE: NCCL then looks at the machine itself'
    if not os.path.isfile(file):
        return f'NCCL_TOPO_FILE is "{file}", and there is no such file; {mend}'
    try:
        root = xml.etree.ElementTree.parse(file).getroot()
    except (OSError, xml.etree.ElementTree.ParseError) as error:
        return f'NCCL_TOPO_FILE: {file} cannot be read: {error}; {mend}'
    if root.tag != 'system' or root.find('cpu') is None:
        return f'NCCL_TOPO_FILE: {file} is no topology: it has to be a <system> with a <cpu> (NCCL_TOPO_DUMP_FILE writes one); {mend}'
    return ''


def runtime_folder(python):
    """Where a shared CUDA runtime is that the loader does not find by itself; '' when it does or there is none."""
    names = ('libcudart.so.13', 'libcudart.so.12')
    if any(loader_files(name) for name in names):
        return ''
    folders = cuda_folders() + package_folders(python, 'cuda_runtime/lib') + package_folders(python, 'cu13/lib')
    return next((folder for folder in folders if any(os.path.isfile(f'{folder}/{name}') for name in names)), None)


class Host:
    """The NCCL that is taken here, the GPUs that it runs on, and the environment in which both find each other. `softgpu` is the folder of the
    software GPU, which is used where there is no other one."""

    def __init__(self, softgpu, nccl, python):
        self.softgpu, self.python = str(softgpu), python
        wrong = broken_topology()
        if wrong:
            raise CannotRun(wrong)
        self.gpus = find_gpus()
        self.note = self.look_at_drivers()
        self.software = not self.gpus.names
        self.runtime_folder = self.softgpu if self.software else runtime_folder(python)
        if self.runtime_folder is None:
            raise CannotRun(NO_RUNTIME)
        self.libraries = [examine(file, where, self.environment()) for file, where in nccl_files(nccl, python)]
        self.library = self.choose()

    def look_at_drivers(self):
        wrong, note = drivers_in_the_way(self.gpus)
        if not wrong and self.gpus.software:
            wrong = (f'the libcuda.so.1 in the loader\'s path ({self.gpus.driver}) is the software GPU: take its folder out of LD_LIBRARY_PATH; where there is '
                     'no GPU it is added without that')
        if wrong:
            raise CannotRun(wrong)
        return note

    def choose(self):
        if not self.libraries:
            raise CannotRun('no libnccl.so.2: it is neither in the loader\'s path, nor in CUDA\'s folders, nor in PyTorch\'s packages; install NCCL (pip: '
                            'nvidia-nccl-cu12) or name one by --nccl FILE')
        usable = [each for each in self.libraries if each.version and (each.runtime or not self.software)]
        if usable:
            refusal = software_refusal(self.softgpu, usable[0].version) if self.software else ''
            if refusal:
                raise CannotRun(f'the software GPU cannot play {usable[0].file}: {refusal}. Name another NCCL by --nccl FILE, or run this where there is a GPU')
            return usable[0]
        first = self.libraries[0]
        if first.version:
            raise CannotRun(f'{first.file} has the CUDA runtime inside, which needs NVIDIA\'s driver and a GPU, and here is none ({self.gpus.why}). '
                            f'{WITHOUT_GPU}')
        raise CannotRun(f'{first.file} cannot be used: {first.why or "it does not tell its version"}; name another one by --nccl FILE')

    def environment(self, plugin=''):
        """This process's, in which NCCL finds CUDA and takes that network plugin ("none": its own transport)."""
        environment = {name: value for name, value in os.environ.items() if not plugin or name not in OURS_TO_SET}
        path = ':'.join(filter(None, [self.runtime_folder, os.environ.get('LD_LIBRARY_PATH')]))
        if path:
            environment['LD_LIBRARY_PATH'] = path
        if plugin:
            environment.update({'NCCL_NET_PLUGIN': plugin, 'NCCL_DEBUG': 'INFO'})
        if self.software:
            environment.update({'SOFTGPU_COUNT': '1'})
            environment.setdefault('NCCL_BUFFSIZE', '1048576')
        return environment

    def device(self, rank):
        """GPUs are shared by ranks where there are fewer of them: each rank is a node of its own."""
        return rank % max(len(self.gpus.names), 1)
