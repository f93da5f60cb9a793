# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""Ranks of one NCCL communicator on this machine, each a process (tests/nccl/nccl_time.cc) and a node of its own, that do what they are told."""
import os
import re
import select
import subprocess
import time

ANSWER_SECONDS = 120
END_SECONDS = 20
LAST_LINES = 12
TELLING = r'WARN|software GPU: .*(cannot|failed|not)|: \d+, |rank \d+: |NCCL cannot be used'  # of all that a rank says, what may be the reason


class GroupFailed(Exception):
    """A rank ended, or did not answer in time. The text names rank and reason."""


class Rank:
    def __init__(self, number, command, environment, folder, name):
        self.number = number
        self.log = f'{folder}/{name}-{number}.log'
        self.errors = f'{folder}/{name}-{number}.err'
        environment = {**environment, 'NCCL_DEBUG_FILE': self.log}
        with open(self.errors, 'wb') as errors:
            self.process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors)
        self.unread = b''

    def tell(self, line):
        try:
            self.process.stdin.write(line.encode() + b'\n')
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # its end is told by whoever waits for the answer

    def answer(self):
        """Once its stdout can be read: a line, '' when the process has ended, None when the line is not whole yet."""
        if b'\n' not in self.unread:
            more = os.read(self.process.stdout.fileno(), 65536)
            if not more:
                return ''
            self.unread += more
        line, end, rest = self.unread.partition(b'\n')
        self.unread = rest if end else self.unread
        return line.decode(errors='replace') if end else None

    def text(self):
        """What it and NCCL in it said."""
        said = ''
        for file in (self.errors, self.log):
            if os.path.exists(file):
                with open(file, encoding='utf-8', errors='replace') as lines:
                    said += lines.read()
        return said

    def end(self):
        self.process.stdin.close()
        try:
            return self.process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            return None

    def kill(self):
        self.process.kill()
        self.process.wait()


class Group:
    """`program` is nccl-time and NCCL's file; `environment` and `device` are functions of a rank's number. Those of `here` are on this machine, all unless it is said.
    Each answer takes at most `seconds`."""

    def __init__(self, name, program, folder, environment, device, ranks, here=None, id_folder=None, seconds=ANSWER_SECONDS):
        self.name, self.seconds = name, seconds
        self.ranks = []
        file = f'{id_folder or folder}/{name}.id'
        for number in here if here is not None else range(ranks):
            command = [*program, str(ranks), str(number), str(device(number)), file]
            self.ranks.append(Rank(number, command, environment(number), folder, name))

    def answers(self, seconds, word):
        """The words after `word` of each rank's answer."""
        until, words = time.monotonic() + seconds, {}
        while len(words) < len(self.ranks):
            waiting = [rank for rank in self.ranks if rank not in words]
            readable = select.select([rank.process.stdout for rank in waiting], [], [], max(until - time.monotonic(), 0))[0]
            if not readable:
                self.fail(waiting[0], f'has not answered for {seconds} s')
            for rank in (rank for rank in waiting if rank.process.stdout in readable):
                line = rank.answer()
                if line == '':
                    self.fail(rank, 'ended')
                elif line is not None and line.split()[0] != word:
                    self.fail(rank, f'answered "{line}"')
                elif line is not None:
                    words[rank] = line.split()[1:]
        return [words[rank] for rank in self.ranks]

    def fail(self, rank, what):
        self.kill()
        said = [text for text in rank.text().splitlines() if text.strip()]
        telling = [text for text in said if re.search(TELLING, text)]
        raise GroupFailed(f'{self.name}: rank {rank.number} {what}\n' + '\n'.join((telling or said)[-LAST_LINES:]))

    def ready(self):
        """(NCCL's version, microseconds of init, microseconds to the first result), of the slowest rank."""
        words = self.answers(self.seconds, 'ready')
        return int(words[0][0]), max(float(word[1]) for word in words), max(float(word[2]) for word in words)

    def check(self, operation, size):
        """Every element of every rank's result is compared; a wrong one ends the group."""
        for rank in self.ranks:
            rank.tell(f'check {operation} {size}')
        self.answers(self.seconds, 'right')

    def time(self, operation, size, count):
        """Microseconds an operation, of the slowest rank."""
        for rank in self.ranks:
            rank.tell(f'{operation} {size} {count}')
        return max(float(word[0]) for word in self.answers(self.seconds, 'done')) / count

    def lines(self, pattern):
        """The lines of all ranks' logs that match."""
        return [line for rank in self.ranks for line in rank.text().splitlines() if re.search(pattern, line)]

    def end(self):
        """In order; says which ranks did not end well."""
        statuses = {rank.number: rank.end() for rank in self.ranks}
        return [f'{self.name}: rank {number} ' + ('did not end' if status is None else f'ended with {status}') for number, status in statuses.items() if status != 0]

    def kill(self):
        for rank in self.ranks:
            rank.kill()
