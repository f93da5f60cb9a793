#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""A long `weft perf` says on a terminal how far it is, and wipes that again; without a terminal it says nothing.

usage: check_progress.py WEFT
"""
import os
import pty
import re
import signal
import subprocess
import sys
import termios
import threading
import time

LINE = re.compile(r'\d+ of 2: 1048576 bytes of float (out of|in) place, iteration \d+ of \d+, \d+:\d\d so far')
COLUMNS = 60
WIPE = '\r\x1b[K'


def read_all(fd, into):
    while True:
        try:
            data = os.read(fd, 4096)
        except OSError:  # what Linux says when the last one has closed the terminal
            return
        if not data:
            return
        into.append(data.decode())


def run(weft, iterations, terminal, columns=0, interrupted=False):
    """(status, what stderr got); interrupted, once progress was shown. A terminal of 0 columns has not said how many."""
    command = [weft, 'perf', 'all_reduce', '-n', '2', '-b', '1M', '-e', '1M', '-c', '0', '--iters', str(iterations)]
    if not terminal:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        return done.returncode, done.stderr
    mine, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, columns))
    seen = []
    reader = threading.Thread(target=read_all, args=(mine, seen), daemon=True)
    reader.start()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=theirs) as process:
        end = time.monotonic() + 120
        while interrupted and process.poll() is None and ''.join(seen).count(WIPE) < 2 and time.monotonic() < end:
            time.sleep(0.05)
        if interrupted:
            process.send_signal(signal.SIGINT)
        status = process.wait(timeout=120)
    os.close(theirs)
    reader.join(timeout=10)
    os.close(mine)
    return status, ''.join(seen)


def long_enough(weft):
    """A number of iterations that takes some seconds, and what the terminal saw of them."""
    iterations = 100
    while iterations <= 512000:
        status, seen = run(weft, iterations, True)
        if status != 0 or LINE.search(seen):
            return iterations, status, seen
        if seen:
            sys.exit(f'FAILED: the terminal got {seen!r}')
        iterations *= 2
    sys.exit('FAILED: no progress was shown, however long the run')


def main(weft):
    wrong = []
    iterations, status, seen = long_enough(weft)
    print(f'{iterations} iterations: {LINE.search(seen)}')
    if status != 0:
        wrong.append(f'status {status} on a terminal')
    if not seen.endswith(WIPE):
        wrong.append(f'what was shown last stays: {seen[-80:]!r}')
    status, seen = run(weft, iterations, False)
    if status != 0 or seen:
        wrong.append(f'status {status} without a terminal, which got {seen!r}')
    status, seen = run(weft, 1000 * iterations, True, COLUMNS, True)
    # What an interrupted rank says of the other, or the launcher of both, is no progress.
    pieces = seen.split(WIPE)
    shown = [line for line in pieces if re.match(r'\d+ of \d+: ', line)]
    if not shown or max(map(len, shown)) != COLUMNS - 1:
        wrong.append(f'lines of a terminal of {COLUMNS} columns: {shown}')
    if re.match(r'\d+ of \d+: ', pieces[-1]) or not pieces[-1].endswith('weft perf: run: interrupted\r\n'):
        wrong.append(f'what was shown last stays when a run is interrupted: {pieces[-2:]}')
    for line in wrong:
        print(f'FAILED: {line}')
    return 1 if wrong else 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1]))
