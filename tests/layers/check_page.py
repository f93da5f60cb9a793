#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""Compares a page of the documentation with the program that generates it.

usage: check_page.py PAGE PROGRAM [ARGUMENT]...
"""
import difflib
import pathlib
import subprocess
import sys


def main(arguments):
    if len(arguments) < 2:
        sys.exit(__doc__)
    page, command = pathlib.Path(arguments[0]), arguments[1:]
    made = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    stored = page.read_text() if page.exists() else ''
    difference = list(difflib.unified_diff(stored.splitlines(), made.splitlines(), str(page), 'generated', lineterm=''))
    print(*difference, sep='\n')
    if difference:
        print(f'{page} is out of step; write it anew:  {" ".join(command)} > {page}')
    return 1 if difference or not made else 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
