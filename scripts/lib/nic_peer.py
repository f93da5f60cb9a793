# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""The other host of scripts/nic-check: commands are started there by ssh, or by the other task of a launcher, through a folder that both see.

A peer has `address`, by which it is reached; `start`, for a command with settings, of which nothing is left after `seconds`; and `end`. What `start` gives has
`poll`, `kill` and `text` (of both streams, so far)."""
import json
import os
import pathlib
import shlex
import signal
import socket
import subprocess
import tempfile
import time

# Who is which task: rank and number of tasks.
TASK_VARIABLES = (('SLURM_PROCID', 'SLURM_NTASKS'), ('OMPI_COMM_WORLD_RANK', 'OMPI_COMM_WORLD_SIZE'), ('PMI_RANK', 'PMI_SIZE'), ('RANK', 'WORLD_SIZE'))
SEEN_EVERY = 0.1
MEET_SECONDS = 60
HELLO, END = 'peer.json', 'end'


class NoPeer(Exception):
    """The other host cannot be used, and why."""


def task():
    """(rank, number of tasks), or None without a launcher."""
    for names in TASK_VARIABLES:
        if all(os.environ.get(name, '').isdigit() for name in names):
            return tuple(int(os.environ[name]) for name in names)
    return None


class Started:
    """A process of this host that stands for one of the other."""

    def __init__(self, command):
        self.file = tempfile.TemporaryFile()
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.file, stderr=subprocess.STDOUT, start_new_session=True)

    def poll(self):
        return self.process.poll()

    def kill(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def text(self):
        self.file.seek(0)
        return self.file.read().decode(errors='replace')


class SshPeer:
    def __init__(self, host, build):
        self.host, self.build, self.address = host, build, host.rpartition('@')[2]
        meets = self.start(['test', '-x', f'{build}/tools/weft'], {}, 20)
        until = time.monotonic() + 20
        while meets.poll() is None and time.monotonic() < until:
            time.sleep(SEEN_EVERY)
        status = meets.poll()
        meets.kill()
        if status != 0:
            said = (meets.text().strip().splitlines() or [''])[-1]
            raise NoPeer(f'--peer {host}: ' + (f'there is no {build}/tools/weft there (--peer-build FOLDER names another one)' if status == 1 and not said
                                               else f'ssh says {said or "nothing"} (it must ask for nothing: a key, and a host that is known)'))

    def start(self, command, settings, seconds):
        words = ['timeout', '-k', '2', str(int(seconds)), 'env', *(f'{name}={value}' for name, value in settings.items()), *map(str, command)]
        return Started(['ssh', '-o', 'BatchMode=yes', '-o', 'ConnectTimeout=10', self.host, shlex.join(words)])

    def end(self):
        pass  # timeout ends there whatever is left


class SharedJob:
    """A command that the other task runs."""

    def __init__(self, folder, number):
        self.folder, self.number = folder, number

    def poll(self):
        file = self.folder / f'{self.number}.status'
        return int(file.read_text()) if file.exists() else None

    def kill(self):
        (self.folder / f'{self.number}.kill').touch()

    def text(self):
        file = self.folder / f'{self.number}.log'
        return file.read_text(errors='replace') if file.exists() else ''


class SharedPeer:
    def __init__(self, folder):
        self.folder, self.count = folder, 0
        until = time.monotonic() + MEET_SECONDS
        while not (folder / HELLO).exists():
            if time.monotonic() > until:
                raise NoPeer(f'--shared: the other task has not come to {folder} for {MEET_SECONDS} s: do both see it, and was it empty?')
            time.sleep(SEEN_EVERY)
        said = json.loads((folder / HELLO).read_text())
        self.address, self.build = said['address'], pathlib.Path(said['build'])

    def start(self, command, settings, seconds):
        self.count += 1
        write_whole(self.folder / f'{self.count}.job', json.dumps({'command': [str(word) for word in command], 'settings': settings, 'seconds': seconds}))
        return SharedJob(self.folder, self.count)

    def end(self):
        (self.folder / END).touch()


def write_whole(file, text):
    """Whoever sees the file sees all of it."""
    part = file.with_name(file.name + '.part')
    part.write_text(text)
    part.rename(file)


def serve(folder, build, seconds):
    """The other task: runs what it is told, until it is told to end or the time is over."""
    write_whole(folder / HELLO, json.dumps({'address': os.environ.get('WEFT_NIC_CHECK_ADDRESS') or socket.getfqdn(), 'build': str(build)}))
    until, jobs, count = time.monotonic() + seconds, {}, 0
    try:
        while time.monotonic() < until and not (folder / END).exists():
            if (folder / f'{count + 1}.job').exists():
                count += 1
                jobs[count] = begin_job(folder, count)
            for number in list(jobs):
                if job_is_over(folder, number, *jobs[number]):
                    jobs.pop(number)
            time.sleep(SEEN_EVERY)
    finally:
        for process, _ in jobs.values():
            end_job(process)


def begin_job(folder, number):
    """(process, when it has to be over)"""
    told = json.loads((folder / f'{number}.job').read_text())
    with open(folder / f'{number}.log', 'wb') as log:
        try:
            process = subprocess.Popen(told['command'], env={**os.environ, **told['settings']}, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                                       start_new_session=True)
        except OSError as error:
            log.write(str(error).encode())
            process = None
    return process, time.monotonic() + told['seconds']


def end_job(process):
    if process and process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def job_is_over(folder, number, process, until):
    if process and process.poll() is None and time.monotonic() < until and not (folder / f'{number}.kill').exists():
        return False
    end_job(process)
    write_whole(folder / f'{number}.status', str(process.returncode if process else 127))
    return True
