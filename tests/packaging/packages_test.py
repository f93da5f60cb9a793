#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""The packages that scripts/release built, in clean roots of Debian 12 and 13 made from packages.

usage: packages_test.py PACKAGES [RELEASE]...

For each kind of package: install, `weft info`, `weft perf`, an upgrade while a process runs with the old files, remove, and
nothing is left. Root only; the roots' archives stay in build-roots/ of the checkout, some 160 MiB each.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

TOP = pathlib.Path(__file__).resolve().parents[2]
RELEASES = ('bookworm', 'trixie')
NEEDED = 'libfabric1 python3-venv rpm'
# What package managers write for themselves, and what Python does.
OWN_TRACES = ('proc', 'sys', 'dev', 'tmp', 'run', 'var/cache', 'var/log', 'var/lib/dpkg', 'var/lib/apt', 'var/lib/rpm',
              'root/.cache', 'root/.rpmdb', 'packages')
LONG_RUN = 'weft perf all_reduce -n 2 -b 4K -e 4K -w 0 --iters'
PROBE, LONG_SECONDS, LONGEST_RUN = 500, 8, 200000  # iterations, and how long the run beside an upgrade shall take


class Failed(Exception):
    pass


def shell(script, *arguments, **how):
    lib = TOP / 'scripts/lib'
    return subprocess.run(['bash', '-c', f'source {lib}/packages.sh; source {lib}/root.sh; {script}', 'packages_test', *arguments],
                          text=True, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **how)


class Root:
    """A fresh root of a release, gone at the end."""

    def __init__(self, release):
        self.archive = TOP / 'build-roots' / f'clean-{release}.tar'
        if not self.archive.exists():
            self.archive.parent.mkdir(exist_ok=True)
            made = shell('mmdebstrap --quiet --variant=minbase "$1" "$2" "$(weftMirror)"', release, str(self.archive), timeout=600)
            if made.returncode != 0:
                raise Failed(f'no root of {release}: {made.stdout}')
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix=f'weft-root-{release}-'))
        subprocess.run(['tar', '-xf', str(self.archive), '-C', str(self.folder), '--exclude=./dev/*'], check=True)
        shutil.copy('/etc/resolv.conf', self.folder / 'etc/resolv.conf')

    def command(self, script, path=''):
        lib = TOP / 'scripts/lib'
        inside = f'export PATH={path}:$PATH; {script}' if path else script
        return ['bash', '-c', f'source {lib}/packages.sh; source {lib}/root.sh; weftInRoot "$1" "" DEBIAN_FRONTEND=noninteractive '
                              f'sh -c "$2"', 'packages_test', str(self.folder), inside]

    def run(self, script, path='', good=0):
        done = subprocess.run(self.command(script, path), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
                              timeout=600)
        if done.returncode != good:
            raise Failed(f'{script}: exit status {done.returncode}\n{done.stdout[-3000:]}')
        return done.stdout

    def files(self):
        found = set()
        for place, folders, names in os.walk(self.folder):
            inside = os.path.relpath(place, self.folder)
            if inside in OWN_TRACES:
                folders.clear()
                continue
            found.update(os.path.normpath(os.path.join(inside, name)) for name in names if not name.endswith('.pyc'))
        return found

    def close(self):
        shutil.rmtree(self.folder, ignore_errors=True)


class Kind:
    """How one kind of package goes in, is replaced and goes out. Shell commands in the root; PACKAGE is its path there."""

    def __init__(self, name, pattern, install, upgrade, remove, path=''):
        self.name, self.pattern = name, pattern
        self.install, self.upgrade, self.remove, self.path = install, upgrade, remove, path


KINDS = [
    Kind('deb', '*.deb', 'apt-get install -y --no-install-recommends PACKAGE', 'dpkg -i PACKAGE.next.deb', 'apt-get purge -y weft-nccl'),
    # The root's rpm database is empty, so it cannot know that the C library is there.
    # Debian 12's rpm wants to be told that Debian is meant, and a later one does not know the word.
    Kind('rpm', '*.rpm', 'rpm -i --nodeps PACKAGE || rpm -i --force-debian --nodeps PACKAGE',
         'rpm -U --force --nodeps PACKAGE || rpm -U --force-debian --force --nodeps PACKAGE',
         'rpm -e --nodeps weft-nccl || rpm -e --force-debian --nodeps weft-nccl'),
    Kind('wheel', '*.whl', 'python3 -m venv /opt/v && /opt/v/bin/pip install -q --no-index PACKAGE',
         '/opt/v/bin/pip install -q --no-index --force-reinstall PACKAGE', '/opt/v/bin/pip uninstall -q -y weft-nccl && '
         '! find /opt/v -name "*weft*" | grep . && rm -r /opt/v', path='/opt/v/bin'),
    Kind('tarball', '*-linux-*.tar.gz', 'tar -C /usr/local --strip-components=1 -xzf PACKAGE',
         'tar -C /usr/local --strip-components=1 -xzf PACKAGE',
         'cd /usr/local && tar -tzf PACKAGE | sed "s|^[^/]*/||" | grep -v "/$" | xargs -d "\\n" rm -f', path='/usr/local/bin'),
]


