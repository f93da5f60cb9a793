# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""Compiles the next builds on processors that the suites of this one leave idle.

Most suites wait more than they compute. What is compiled meanwhile is only a beginning: whoever wants the build runs the same
command again, which goes on from there and says what is wrong, if anything is.
"""
import contextlib
import os
import pathlib
import signal
import subprocess
import time

# The scheduler gives such a process what hardly anyone else wants, and takes it back at once.
NICENESS = 19
HALTED_WITHIN = 5  # seconds; a process may be in the kernel for a while


def give_way(session):
    """Makes the session that this process leads yield to all others.

    Where the kernel schedules by session (man 7 sched, "The autogroup feature"), the niceness of a process counts only among
    those of its own session: each session has one more, of its own.
    """
    try:
        pathlib.Path(f'/proc/{session}/autogroup').write_text(str(NICENESS))
    except OSError:
        pass  # a kernel without it, or a session that is over already


def processes_of(session):
    """[(process, its state)] of a session; what has ended and waits for its parent is none of them."""
    found = []
    for path in pathlib.Path('/proc').glob('[0-9]*/stat'):
        try:
            state, _, _, its_session = path.read_text().rpartition(')')[2].split()[:4]  # man 5 proc, "/proc/pid/stat"
        except OSError:
            continue  # it ended meanwhile
        if int(its_session) == session and state not in 'ZX':
            found.append((int(path.parent.name), state))
    return found


def signal_all(session, number):
    # Not by group: Ninja gives each command that it runs a group of its own.
    for process, _ in processes_of(session):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, number)


class HeadStart:
    """One command that may run now and then, silently. Not for several threads."""

    def __init__(self, command, end):
        """`command` is empty where there is nothing to start; `end(process)` ends a process with all that it started."""
        self.command = command
        self.stop = end
        self.process = None

    @property
    def under_way(self):
        return self.process is not None and self.process.poll() is None

    def go(self):
        """Starts it, or lets it go on; not again when it came to its own end."""
        if self.command and self.process is None:
            self.process = subprocess.Popen(['nice', '-n', str(NICENESS), *self.command], stdin=subprocess.DEVNULL,
                                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
            give_way(self.process.pid)
        elif self.under_way:
            signal_all(self.process.pid, signal.SIGCONT)

    def halt(self):
        """It does not run when this returns, and loses nothing: what a compiler has begun is long, as one source is a whole library."""
        end = time.monotonic() + HALTED_WITHIN
        while self.under_way and time.monotonic() < end:
            running = [state for _, state in processes_of(self.process.pid) if state not in 'Tt']
            if not running:
                return
            signal_all(self.process.pid, signal.SIGSTOP)  # again, as one of them may have started another meanwhile
            time.sleep(0.01)

    def end(self):
        """It is gone when this returns."""
        if self.under_way:
            signal_all(self.process.pid, signal.SIGCONT)  # who is halted does not hear that it shall end
            self.stop(self.process)
        if self.process:
            signal_all(self.process.pid, signal.SIGKILL)  # what the command left behind
