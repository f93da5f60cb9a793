#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""Checks every source below a tree: rooms include only what they may, units of a room go in no circle, those of the
protocol include only what is on their floor or below, and the house rules hold.

usage: check_layers.py TOP

Prints file:line: complaint for each violation; exit status 1 when there is one.
"""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import circles
import comments
import floors
import folders
import rooms
import rules
import source

FOLDERS = ('include', 'src', 'providers', 'plugin', 'tools', 'tests', 'scripts', 'packaging', '.ci')
GENERATED = ('.inc',)  # made by the build, so not in the tree


def check_includes(top, path, text):
    room = rooms.room_of(path)
    if room is None:
        yield 1, 'this file is in no room of tests/layers/rooms.py'
        return
    here = path.rpartition('/')[0]
    for line, kind, header in source.includes(text):
        if kind == '<':
            reason = rooms.check_system(room, header)
        elif header.endswith(GENERATED):
            reason = None
        elif not (top / (target := rooms.own_path(header))).is_file():
            near = ' (paths begin at the top of the tree)' if (top / here / header).is_file() else ''
            reason = f'there is no such file{near}'
        else:
            reason = rooms.check_own(room, target)
        if reason:
            yield line, f'includes {header}: {reason}'


def is_script(path, text):
    return path.endswith(rules.HASH_HEADER) or text.startswith('#!')


def check_file(top, path, text):
    if path.endswith(rules.CODE):
        room = rooms.room_of(path)
        yield from check_includes(top, path, text)
        yield from rules.check_code(path, text, bool(room and room.library))
        yield from comments.check_comments(path, text)
    elif is_script(path, text):
        yield from rules.check_licence(path, text)
        yield from folders.check(path, text)


def sources(top):
    """Relative paths of everything that may be a source."""
    found = [path for folder in FOLDERS for path in sorted((top / folder).rglob('*')) if path.is_file()]
    found += [top / name for name in ('meson.build', 'meson_options.txt') if (top / name).is_file()]
    return [path.relative_to(top).as_posix() for path in found if '__pycache__' not in path.parts]


def check_tree(top):
    """['file:line: complaint'] over the whole tree, and {path: text} of the files that were looked at."""
    complaints, texts = [], {}
    for path in sources(top):
        try:
            text = (top / path).read_text()
        except UnicodeDecodeError:
            continue  # not text: test data
        texts[path] = text
        complaints += [f'{path}:{line}: {what}' for line, what in check_file(top, path, text)]
    return complaints + list(circles.check(texts)), texts


def check_rooms(top):
    """Complaints of rooms without a page that says what they are."""
    folders = [room.path for room in rooms.ROOMS if room.library and room.path.endswith('/')] + ['providers/', 'src/mem/gpu/']
    folders += [f'{folder.relative_to(top).as_posix()}/' for folder in sorted((top / 'tools').glob('*/'))]
    for folder in folders:
        if any((top / folder).glob('*.*')) and not (top / folder / 'README.md').is_file():
            yield f'{folder}: has no README.md (what the room holds, what it may include, where to start)'


def main(arguments):
    if len(arguments) != 1:
        sys.exit(__doc__)
    top = pathlib.Path(arguments[0]).resolve()
    complaints, texts = check_tree(top)
    complaints += check_rooms(top)
    complaints += floors.check(texts)
    print(*complaints, sep='\n')
    print(f'{len(texts)} files, {len(complaints)} complaints')
    return 1 if complaints or not texts else 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
