# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""Compiles the next builds on processors that the suites of this one leave idle.

Most suites wait more than they compute. What is compiled meanwhile is only a beginning: whoever wants the build runs the same
command again, which goes on from there and says what is wrong, if anything is.
"""
import pathlib
import subprocess

# The scheduler gives such a process what hardly anyone else wants, and takes it back at once.
NICENESS = 19


def give_way(session):
    """Makes the session that this process leads yield to all others.

    Where the kernel schedules by session (man 7 sched, "The autogroup feature"), the niceness of a process counts only among
    those of its own session: each session has one more, of its own.
    """
    try:
        pathlib.Path(f'/proc/{session}/autogroup').write_text(str(NICENESS))
    except OSError:
        pass  # a kernel without it, or a session that is over already


class HeadStart:
    """One command that may run now and then, silently. Not for several threads."""

    def __init__(self, command, end):
        """`command` is empty where there is nothing to start; `end(process)` ends a process with all that it started."""
        self.command = command
        self.end = end
        self.process = None

    def go(self):
        """Starts it, unless it runs or came to its own end."""
        if self.command and self.process is None:
            self.process = subprocess.Popen(['nice', '-n', str(NICENESS), *self.command], stdin=subprocess.DEVNULL,
                                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
            give_way(self.process.pid)

    def halt(self):
        """It does not run when this returns; go() takes it up again."""
        if self.process and self.process.poll() is None:
            self.end(self.process)
            self.process = None
