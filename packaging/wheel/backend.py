# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""A PEP 517 backend that puts the plugin and the weft command into a wheel. Needs Meson and a compiler, and no network."""
import base64
import hashlib
import os
import pathlib
import platform
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import time
import zipfile

TOP = pathlib.Path(__file__).resolve().parents[2]
NAME = 'weft_nccl'
EARLIEST = 315532800  # 1980, where zip archives begin
METADATA = '''Metadata-Version: 2.1
Name: weft-nccl
Version: {version}
Summary: Network plugin for NCCL, and its tools
Author: The weft authors
Author-email: weft@example.org
{homepage}License: Apache-2.0
Requires-Python: >=3.8
Classifier: Operating System :: POSIX :: Linux

weft carries NCCL's traffic over EFA, InfiniBand, RoCE or TCP.

    export NCCL_NET_PLUGIN=$(python3 -m weft path)
'''


def metadata():
    """The home page is that of whoever builds the wheel: WEFT_HOMEPAGE, or none."""
    homepage = os.environ.get('WEFT_HOMEPAGE', '')
    return METADATA.format(version=version(), homepage=f'Home-page: {homepage}\n' if homepage else '')


def version():
    return re.search(r"version: '([^']+)'", (TOP / 'meson.build').read_text()).group(1)


def run(*command, **settings):
    subprocess.run([str(part) for part in command], check=True, env={**os.environ, **settings}, stdout=sys.stderr)


def need_glibc():
    try:
        os.confstr('CS_GNU_LIBC_VERSION')
    except (OSError, ValueError):
        sys.exit('weft-nccl: this system has no glibc (musl?); NCCL and weft need glibc 2.35 or later')


def tag_of(binaries):
    """The platform tag by what the binaries ask of glibc."""
    asked = [(2, 17)]
    for binary in binaries:
        shown = subprocess.run(['readelf', '-V', binary], capture_output=True, text=True, check=True).stdout
        asked += [tuple(map(int, pair)) for pair in re.findall(r'GLIBC_(\d+)\.(\d+)', shown)]
    major, minor = max(asked)
    return f'py3-none-manylinux_{major}_{minor}_{platform.machine()}'


def built(folder):
    """{path in the wheel: file}, from a build of its own."""
    build, stage = TOP / f'build-{folder.name}', folder / 'stage'
    run(TOP / 'packaging/configure', build, '--prefix=/', '--libdir=lib', '--wrap-mode=nodownload')
    run('ninja', '-C', build, *filter(None, [os.environ.get('WEFT_NINJA_JOBS')]))
    run('meson', 'install', '-C', build, '--no-rebuild', DESTDIR=str(stage))
    binaries = {'weft/libnccl-net-weft.so': stage / 'lib/libnccl-net-weft.so', 'weft/weft': stage / 'bin/weft',
                'weft/weft-aggd': stage / 'bin/weft-aggd', 'weft/libnccl-net-record.so': stage / 'lib/libnccl-net-record.so',
                'weft/libnccl-net-plain-sockets.so': stage / 'lib/weft/libnccl-net-plain-sockets.so'}
    for binary in binaries.values():
        run('strip', '--strip-unneeded', binary)
    here = pathlib.Path(__file__).parent
    return {**binaries, **shared(stage), 'weft/__init__.py': here / 'weft/__init__.py', 'weft/__main__.py': here / 'weft/__main__.py'}


def shared(stage):
    """Manual pages, completion and examples: pip puts what is below .data/data below the environment's own prefix."""
    found = {}
    for part in ('share/man', 'share/bash-completion', 'share/zsh', 'share/weft'):
        for path in sorted((stage / part).rglob('*')):
            if path.is_file():
                found[f'{NAME}-{version()}.data/data/{path.relative_to(stage)}'] = path
    return found


def executable(inside):
    return inside in ('weft/weft', 'weft/weft-aggd') or inside.endswith('.so')


def digest(data):
    return 'sha256=' + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()


class Wheel:
    """A zip archive whose bytes come from its contents alone."""

    def __init__(self, path):
        self.archive = zipfile.ZipFile(path, 'w', zipfile.ZIP_DEFLATED)
        self.date = time.gmtime(max(int(os.environ.get('SOURCE_DATE_EPOCH', EARLIEST)), EARLIEST))[:6]
        self.record = []

    def add(self, name, data, mode=0o644):
        entry = zipfile.ZipInfo(name, self.date)
        entry.external_attr = (stat.S_IFREG | mode) << 16
        entry.compress_type = zipfile.ZIP_DEFLATED
        self.archive.writestr(entry, data)
        self.record.append(f'{name},{digest(data)},{len(data)}')

    def close(self, info):
        self.record.append(f'{info}/RECORD,,')
        self.add(f'{info}/RECORD', ('\n'.join(self.record) + '\n').encode())
        self.archive.close()


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    del config_settings, metadata_directory
    need_glibc()
    with tempfile.TemporaryDirectory(prefix='weft-wheel-') as folder:
        files = built(pathlib.Path(folder))
        tag = tag_of([path for inside, path in files.items() if executable(inside)])
        name, info = f'{NAME}-{version()}-{tag}.whl', f'{NAME}-{version()}.dist-info'
        wheel = Wheel(pathlib.Path(wheel_directory) / name)
        for inside, path in sorted(files.items()):
            wheel.add(inside, path.read_bytes(), 0o755 if executable(inside) else 0o644)
        wheel.add(f'{info}/METADATA', metadata().encode())
        wheel.add(f'{info}/WHEEL', f'Wheel-Version: 1.0\nGenerator: weft\nRoot-Is-Purelib: false\nTag: {tag}\n'.encode())
        wheel.add(f'{info}/entry_points.txt', b'[console_scripts]\nweft = weft.__main__:command\nweft-aggd = weft.__main__:daemon\n')
        wheel.add(f'{info}/licenses/COPYING', (TOP / 'COPYING').read_bytes())
        wheel.close(info)
        shutil.rmtree(TOP / f'build-{pathlib.Path(folder).name}')
    return name


def build_sdist(sdist_directory, config_settings=None):
    del config_settings
    stem = f'{NAME}-{version()}'
    run('git', '-C', TOP, 'archive', f'--prefix={stem}/', f'--output={pathlib.Path(sdist_directory).resolve() / stem}.tar.gz', 'HEAD')
    return f'{stem}.tar.gz'
