# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""Scripts that look at a machine part by part (scripts/gpu-check, scripts/nic-check): the time that is left, the processes that a part runs, what was
found, and the summary of it."""
import os
import re
import signal
import subprocess
import time

SKIP = 77
OUR_LINE = r'NET/weft.*WARN|WARN.*NET/weft|NCCL WARN'
FOREVER = 1e9
MOST_COLUMNS = 190


class OutOfTime(Exception):
    """Nothing of what is left can end in time."""


class Parts:
    """One thread. Every line of `lines` is one of the summary, every text of `wrong` a thing that is."""

    def __init__(self, name, out, seconds):
        self.name, self.out = name, out.resolve()
        self.began = time.monotonic()
        self.until = self.part_until = self.began + seconds
        self.lines, self.wrong = [], []
        self.cut = False  # whether what ran last had less time than it asked for
        self.played_by = ''  # in words, where software plays what the script is about

    # What is said:

    def note(self, head, text):
        whole = f'{head:11}{text}'
        self.lines.append(whole if len(whole) <= MOST_COLUMNS else whole[:MOST_COLUMNS - 4] + ' ...')
        print(self.lines[-1], flush=True)
        with open(self.out / 'said.txt', 'a', encoding='utf-8') as file:  # the whole line
            file.write(whole + '\n')

    def judge(self, head, what, wrong, seconds):
        """One line of the summary: `wrong` is empty, or a list of reasons."""
        self.note(head, f'{"WRONG " if wrong else "right "}{what} ({seconds:.1f} s)' + (f': {wrong[0].splitlines()[0]}' if wrong else ''))
        self.wrong += [f'{head} {what}: {reason}' for reason in wrong]
        return not wrong

    def summary(self, most):
        """All lines if they fit; those that are wrong in any case."""
        end = [f'{self.name}: {"NOT all right, " + str(len(self.wrong)) + " things are wrong" if self.wrong else "all right"} after '
               f'{time.monotonic() - self.began:.0f} s' + (f' (on {self.played_by})' if self.played_by else '') + f'; all that was said is in {self.out}']
        lines = list(self.lines)
        for kind in ('right ', 'left out'):
            while len(lines) + len(end) > most and any(kind in line for line in lines[2:]):
                lines.remove(next(line for line in reversed(lines) if kind in line))
        (self.out / 'wrong.txt').write_text('\n\n'.join(self.wrong))
        return lines[:most - len(end)] + end

    # How things are run:

    def left(self, most):
        """Seconds that something may take."""
        left = min(self.until, self.part_until) - time.monotonic()
        if left < 3:
            raise OutOfTime
        return min(left, most)

    def run(self, name, part, seconds=FOREVER):
        """A part, which has so many seconds for itself."""
        self.part_until = min(self.until, time.monotonic() + seconds)
        try:
            part(self)
        except OutOfTime:
            own = self.part_until < self.until
            self.note(name, 'left out, or cut short: ' + (f'the {seconds:.0f} s of this part are over' if own else 'no time is left (--seconds)'))
        except (OSError, subprocess.SubprocessError) as error:
            self.judge(name, 'starting it', [str(error)], 0)
        finally:
            self.part_until = self.until

    def folder_for(self, name):
        folder = self.out / re.sub(r'[^a-z0-9]+', '-', name.lower())
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def ranks(self, name, commands, environments, seconds, lost=None):
        """(statuses, what each said, seconds it took); of one that is lost the status is 0 in any case."""
        folder = self.folder_for(name)
        granted = self.left(seconds)
        until, self.cut = time.monotonic() + granted, granted < seconds
        begin = time.monotonic()
        processes, files = [], [folder / f'{number}.log' for number in range(len(commands))]
        try:
            for command, environment, file in zip(commands, environments, files):
                with open(file, 'wb') as log:
                    processes.append(subprocess.Popen([str(word) for word in command], env=environment, stdin=subprocess.DEVNULL, stdout=log,
                                                      stderr=subprocess.STDOUT, start_new_session=True))
            statuses = wait_all(processes, until, lost)
        finally:
            for process in processes:
                end_group(process)
        return statuses, [file.read_text(errors='replace') for file in files], time.monotonic() - begin


def end_group(process):
    """The process, and what it started and may have left behind, which is in its group."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def wait_all(processes, until, lost):
    """All but the lost one are waited for, as long as there is time."""
    statuses = []
    for number, process in enumerate(processes):
        try:
            statuses.append(0 if number == lost else process.wait(max(until - time.monotonic(), 0.1)))
        except subprocess.TimeoutExpired:
            statuses.append(124)
    return statuses


def last_lines(text, count=12):
    said = [line for line in text.splitlines() if line.strip()]
    telling = [line for line in said if re.search(OUR_LINE, line)]
    return '\n'.join((telling[-count:] or said[-count:]))


def failures(statuses, texts):
    return [f'rank {rank} ' + ('did not end in time' if status == 124 else f'ended with {status}') + '\n' + last_lines(texts[rank])
            for rank, status in enumerate(statuses) if status != 0]
