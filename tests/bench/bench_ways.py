# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""What the bench scripts share: the pairs of processes they measure, the conditions, and the arithmetic."""
import collections
import datetime
import os
import pathlib
import platform
import selectors
import statistics
import subprocess
import sys
import time

TOP = pathlib.Path(__file__).resolve().parents[2]
UNDISTURBED = 0.95  # share of the time with a processor
ENOUGH = 5          # good slices, for a median to mean something
LEAST = 32          # messages in a slice: four windows of eight are full once
PERFTEST_PORT = 18515
ANSWER_SECONDS = 90  # longer than bench-end gives itself for a command


# One line of a table. `goal` is for weft: at most for times, at least for rates.
Measure = collections.namedtuple('Measure', 'name command unit value goal larger_is_better')


def add_slice_options(parser):
    parser.add_argument('--samples', type=int, default=25)
    parser.add_argument('--slice', type=float, default=4)
    parser.add_argument('--seconds', type=float, default=15)


def check_slice_options(parser, options):
    if options.samples < ENOUGH or options.slice <= 0 or options.seconds <= 0:
        parser.error(f'samples are {ENOUGH} or more, slice and seconds above 0')


def add_build_option(parser):
    parser.add_argument('--build', type=pathlib.Path, default=TOP / 'build-release', help='the build folder')


def bench_end(options):
    program = options.build.resolve() / 'tests' / 'bench' / 'bench-end'
    if not program.exists():
        sys.exit(f'{program} is missing; make it with  ninja -C {options.build} tests/bench/bench-end')
    return program


def perftest(program, options, *arguments):
    """The fields of the one line of figures that the client of a program of perftest prints, over options.device."""
    command = [program, '-d', options.device, '-x', str(options.gid), '-p', str(PERFTEST_PORT), '-F', *arguments]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT) as server:
        try:
            for _ in range(50):  # until the server listens
                time.sleep(0.1)
                ran = subprocess.run(command + ['127.0.0.1'], capture_output=True, text=True, timeout=120, check=False)
                if ran.returncode == 0:
                    break
            server.wait(30)
        finally:
            server.kill()
    figures = [line.split() for line in ran.stdout.splitlines() if line.strip()[:1].isdigit()]
    if not figures:
        sys.exit(f'{" ".join(command)} said: {ran.stdout}{ran.stderr}')
    return [float(word) for word in figures[-1]]


def software_efa(build, cards):
    """The environment in which libfabric finds so many cards of the software EFA device, and shares no memory beside them."""
    return {'LD_LIBRARY_PATH': str(build.resolve() / 'tests' / 'softefa'), 'FI_EFA_ENABLE_SHM_TRANSFER': '0', 'SOFTEFA_NICS': str(cards),
            'SOFTEFA_FABRIC': f'bench-{os.getpid()}', 'WEFT_PROVIDER': 'ofi:efa', 'WEFT_MERGE_NICS': 'off', **os.environ}


def own_plugin(options):
    return options.build.resolve() / 'plugin' / 'libnccl-net-weft.so'


