#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""scripts/nccl-check: what it refuses and with which words, and with an NCCL what it does.

usage: nccl_check_test.py refusals BUILD STAND_INS | nccl_check_test.py runs BUILD

STAND_INS is a folder of libraries that do nothing but answer. `runs` is skipped where no NCCL with the shared CUDA runtime is found.
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

TOP = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / 'scripts' / 'lib'))
import nccl_host
import nccl_programs

PART, BUILD = sys.argv[1], pathlib.Path(sys.argv[2])
SKIP = 77
SECONDS = 200
# No GPU and no settings of whoever runs this.
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(('WEFT_', 'NCCL_', 'SLURM_', 'SOFTGPU_')) and name != 'LD_LIBRARY_PATH'}
CLEAN['WEFT_CONF'] = ''


def start(arguments, settings):
    return subprocess.Popen([sys.executable, TOP / 'scripts' / 'nccl-check', '--build', BUILD, '--no-torch', *map(str, arguments)], env={**CLEAN, **settings},
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def check(*arguments, **settings):
    """(exit status, what it said)"""
    process = start(arguments, settings)
    said, _ = process.communicate(timeout=SECONDS)
    return process.returncode, said


class Case(unittest.TestCase):
    def expect(self, outcome, status, *words):
        for word in words:
            self.assertRegex(outcome[1], word)
        self.assertEqual(outcome[0], status, outcome[1])


class Refusals(Case):
    def setUp(self):
        self.stand_ins = pathlib.Path(sys.argv[3])
        self.folder = pathlib.Path(tempfile.mkdtemp())

    def tearDown(self):
        shutil.rmtree(self.folder, ignore_errors=True)

    def refuse(self, *arguments, words, **settings):
        """Whatever GPUs this machine has are hidden."""
        self.expect(check('--plugin', '/dev/null', *arguments, CUDA_VISIBLE_DEVICES='', **settings), 2, *words)

    def driver(self, name):
        """A folder with that stand-in as its libcuda.so.1."""
        folder = self.folder / name
        folder.mkdir()
        shutil.copy(self.stand_ins / f'lib{name}.so', folder / 'libcuda.so.1')
        return folder

    def test_a_file_that_is_not_there(self):
        self.refuse('--nccl', '/nowhere/libnccl.so.2', words=['--nccl: there is no file /nowhere/libnccl.so.2'])

    def test_no_nccl(self):
        """Even where this machine has one."""
        with unittest.mock.patch('nccl_host.nccl_files', return_value=[]), unittest.mock.patch.dict(os.environ, CLEAN, clear=True):
            with self.assertRaisesRegex(nccl_host.CannotRun, 'no libnccl.so.2: .*install NCCL.*--nccl FILE'):
                nccl_host.Host(BUILD / 'tests' / 'softgpu', '', 'python3')

    def test_no_library_at_all(self):
        text = self.folder / 'libnccl.so.2'
        text.write_text('no library')
        self.refuse('--nccl', text, words=['cannot be used', '--nccl FILE'])

    def test_a_runtime_inside_without_a_gpu(self):
        self.refuse('--nccl', self.stand_ins / 'libnccl-static.so', words=['has the CUDA runtime inside', 'needs NVIDIA\'s driver and a GPU', 'CUDARTLIB=cudart',
                                                                           'weft perf --replay'])

    def test_versions_without_a_layout(self):
        for name, version in (('newer', 29900), ('older', 21805)):
            self.refuse('--nccl', self.stand_ins / f'libnccl-{name}.so', words=['the software GPU cannot play', f'NCCL {version} has structures that are not known',
                                                                               'Name another NCCL by --nccl FILE'])

    def test_topologies(self):
        cases = {'': 'is "", and there is no such file', '/nowhere/topology.xml': 'there is no such file'}
        for name, text, words in (('half', '<system><cpu>', 'cannot be read: .*line 1'), ('other', '<html><cpu/></html>', 'is no topology')):
            (self.folder / name).write_text(text)
            cases[str(self.folder / name)] = words
        for file, words in cases.items():
            self.refuse('--nccl', self.stand_ins / 'libnccl-static.so', words=['NCCL_TOPO_FILE', words, 'unset NCCL_TOPO_FILE'], NCCL_TOPO_FILE=file)

    def test_a_driver_that_hides_another(self):
        first, second = self.driver('driver-without-gpu'), self.driver('driver-with-gpu')
        self.refuse('--nccl', self.stand_ins / 'libnccl-static.so', words=['there are . libcuda.so.1 in the loader\'s path', f'{second}/libcuda.so.1 does',
                                                                           f'take {first} out of LD_LIBRARY_PATH'],
                    LD_LIBRARY_PATH=f'{first}:{second}')

    def test_a_software_gpu_in_the_way(self):
        softgpu, real = BUILD / 'tests' / 'softgpu', self.driver('driver-with-gpu')
        for path in (f'{softgpu}:{real}', str(softgpu)):
            self.refuse('--nccl', self.stand_ins / 'libnccl-static.so', words=['is the software GPU', 'out of LD_LIBRARY_PATH'], LD_LIBRARY_PATH=path)

    def test_no_task(self):
        self.refuse('--shared', self.folder, words=['--shared is for tasks of srun or mpirun'])

    def test_what_is_not_built(self):
        self.refuse('--plugin', self.folder / 'none.so', words=['none.so is missing', 'builds what is needed'])


MPI = {'Open MPI': ('mpirun (Open MPI) 4.1.4', 'libmpi.so.40 => /usr/lib/libmpi.so.40'),
       'MPICH': ('HYDRA build details: Version 4.0.2', 'libmpich.so.12 => /usr/lib/libmpich.so.12')}


class Programs(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)

    def launcher(self, linked, **installed):
        """Of a program that is linked so, where those launchers are: NAME='Open MPI' or 'MPICH'."""
        for name, mpi in installed.items():
            file = self.folder / name
            file.write_text(f'#!/bin/sh\necho "{MPI[mpi][0]}"\n')
            file.chmod(0o755)
        with unittest.mock.patch.dict(os.environ, {'PATH': str(self.folder)}):
            return nccl_programs.launcher_of(linked)

    def test_mpich_by_its_own_launcher(self):
        """Open MPI's options are not known to it."""
        command, _ = self.launcher(MPI['MPICH'][1], mpirun='Open MPI', mpiexec='MPICH')
        self.assertEqual(command, [str(self.folder / 'mpiexec'), '-launcher', 'fork', '-iface', 'lo'])

    def test_open_mpi_by_its_own(self):
        command, _ = self.launcher(MPI['Open MPI'][1], mpiexec='Open MPI', mpirun='MPICH')
        self.assertEqual(command[:2], [str(self.folder / 'mpiexec'), '--oversubscribe'])

    def test_none_of_that_mpi(self):
        self.assertEqual(self.launcher(MPI['MPICH'][1], mpirun='Open MPI'), (None, 'was built with MPICH, and there is no mpiexec of it'))

    def test_pytorch_has_its_own_nccl(self):
        """It comes before another one that the loader knows."""
        with unittest.mock.patch('nccl_host.package_folders', return_value=['/packages/nvidia/nccl/lib']):
            environment = nccl_programs.torch_environment({'LD_LIBRARY_PATH': '/cuda/lib'}, 0, 2, 0, 1)
        self.assertEqual(environment['LD_LIBRARY_PATH'], '/packages/nvidia/nccl/lib:/cuda/lib')


class Runs(Case):
    def test_all_of_it(self):
        outcome = check('--ranks', 3, '--max', 65536)
        self.expect(outcome, 0, 'SOFTWARE GPU', 'Using network weft', 'via NET/weft', 'Using network (Socket|IB)', 'all right \\(on a software GPU\\)')
        for operation in ('all_reduce', 'all_gather', 'reduce_scatter', 'broadcast', 'send_recv', 'all_to_all'):
            self.assertRegex(outcome[1], rf'(?m)^{operation} +64 KiB +\d+\.\d +\d+\.\d +\d+\.\d\d \(')

    def test_a_network_that_is_not_there(self):
        """NCCL goes on with its own transport then, which must not pass for weft."""
        self.expect(check('--max', 8, WEFT_PROVIDER='ofi:gni'), 1, 'NCCL did not use weft', 'NOT all right')

    def test_a_rank_that_fails(self):
        self.expect(check('--max', 8, SOFTGPU_FAULTS='nonsense'), 1, 'weft: rank \\d ended', 'nonsense', 'NOT all right')

    def test_tasks(self):
        """As srun would start them; the second time there are leftovers."""
        with tempfile.TemporaryDirectory() as shared:
            tasks = [start(['--shared', shared, '--max', 8], {'SLURM_PROCID': str(task), 'SLURM_NTASKS': '2', 'SLURM_LOCALID': '0', 'NCCL_HOSTID': f'task{task}',
                                                              'NCCL_SOCKET_IFNAME': 'lo'}) for task in range(2)]
            for task in tasks:
                said, _ = task.communicate(timeout=SECONDS)
                self.expect((task.returncode, said), 0, 'via NET/weft', 'all right')
            self.assertEqual(os.listdir(shared), [])
            pathlib.Path(shared, 'weft.id').touch()
            self.expect(check('--shared', shared, SLURM_PROCID='0', SLURM_NTASKS='1', SLURM_LOCALID='0'), 2, 'weft.id of an earlier run: remove')

    def bench(self, *arguments):
        """tests/bench/nccl-speed at its shortest: exit status and what it printed."""
        done = subprocess.run([sys.executable, TOP / 'tests' / 'bench' / 'nccl-speed', '--build', BUILD, '--ranks', '2', '--rounds', '5', '--only', 'all_gather',
                               *arguments], env=CLEAN, capture_output=True, text=True, timeout=SECONDS, check=False)
        return done.returncode, done.stdout + done.stderr

    def test_the_bench(self):
        self.expect(self.bench('--start', '2', '--max', '65536'), 0, r'all_gather, 2 ranks, 64 KiB +\d+\.\d us +socket +\d+\.\d\d \(', 'goes by NET/weft/0',
                    'goes by NET/Socket/0', r'start, 2 ranks, weft: init \d+ ms, first result after \d+ ms')

    def test_the_bench_on_one_host(self):
        self.expect(self.bench('--same-host', '--start', ',', '--max', '8'), 0, r'all_gather, 2 ranks, 8 B +\d+\.\d us +shm +\d+\.\d\d \(', 'goes by NET/weft/0',
                    'goes by SHM')


def main():
    if PART == 'runs':
        CLEAN.update({name: os.environ[name] for name in ('WEFT_NCCL',) if name in os.environ})
        shared = [file for file, _ in nccl_host.nccl_files('', 'python3') if nccl_host.runtime_of(file)]
        if not shared:
            print('skipped: no NCCL with the shared CUDA runtime; WEFT_NCCL=FILE names one')
            sys.exit(SKIP)
        CLEAN['CUDA_VISIBLE_DEVICES'] = '0'
    unittest.main(argv=[sys.argv[0]], defaultTest=['Runs'] if PART == 'runs' else ['Refusals', 'Programs'], verbosity=2)


main()