def next_version(package):
    """The same .deb with a later version: what an upgrade brings."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(['dpkg-deb', '-R', str(package), folder], check=True)
        control = pathlib.Path(folder) / 'DEBIAN/control'
        control.write_text(re.sub(r'(?m)^(Version: .*)$', r'\1+next', control.read_text()))
        subprocess.run(['dpkg-deb', '-b', folder, f'{package}.next.deb'], check=True, stdout=subprocess.DEVNULL)


def iterations_for(root, kind):
    """As many as take LONG_SECONDS, by a short run without what its start takes."""
    def seconds(iterations):
        started = time.time()
        root.run(f'{LONG_RUN} {iterations}', kind.path)
        return time.time() - started
    each = max(seconds(PROBE) - seconds(1), 0.01) / PROBE
    return min(max(int(LONG_SECONDS / each), PROBE), LONGEST_RUN)


def try_kind(root, kind, package):
    inside = root.folder / 'packages' / package.name
    inside.parent.mkdir(exist_ok=True)
    shutil.copy(package, inside)
    if kind.name == 'deb':
        next_version(inside)
    before = root.files()
    command = {step: getattr(kind, step).replace('PACKAGE', f'/packages/{package.name}') for step in ('install', 'upgrade', 'remove')}
    root.run(command['install'])
    said = root.run('weft info; weft info --image; weft --version', kind.path)
    if 'devices as NCCL is told' not in said:
        raise Failed(f'weft info: {said}')
    if kind.name == 'wheel':
        path = root.run('python3 -m weft path', kind.path).strip()
        root.run(f'python3 -c "import ctypes; ctypes.CDLL(\'{path}\').ncclNetPlugin_v8"', kind.path)
    else:
        root.run('ldconfig; python3 -c "import ctypes; ctypes.CDLL(\'libnccl-net-weft.so\').ncclNetPlugin_v8"' if kind.name != 'rpm' else 'true')
    root.run('weft perf all_reduce -n 2 -b 8 -e 1M -f 8 --iters 5', kind.path)
    root.run('cd "$(dirname "$(find /opt /usr -path "*/share/weft/plan/resnet-50.job.json" | head -n 1)")" && '
             'weft plan resnet-50.job.json --cluster p3dn.cluster.json -n 8', kind.path)
    iterations = iterations_for(root, kind)
    running = subprocess.Popen(root.command(f'{LONG_RUN} {iterations}', kind.path), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        time.sleep(2)  # it has loaded the plugin by then
        root.run(command['upgrade'])
        if running.poll() is not None:
            raise Failed(f'the run was over before the upgrade: {running.communicate()[0][-2000:]}')
        said = running.communicate(timeout=300)[0]
        if running.returncode != 0:
            raise Failed(f'the run with the old files: {said[-2000:]}')
    finally:
        running.kill()
    root.run('weft info >/dev/null', kind.path)
    root.run(command['remove'])
    left = sorted(root.files() - before)
    if left:
        raise Failed(f'left behind: {left[:20]}')


def main(arguments):
    if not arguments:
        sys.exit(__doc__)
    if os.getuid() != 0:
        print('roots are made and entered as root')
        return 77
    folder, failures = pathlib.Path(arguments[0]), 0
    for release in arguments[1:] or RELEASES:
        root = Root(release)
        try:
            root.run(f'apt-get update -q && apt-get install -y -q --no-install-recommends {NEEDED}')
            for kind in KINDS:
                package = next((path for path in sorted(folder.glob(kind.pattern)) if '.next.' not in path.name), None)
                try:
                    if package is None:
                        raise Failed(f'there is no {kind.pattern} in {folder}')
                    try_kind(root, kind, package)
                    print(f'{release} {kind.name}: ok', flush=True)
                except (Failed, subprocess.SubprocessError) as error:
                    failures += 1
                    print(f'{release} {kind.name}: FAILED: {error}', flush=True)
        finally:
            root.close()
    return 1 if failures else 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
