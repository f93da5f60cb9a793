#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""Kills one rank of a running `weft perf` and demands that the run ends soon, with that rank's name and reason.

usage: check_dying_rank.py WEFT
"""
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

VICTIM = 1
PATIENCE = 60  # seconds; a sanitizer makes everything slow


def rank_of(pid):
    """The rank that a process was started as; None for others."""
    try:
        words = pathlib.Path(f'/proc/{pid}/cmdline').read_text(encoding='utf-8').split('\0')
    except (FileNotFoundError, ProcessLookupError):
        return None
    return int(words[words.index('--rank') + 1]) if '--rank' in words else None


def find_victim(launcher):
    children = pathlib.Path(f'/proc/{launcher}/task/{launcher}/children').read_text(encoding='ascii').split()
    return next((int(pid) for pid in children if rank_of(pid) == VICTIM), None)


def wait_for(what, find):
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        found = find()
        if found:
            return found
        time.sleep(0.05)
    sys.exit(f'FAILED: no {what} after {PATIENCE} s')


def complaints(status, log, victim, seconds):
    if status == 0:
        yield 'weft perf ended with status 0'
    if seconds > PATIENCE / 2:
        yield f'the run went on for {seconds:.0f} s'
    for words in (f'rank {VICTIM} (pid {victim})', 'signal 9'):
        if words not in log:
            yield f'its errors do not say "{words}"'


def main(weft):
    with tempfile.NamedTemporaryFile('w+', encoding='utf-8') as table:
        command = [weft, 'perf', 'all_reduce', '-n', '3', '-b', '1M', '-e', '1M', '--iters', '1000000']
        with subprocess.Popen(command, stdout=table, stderr=subprocess.PIPE, text=True) as run:
            victim = wait_for('second rank', lambda: find_victim(run.pid))
            # The header is printed when all ranks are connected; what follows is under way.
            wait_for('header', lambda: os.stat(table.name).st_size > 0)
            os.kill(victim, signal.SIGKILL)
            begin = time.monotonic()
            log = run.communicate(timeout=2 * PATIENCE)[1]
            seconds = time.monotonic() - begin
        sys.stderr.write(log)
        wrong = list(complaints(run.returncode, log, victim, seconds))
    print(f'ended {seconds:.2f} s after rank {VICTIM} was killed')
    for line in wrong:
        print(f'FAILED: {line}')
    return 1 if wrong else 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1]))
