#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""Checks what the built library shows and needs: usage: check_library.py LIBRARY [--sanitized]

It must export NCCL's tables and nothing else, need nothing but the C library (any glibc from the oldest one
that is supported), and have no symbol that would keep it mapped after dlclose. Exit status 1 names every
difference; 77 means that readelf is missing.
"""
import os
import re
import shutil
import subprocess
import sys

TABLES = ({f"ncclNetPlugin_v{version}" for version in range(6, 13)} |
          {f"ncclCollNetPlugin_v{version}" for version in range(6, 13)} |
          {f"ncclRmaPlugin_v{version}" for version in range(13, 17)} |
          {f"ncclTunerPlugin_v{version}" for version in range(2, 7)})


def oldest_glibc():
    """2.35 is what the README promises of a library built on Debian 12 (2.36). A newer system's own static libstdc++
    may ask for more: there nothing newer than the system itself."""
    own = tuple(int(part) for part in os.confstr('CS_GNU_LIBC_VERSION').split()[1].split('.')[:2])
    return (2, 35) if own <= (2, 36) else own


OLDEST_GLIBC = oldest_glibc()
# The parts of glibc, some of them empty since 2.34, and the loader.
NEEDED = re.compile(r"^(lib(c|m|dl|rt|pthread)\.so\.\d+|ld-linux[\w.-]*\.so\.\d+)$")
# Calls that have no place in a library that lives in other people's processes; sigaction is there to give back
# what libfabric takes, and setenv to give libsharp its defaults (src/coll/sharp_library.cc, the only caller that the
# house check allows).
BANNED = {"putenv", "unsetenv", "atexit", "on_exit", "exit", "_exit", "quick_exit", "printf", "puts",
          "signal", "system", "fork", "popen", "stdout", "arc4random"}


def readelf(*arguments):
    return subprocess.run(["readelf", "-W", *arguments], check=True, capture_output=True, text=True).stdout


def dynamic_symbols(library):
    """Yields (binding, section, name, version) of every dynamic symbol."""
    for line in readelf("--dyn-syms", library).splitlines():
        fields = line.split()
        if len(fields) < 8 or not fields[0].rstrip(":").isdigit():
            continue
        name, _, version = fields[7].partition("@")
        yield fields[4], fields[6], name, version.lstrip("@")


def glibc_version(text):
    match = re.fullmatch(r"GLIBC_(\d+)\.(\d+)(?:\.\d+)?", text)
    return tuple(map(int, match.groups())) if match else None


def exported(symbols):
    return {name for _, section, name, _ in symbols if section not in ("UND", "ABS") and name}


def problems_of_needs(library, symbols):
    for match in re.finditer(r"\(NEEDED\).*\[(.*)\]", readelf("-d", library)):
        if not NEEDED.match(match.group(1)):
            yield f"needs {match.group(1)}"
    for binding, section, name, version in symbols:
        if section != "UND" or not name:
            continue
        if name in BANNED:
            yield f"calls {name}"
        found = glibc_version(version)
        if found and found > OLDEST_GLIBC:
            yield f"{name} needs glibc {found[0]}.{found[1]}"
        if not version and binding != "WEAK":
            yield f"{name} is expected from the process it is loaded into"


def problems_of(library, sanitized):
    symbols = list(dynamic_symbols(library))
    names = exported(symbols)
    yield from (f"exports {name}" for name in sorted(names - TABLES))
    yield from (f"does not export {name}" for name in sorted(TABLES - names))
    if sanitized:  # a sanitizer brings libraries, symbols and unique objects of its own
        return
    yield from problems_of_needs(library, symbols)
    if "TEXTREL" in readelf("-d", library):
        yield "has text relocations, which hardened systems refuse to load"
    if " UNIQUE " in readelf("-s", library):
        yield "has unique symbols, which keep a library mapped after dlclose"
    if "NODELETE" in readelf("-d", library):
        yield "is marked as one that cannot be unloaded"


def main():
    if not shutil.which("readelf"):
        sys.exit(77)
    library, sanitized = sys.argv[1], "--sanitized" in sys.argv
    problems = list(problems_of(library, sanitized))
    for problem in problems:
        print(f"{library}: {problem}")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
