# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""The sentences of C++ comments. Their subject is a noun, by preference one of docs/glossary.md, and not a clause."""
import re

import source

# Where the rule holds. A room that is put in order is added here.
ROOMS = ('tools/', 'plugin/', 'src/base/', 'src/mem/', 'src/topo/', 'src/tuner/', 'tests/support/')
NOT_YET = ('plugin/coll.cc',)

CLAUSE = re.compile(r'(?:Who|Whoever|What|Whatever|One|Such|Whether|Since when)\b')
SENTENCE = re.compile(r'(?:^|[.?!:]["\')`]? +)(?=[A-Z])')
APART = re.compile(r'\s*$|SPDX-|Copyright |  |[*-] ')  # ends what stands before it


def blocks(text):
    """[(line, text) of each line] of every run of comment lines that are read as one."""
    found, last = [], None
    for match in source.TOKEN.finditer(text):
        if not match.group(0).startswith('//'):
            continue
        begin = text.rfind('\n', 0, match.start()) + 1
        column = match.start() - begin
        alone = not text[begin:match.start()].strip()
        line = text.count('\n', 0, match.start()) + 1
        words = match.group(0)[2:].removeprefix('/').removeprefix(' ')
        place = (line, column) if alone else None
        if last and place == (last[0] + 1, last[1]) and not APART.match(words):
            found[-1].append((line, words))
        else:
            found.append([(line, words)])
        last = place
    return found


def sentences(block):
    """(line, text from there on) of each sentence."""
    text, starts = '', []
    for line, words in block:
        starts.append((len(text), line))
        text += words + ' '
    for match in SENTENCE.finditer(text):
        yield max(line for start, line in starts if start <= match.end()), text[match.end():]


def check_comments(path, text):
    if not path.startswith(ROOMS) or path in NOT_YET:
        return
    for block in blocks(text):
        for line, words in sentences(block):
            if clause := CLAUSE.match(words):
                yield line, f'a sentence begins with "{clause.group(0)}"; begin with what it is about, a noun (docs/glossary.md)'