class Way:
    """One pair of bench-end processes. It sleeps unless it is asked something."""

    def __init__(self, program, name, what, channels):
        self.name = name
        self.process = subprocess.Popen([program, what, str(channels)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True, bufsize=1)
        self.description = self.ask('hello')

    def ask(self, command):
        try:
            self.process.stdin.write(command + '\n')
            self.process.stdin.flush()
        except BrokenPipeError:
            self.fail(command)
        with selectors.DefaultSelector() as waiting:
            waiting.register(self.process.stdout, selectors.EVENT_READ)
            answer = self.process.stdout.readline() if waiting.select(ANSWER_SECONDS) else ''
        if not answer:
            self.fail(command)
        return answer.strip()

    def numbers(self, command):
        return [float(word) for word in self.ask(command).split()]

    def fail(self, command):
        self.process.kill()
        raise RuntimeError(f'{self.name}: no answer to "{command}"')

    def close(self):
        self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()


def open_ways(program, wanted, channels):
    """The ways that can be opened and carry a message; of the others it says so, as a provider need not have everything."""
    ways = []
    for name, what in wanted:
        try:
            way = Way(program, name, str(what), channels)
            way.numbers(f'latency 8 {LEAST}')
            ways.append(way)
        except RuntimeError as error:
            print(f'# left out: {error}')
    return ways


def busy_share(seconds=0.5):
    """How much of all processors others are using, from 0 to 1."""
    def now():
        with open('/proc/stat', encoding='ascii') as stat:
            ticks = [int(word) for word in stat.readline().split()[1:]]
        return sum(ticks[:8]), ticks[3] + ticks[4]
    all_before, idle_before = now()
    time.sleep(seconds)
    all_after, idle_after = now()
    return 1 - (idle_after - idle_before) / max(1, all_after - all_before)


def processor_name():
    with open('/proc/cpuinfo', encoding='utf-8') as cpuinfo:
        for line in cpuinfo:
            if line.startswith('model name'):
                return line.partition(':')[2].strip()
    return platform.machine()


def print_conditions(program):
    build = subprocess.run([program, '--build'], capture_output=True, text=True, check=True).stdout.strip()
    settings = ' '.join(f'{name}={value}' for name, value in sorted(os.environ.items())
                        if name.startswith(('WEFT_', 'FI_', 'NCCL_')))
    print(f'# {datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d %H:%M} UTC, {processor_name()}, '
          f'{os.cpu_count()} processors, Linux {platform.release()}')
    print(f'# built with {build}; settings: {settings or "none"}')


def print_load(when):
    one, five, _ = os.getloadavg()
    print(f'# load {when}: other work uses {100 * busy_share():.0f} % of the processors, load average {one:.1f} '
          f'(1 min) {five:.1f} (5 min)', flush=True)


def middle(values):
    return statistics.median(values)


def spread(values):
    """The quartiles, which a few disturbed runs cannot move."""
    ordered = sorted(values)
    return ordered[len(ordered) // 4], ordered[(3 * len(ordered)) // 4]


def verdict(holds, judged=True):
    """`judged`: the machine was quiet enough to tell."""
    return 'undecided' if not judged else 'holds' if holds else 'MISSED'


def calibrate(way, command, slice_ms):
    """As many messages as this way does in a slice at its best, the same for all."""
    count = LEAST
    while True:
        fastest = min(duration(way, command, count) for _ in range(2))
        if fastest >= slice_ms * 300 or count >= 1 << 22:
            return max(LEAST, int(count * min(3.0, slice_ms * 1000 / fastest))) // LEAST * LEAST
        count *= 3


def duration(way, command, count):
    answer = way.numbers(f'{command} {count}')
    return 2 * answer[0] * count if command.startswith('latency') else answer[0]


def undisturbed(answer):
    return answer[-1] >= UNDISTURBED


class Samples:
    """Of one command: the answers by way, one each turn; good ones and how many were not."""

    def __init__(self, ways):
        self.good = {way.name: [] for way in ways}
        self.all = {way.name: [] for way in ways}

    def add(self, name, answer):
        self.all[name].append(answer)
        if undisturbed(answer):
            self.good[name].append(answer)

    def fewest(self):
        return min(len(answers) for answers in self.good.values())

    def enough(self):
        return self.fewest() >= ENOUGH

    def left_out(self):
        return sum(len(self.all[name]) - len(self.good[name]) for name in self.all)

    def values(self, measure, name):
        return [measure.value(answer) for answer in (self.good if self.enough() else self.all)[name]]

    def figure(self, measure, name):
        """The median; without enough good slices the best of all, as a disturbance only ever makes slower."""
        values = self.values(measure, name)
        if self.enough():
            return middle(values)
        return max(values) if measure.larger_is_better else min(values)

    def ratios(self, measure, name, base):
        """Of the turns in which both ways had good slices: milliseconds apart, so that a machine whose speed wanders
        does so for both."""
        pairs = [(ours, theirs) for ours, theirs in zip(self.all[name], self.all[base]) if undisturbed(ours) and undisturbed(theirs)]
        return [measure.value(ours) / measure.value(theirs) for ours, theirs in pairs]


def collect(ways, command, options):
    count = calibrate(ways[0], command, options.slice)
    samples = Samples(ways)
    end = time.monotonic() + options.seconds
    turn = 0
    while samples.fewest() < options.samples and time.monotonic() < end:
        for i in range(len(ways)):
            way = ways[(i + turn) % len(ways)]
            samples.add(way.name, way.numbers(f'{command} {count}'))
        turn += 1
    return samples
