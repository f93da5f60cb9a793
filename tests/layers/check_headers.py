#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""Shows that every header compiles alone, so that including one never depends on what was included before it.

A header that is the first include of its own .cc is shown by the build; the others are compiled here. The tools are built as one
source, so for them the first include is a rule that their order of includes keeps, and not a proof; compiling each of their headers
once more cost more than all other house checks together.

usage: check_headers.py TOP [--skip FOLDER]... -- COMPILER [ARGUMENT]...
"""
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys

FOLDERS = ('include', 'src', 'providers', 'plugin', 'tools', 'tests')
FLAGS = ['-fsyntax-only', '-Werror']
FIRST_INCLUDE = re.compile(r'^#include [<"]([^>"]+)[>"]', re.MULTILINE)


def compile_alone(top, compiler, header, language, standard):
    """The compiler's complaints about one header; empty when it stands alone."""
    command = [*compiler, *FLAGS, f'-std={standard}', '-I', top, '-I', top / 'include', '-x', language, '-']
    text = f'#include "{header}"\n#include "{header}"\n'  # twice: it must also guard itself
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False, timeout=120)
    return f'{header} ({standard}) does not compile alone:\n{done.stderr}' if done.returncode else ''


def headers(top, skip):
    found = sorted(path for folder in FOLDERS for path in (top / folder).rglob('*.h'))
    return [path for path in found if not any(path.is_relative_to(top / folder) for folder in skip)]


def shown_by_build(top, header):
    unit = header.with_suffix('.cc')
    first = FIRST_INCLUDE.search(unit.read_text()) if unit.exists() else None
    return bool(first) and (top / first[1] == header or top / 'include' / first[1] == header)


def jobs(top, skip):
    """(header, language, standard); NCCL's declarations must also be C."""
    for path in headers(top, skip):
        if not shown_by_build(top, path):
            yield path, 'c++', 'c++20'
        if path.is_relative_to(top / 'include' / 'nccl'):
            yield path, 'c', 'c11'


def main(arguments):
    if '--' not in arguments:
        sys.exit(__doc__)
    split = arguments.index('--')
    options, compiler = arguments[:split], arguments[split + 1:]
    top = pathlib.Path(options[0]).resolve()
    skip = [value for flag, value in zip(options[1::2], options[2::2]) if flag == '--skip']
    todo = list(jobs(top, skip))
    total = len(headers(top, skip))
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        failed = [text for text in pool.map(lambda job: compile_alone(top, compiler, *job), todo) if text]
    print(*failed, sep='\n')
    print(f'{total} headers, {len(todo)} compiled here, {len(failed)} failed')
    return 1 if failed or not todo else 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
