#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""Checks that messages quoted by the troubleshooting page are messages of the sources.

usage: check_messages.py PAGE SOURCE_FOLDER...

Quoted is the code at the beginning of a table's row, unless NCCL says it; ... stands for what differs each time.
"""
import pathlib
import re
import sys

ROW = re.compile(r'^\| (`[^|]*)\|', re.MULTILINE)
SHORTEST = 12  # characters; a shorter piece says nothing


def strings_of(folders):
    """All string literals of the sources, with those that follow each other joined as the compiler does."""
    texts = []
    for folder in folders:
        for path in sorted(pathlib.Path(folder).rglob('*')):
            if path.suffix in ('.cc', '.h'):
                texts.append(re.sub(r'"\s*\n\s*"', '', path.read_text()))
    return '\n'.join(texts).replace('\\"', '"')


def pieces_of(message):
    """Its fixed parts. A format's %s and the page's ... stand for the same."""
    return [piece for piece in message.split('...') if len(piece) >= SHORTEST]


def main(arguments):
    if len(arguments) < 2:
        sys.exit(__doc__)
    page = pathlib.Path(arguments[0])
    sources = strings_of(arguments[1:])
    missing = quoted = 0
    for row in ROW.findall(page.read_text()):
        for message in re.findall(r'`([^`]+)`', row):
            quoted += 1
            for piece in pieces_of(message):
                if piece not in sources:
                    missing += 1
                    print(f'{page}: no message has "{piece}"')
    print(f'{quoted} messages, {missing} parts of them not found')
    return 1 if missing or not quoted else 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
