# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""Shows what Meson's test runner is doing: the lines it prints, and below them one that says what runs and how much is left.

At a terminal that line is written again each second; into a file it goes whenever nothing else did for a while.
"""
import json
import pathlib
import queue
import re
import subprocess
import sys
import threading
import time

FINISHED = re.compile(r'^\s*(\d+)/(\d+) (\S.*?) +([A-Z]{2,}) +([0-9.]+)s')
QUIET_SECONDS = 20


def children(process):
    """Ids of the processes that `process` started, whichever of its threads did."""
    found = []
    for path in pathlib.Path(f'/proc/{process}/task').glob('*/children'):
        try:
            found += path.read_text().split()
        except OSError:
            pass  # the thread has ended
    return found


def command_of(process):
    try:
        return pathlib.Path(f'/proc/{process}/cmdline').read_bytes().decode(errors='replace').split('\0')[:-1]
    except OSError:
        return []


def settings_of(process):
    try:
        return set(pathlib.Path(f'/proc/{process}/environ').read_bytes().decode(errors='replace').split('\0'))
    except OSError:
        return set()


def is_test(test, command, settings):
    """Whether a process is that test. env goes away, and an interpreter may have another path than was named."""
    wanted = list(test['cmd'])
    while pathlib.Path(wanted[0]).name in ('env', 'python3') or '=' in wanted[0]:
        wanted.pop(0)
    return command[-len(wanted):] == wanted and settings >= {f'{name}={value}' for name, value in test['env'].items()}


def running(runner, tests):
    """Names of the `tests` that the process `runner` has started and that have not ended."""
    now = [(command_of(child), settings_of(child)) for child in children(runner)]
    return [test['name'] for test in tests if any(is_test(test, *process) for process in now)]


class Estimate:
    """How long a run will go on, from how long each test took when it ran last; one that never ran takes the average."""

    def __init__(self, file, names):
        self.file = file
        self.before = json.loads(file.read_text()) if file.exists() else {}
        self.left = set(names)
        self.took = {}

    def finished(self, name, seconds):
        self.left.discard(name)
        self.took[name] = seconds

    def expected(self, names):
        known = {**self.before, **self.took}
        average = sum(known.values()) / len(known) if known else 1
        return sum(known.get(name, average) for name in names)

    def seconds_left(self, elapsed):
        done = self.expected(self.took)
        return self.expected(self.left) * elapsed / done if done else None

    def keep(self):
        self.file.parent.mkdir(exist_ok=True)
        self.file.write_text(json.dumps({**self.before, **self.took}))


class Display:
    def __init__(self, out=None):
        self.out = out or sys.stdout
        self.live = self.out.isatty()
        self.last = time.monotonic()

    def line(self, text):
        self.out.write(('\r\033[K' if self.live else '') + text + '\n')
        self.out.flush()
        self.last = time.monotonic()

    def status(self, text):
        if self.live:
            self.out.write(f'\r\033[K{text[:150]}')
            self.out.flush()
        elif time.monotonic() - self.last >= QUIET_SECONDS:
            self.line(text)


def status_line(title, done, of, left, names):
    about = f', about {left / 60:.0f} min left' if left is not None and left >= 60 else ', a minute left' if left is not None else ''
    return f'-- {title}: {done} of {of} programs done{about}; running: {", ".join(names) or "..."}'


def lines_of(stream):
    """A queue of the stream's lines, filled by a thread of its own; None is the end."""
    lines = queue.Queue()

    def read():
        for line in stream:
            lines.put(line.rstrip('\n'))
        lines.put(None)
    threading.Thread(target=read, daemon=True).start()
    return lines


def follow(process, title, tests, estimate, end, display):
    """Shows what `process`, a Meson test runner, does until it ends. Returns what still ran at the time `end`, or None."""
    lines = lines_of(process.stdout)
    begin = time.monotonic()
    while True:
        try:
            line = lines.get(timeout=1)
        except queue.Empty:
            line = ''
        if line is None:
            return None
        names = running(process.pid, tests)
        if time.time() > end:
            return names or ['nothing that Meson started']
        if line:
            display.line(line)
            if match := FINISHED.match(line):
                estimate.finished(match[3].rpartition(' / ')[2], float(match[5]))
        done = len(tests) - len(estimate.left)
        display.status(status_line(title, done, len(tests), estimate.seconds_left(time.monotonic() - begin), names))


def start(command, **how):
    """`command` with its output, errors too, as lines for follow()."""
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                            errors='replace', start_new_session=True, **how)
