# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""The house rules that a script can see. Every exception stands here with its reason."""
import fnmatch
import re

import source

MAX_FILE_LINES = 800
MAX_HEADER_LINES = 400
MAX_FUNCTION_LINES = 60

# (what, pattern over code without comments and strings, only in the plugin's own rooms?, {home: reason})
WORDS = [
    ('goto', r'\bgoto\b', False, {}),
    ('friend', r'\bfriend\b', False, {}),
    ('naked new', r'(?<!operator )\bnew\b(?=\s*[\w:(])', False, {}),
    ('naked delete', r'(?<!operator )(?<!= )\bdelete\b', False, {}),
    ('malloc', r'\b(?:malloc|calloc|realloc|strdup)\s*\(', True,
     {'providers/ofi/info.cc': 'libfabric frees the names in its hints',
      'src/base/reserve.cc': 'what operator new is made of'}),
    ('getenv', r'\b(?:secure_)?getenv\s*\(', False, {'src/base/config.cc': 'the one reader of the environment',
                                                 'tests/softefa/settings.cc': 'the stand-in device has settings of its own',
                                                 'tests/coll/sharp_stand_in.cc': 'the stand-in library reads what the real one reads',
                                                 'tests/softgpu/settings.cc': 'so has the software GPU'}),
    ('changing the environment', r'\b(?:setenv|unsetenv|putenv|clearenv)\s*\(', True,
     {'src/coll/sharp_library.cc': 'libsharp_coll takes its settings from nowhere else'}),
    ('exit', r'\b(?:atexit|on_exit|exit|_exit|quick_exit)\s*\(', True, {}),
    ('stdout', r'\bstdout\b|\b(?:printf|puts|putchar)\s*\(|\bstd::cout\b', True, {}),
    ('throw', r'\bthrow\b', True, {'plugin/guard.cc': 'the gate asks what it caught',
                                         'src/base/operator_new.cc': 'operator new must'}),
    # Plain data only: a destructor of a thread's object keeps the library from being unloaded.
    ('thread_local of a class', r'\bthread_local\s+(?!(?:const\s+)?(?:bool|char|int|u?int\d+_t|size_t|[\w:]+\s*\*)\s)', True, {}),
    ('std::random_device', r'\brandom_device\b', True, {}),
]

# Conditional compilation makes two programs of one; these places need it.
CONDITIONAL_HOMES = {
    'src/base/log.cc': 'trace lines are left out of release builds',
    'src/base/crc32c.cc': 'kinds of processors have instructions of their own for it',
    'src/base/device_order.h': 'kinds of processors keep another order',
    'src/stats/ticks.h': 'kinds of processors have clocks of their own',
    'providers/registry.cc': 'a fabric that is not built is not in the list',
    'providers/*/compat.h': 'versions of the library below, kinds of processors, and what sanitizers must be told',
    'tests/support/catch.h': 'Catch2 2 and 3',
    'tests/support/sanitizer.h': 'what cannot be measured under a sanitizer',
    'tools/perf/conditions.cc': 'a benchmark says how it was compiled',
}

# A destructor runs on whatever thread lets go of an object, NCCL's among them, so it never waits: it hands over
# what has to end yet, or cuts it off. A class whose thread ends at once when it is told to may join it.
WAITING_ROOMS = ('src/', 'plugin/')
WAITS = re.compile(r'\b(?:sleep\w*|wait\w*|await\w*|pause|join|finish)\s*\(|(?:\.|->)close\s*\(|\bPatience\b')
WAIT_HOMES = {
    'src/agg/daemon.cc': 'a daemon is a program of its own, and ends with its groups',
    'src/agg/errands.h': 'likewise',
    'src/control/hub.cc': 'the control thread ends at the word in its mailbox',
    'src/core/state_report.cc': 'its thread ends after one of its short rests',
    'src/mem/gpu/errands.cc': 'its thread ends with the driver\'s call that is under way, for memory that nobody uses any more',
}

CODE = ('.h', '.cc', '.c')
HASH_HEADER = ('.py', '.sh', 'meson.build', 'meson_options.txt')
SPDX = 'SPDX-License-Identifier: Apache-2.0'
COPYRIGHT = 'Copyright The weft authors'


def line_of(code, match):
    return code.count('\n', 0, match.start()) + 1


def check_words(path, code, library):
    for what, pattern, library_only, homes in WORDS:
        if path in homes or (library_only and not library):
            continue
        for match in re.finditer(pattern, code):
            yield line_of(code, match), f'{what} is not used in this house'


def check_conditionals(path, code):
    if any(fnmatch.fnmatch(path, home) for home in CONDITIONAL_HOMES):
        return
    for match in re.finditer(r'^[ \t]*#[ \t]*(?:if|ifdef|ifndef|elif)\b', code, re.MULTILINE):
        yield line_of(code, match), 'conditional compilation outside its homes (tests/layers/rules.py lists them)'


def check_destructors(path, code):
    if not path.startswith(WAITING_ROOMS) or path in WAIT_HOMES:
        return
    for head in re.finditer(r'~\w+\(\)[^;{}()]*\{', code):
        depth, end = 1, head.end()
        while depth and end < len(code):
            depth += {'{': 1, '}': -1}.get(code[end], 0)
            end += 1
        if WAITS.search(code, head.end(), end):
            yield line_of(code, head), 'a destructor that waits; hand over what has to end yet, or cut it off'


def check_sizes(path, text, code):
    limit = MAX_HEADER_LINES if path.endswith('.h') else MAX_FILE_LINES
    lines = text.count('\n')
    if lines > limit:
        yield lines, f'{lines} lines; a file has at most {limit}'
    for first, length in source.functions(code):
        if length > MAX_FUNCTION_LINES:
            yield first, f'a function of {length} lines; at most {MAX_FUNCTION_LINES}'


def check_licence(path, text):
    mark = '//' if path.endswith(CODE) else '#'
    lines = text.splitlines()
    first = 1 if lines and lines[0].startswith('#!') else 0
    if lines[first:first + 2] != [f'{mark} {SPDX}', f'{mark} {COPYRIGHT}']:
        yield first + 1, f'must begin with "{mark} {SPDX}" and "{mark} {COPYRIGHT}"'


def check_header_form(path, text):
    if not path.endswith('.h'):
        return
    if '\n#pragma once\n' not in text:
        yield 1, 'a header says #pragma once'
    words = [line for line in text.splitlines()[2:] if line.lstrip().startswith('//')]
    if not words:
        yield 1, 'a header says what it is for, who owns it and which thread may call it'


def check_name(path):
    name = path.rpartition('/')[2]
    if not re.fullmatch(r'[a-z0-9_]+\.(h|cc|c)', name):
        yield 1, f'{name}: files are named snake_case'


def check_code(path, text, library):
    """(line, complaint) for one C or C++ file."""
    code = source.code_of(text)
    yield from check_licence(path, text)
    yield from check_name(path)
    yield from check_header_form(path, text)
    yield from check_sizes(path, text, code)
    yield from check_conditionals(path, code)
    yield from check_words(path, code, library)
    yield from check_destructors(path, code)
