# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""Just enough C++ reading for the house check: code without comments and strings, includes, functions."""
import re

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)
TOKEN = re.compile(
    r'//[^\n]*|/\*.*?\*/'                              # comments
    r'|R"(?P<tag>[^\s()\\]{0,16})\(.*?\)(?P=tag)"'     # raw strings
    r'|"(?:\\.|[^"\\\n])*"'                            # strings
    r"|(?<![0-9A-Fa-f])'(?:\\.|[^'\\\n])+'",           # characters, but not the ' of 1'000
    re.DOTALL)
ACCESS = re.compile(r'\b(?:public|protected|private)\s*:(?!:)')
DIRECTIVE = re.compile(r'^[ \t]*#(?:[^\n\\]|\\.)*(?:\\\n[^\n]*)*', re.MULTILINE)


def blank(match):
    """Keeps the lines, drops the text; a string stays a (now empty) string."""
    text = match.group(0)
    lines = '\n' * text.count('\n')
    return ('""' if text[0] in '"R' else ' ') + lines


def code_of(text):
    return TOKEN.sub(blank, text)


def includes(text):
    """(line, '<' or '"', path) of each include."""
    return [(text.count('\n', 0, m.start(2)) + 1, m.group(1), m.group(2)) for m in INCLUDE.finditer(text)]


def opens_function(head):
    """Whether the text before a { at declaration level begins a function's body."""
    if '(' not in head or re.search(r'\b(namespace|enum)\b', head):
        return False
    if re.match(r'\s*(template\s*<[^{]*>\s*)?(class|struct|union)\b', head):
        return False
    return not re.search(r'=\s*$', head)


def functions(code):
    """(first line, lines) of every function body at declaration level, lambdas and locals being part of it."""
    code = DIRECTIVE.sub(lambda m: '\n' * m.group(0).count('\n'), code)
    found, stack, start, line = [], [], 0, 1
    for position, char in enumerate(code):
        if char == '\n':
            line += 1
        elif char == '{':
            inside = any(kind for kind, _ in stack)
            head = ACCESS.sub('', code[start:position])
            first = line - head.lstrip().count('\n')
            stack.append((not inside and opens_function(head), first))
            start = position + 1
        elif char == '}':
            if stack:
                function, first = stack.pop()
                if function:
                    found.append((first, line - first + 1))
            start = position + 1
        elif char == ';':
            start = position + 1
    return found
