# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""Builds weft, has Meson's test runner run the suites, prints one table. Called by scripts/test, which has the usage text.

Which suites there are, what they need and how long a test may take stands in the meson.build files below tests/. A suite's second
name, if it has one, says where it can run: `guest` inside scripts/rdma-vm, `elsewhere` here, but in the root of another Debian
release that takes minutes to make.
"""
import argparse
import collections
import dataclasses
import functools
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import progress
import testlog

TOP = pathlib.Path(__file__).resolve().parents[2]
COMMON = ['-Dtests=enabled', '-Dtools=enabled', '-Dofi=enabled', '-Dverbs=enabled']
# The order of the table.
ORDER = ['house', 'abi', 'unit', 'fuzz', 'hostile', 'protocol', 'world', 'fault', 'tools', 'efa', 'efa-trixie', 'system', 'verbs', 'soak', 'perf', 'trace', 'nccl', 'nccl-trixie']
GUEST_SECONDS = 1500
MOST_SECOND_TRIES = 6  # more programs that fail are no accident of a crowded machine


@dataclasses.dataclass
class Build:
    name: str
    configure: str  # shell code: the function of scripts/lib/build.sh, and options
    side_by_side: int = 1  # tests for each core
    suites: tuple = ()  # only these, or tests, and what they need, unless suites are named or counts are large
    inside: tuple = ()  # the command that runs its tests

    @property
    def folder(self):
        return TOP / f'build-{self.name}'


# Most of what the compiler does for a sanitizer's build is the C++ library's templates, again for each source: as one source, a
# library or program with several takes half as long. The release build shows that each source compiles by itself.
AS_ONE_SOURCE = '-Ddebug=false -Db_lundef=false -Dunity=on -Dunity_size=1000'
# What a sanitizer finds, it mostly finds there: where bytes of others are decoded, lives end and threads meet.
WORTH_IT = ('unit', 'fuzz', 'hostile', 'protocol', 'fault', 'trace')
RELEASE = Build('release', 'weftConfigureRelease "$1" "$2"', side_by_side=2)  # most tests wait more than they compute
SANITIZED = [
    Build('asan', f'weftConfigure "$1" "$2" -Dbuildtype=debug -Db_sanitize=address,undefined {AS_ONE_SOURCE}', suites=WORTH_IT),
    Build('tsan', f'weftConfigure "$1" "$2" -Dbuildtype=debug -Doptimization=1 -Db_sanitize=thread {AS_ONE_SOURCE}',
          suites=(*(suite for suite in WORTH_IT if suite != 'fuzz'), 'world')),  # fuzz has one thread
]
# Emulated: what is computed and said, not the time that it takes, nor the order in which another processor sees memory.
ARM64 = Build('arm64', 'source "$1/scripts/lib/packages.sh"; source "$1/scripts/lib/arm64.sh"; weftConfigureArm64 "$1" "$2"',
              suites=('abi', 'unit', 'protocol', 'perf-all-reduce-types'), inside=(TOP / 'scripts' / 'lib' / 'arm64_run',))


class DeadlinePassed(Exception):
    pass


class Ended(Exception):
    """Whoever started this run ends it."""


class UnknownSuite(Exception):
    pass


def stop(process):
    """Ends a process that leads a session. Meson's runner ends its tests, which have sessions of their own, when it is asked to."""
    for number, patience in ((signal.SIGTERM, 20), (signal.SIGKILL, 5)):
        try:
            os.killpg(process.pid, number)
            process.wait(timeout=patience)
            return
        except subprocess.TimeoutExpired:
            continue
        except ProcessLookupError:
            return


def suites_of(test):
    return [suite.rpartition(':')[2] for suite in test['suite']] or ['other']


def place_of(test):
    """Where the test runs; empty is here and now."""
    return next((place for place in ('guest', 'elsewhere') if place in suites_of(test)[1:]), '')


@functools.cache
def introspect(folder, what):
    """What Meson knows of a build that is configured; asked once, as it takes Meson a second or two."""
    command = ['meson', 'introspect', f'--{what}', folder]
    return json.loads(subprocess.run(command, check=True, capture_output=True, timeout=120).stdout)


class Run:
    def __init__(self, options):
        self.options = options
        self.rows = []
        self.where = 'preparing'  # what an end from outside would hit
        self.end = options.started + 60 * options.deadline
        self.skips = testlog.read_skips(TOP / 'tests' / 'skips')
        self.cores = len(os.sched_getaffinity(0))
        self.display = progress.Display()

    def shell(self, build, script, *arguments):
        """Runs shell code with the functions of build.sh, $1 the checkout and $2 the build; whether it succeeded."""
        script = f'set -e; source "$1/scripts/lib/build.sh"; weftAlone "$1" "$2"; {script}'
        with subprocess.Popen(['bash', '-c', script, 'build', TOP, build.folder, *arguments], start_new_session=True) as process:
            try:
                return process.wait(timeout=max(0, self.end - time.time())) == 0
            except subprocess.TimeoutExpired:
                raise DeadlinePassed(self.where) from None
            finally:
                stop(process)

    def compile(self, build):
        """True when built; else a failed row says so."""
        self.where = f'{build.name}/build'
        self.display.line(f'\n== {self.where}')
        begin = time.time()
        # A changed meson.build is read first: which tests there are is asked before anything is compiled.
        good = self.shell(build, build.configure + ' "${@:3}"; weftNinja "$2" build.ninja', *COMMON)
        files = self.needed(build) if good else []
        if files != []:
            good = good and self.shell(build, f'NINJA_STATUS="[{build.name} %f of %t, %es] " weftNinja "$2" "${{@:3}}"', *(files or []))
        row = testlog.Row(self.where, seconds=time.time() - begin)
        if not good:
            row.fail('the build failed, so none of its suites ran')
        self.rows.append(row)
        return good

    def needed(self, build):
        """The files to build; None: all of them."""
        if not self.options.suites and (not build.suites or self.options.full):
            return None
        files = {target['id']: target['filename'] for target in introspect(build.folder, 'targets')}
        ids = {depended for tests in self.tests(build).values() for test in tests for depended in test['depends']}
        return sorted(os.path.relpath(file, build.folder) for id in ids for file in files[id])

    def wanted(self, build, test):
        named, place = self.options.suites, place_of(test)
        if named:
            return suites_of(test)[0] in named or test['name'] in named
        if build.suites and not self.options.full:
            return (suites_of(test)[0] in build.suites or test['name'] in build.suites) and not place
        return not place or self.options.elsewhere

    def tests(self, build):
        """{place: [tests that shall run there]}"""
        found = introspect(build.folder, 'tests')
        for test in found:
            self.options.known.add(suites_of(test)[0])
            self.options.tests.add(test['name'])
        places = collections.defaultdict(list)
        for test in found:
            if self.wanted(build, test):
                places['guest' if place_of(test) == 'guest' else 'here'].append(test)
        return places

    def command(self, build, place, tests, alone=False):
        command = [*without_random_layout(build), *build.inside, 'meson', 'test', '-C', build.folder, '--no-rebuild', '--setup', self.options.setup,
                   '--logbase', log_base(place, alone), '--num-processes', str(1 if alone else self.cores * build.side_by_side),
                   '--print-errorlogs']
        command += [test['name'] for test in tests] if alone else self.selection(build, tests)
        if place != 'guest':
            return command
        seconds = GUEST_SECONDS * (3 if self.options.full else 1)
        return [TOP / 'scripts' / 'rdma-vm', '--rails', '2', '--timeout', str(seconds), '--write', build.folder, '--', *command]

    def selection(self, build, tests):
        """The part of Meson's command line that names `tests`: their suites, or themselves where one was asked for by name."""
        if set(self.options.suites or build.suites) & {test['name'] for test in tests}:
            return [test['name'] for test in tests]
        return [word for suite in sorted({suites_of(test)[0] for test in tests}) for word in ('--suite', suite)]

    def run_place(self, build, place, tests):
        """Has Meson run `tests`, and adds a row for each of their suites whatever becomes of it."""
        for alone in (False, True):
            self.log(build, place, alone).unlink(missing_ok=True)
        status = None
        try:
            status = self.run_meson(build, place, tests)
            again = self.second_tries(testlog.read_entries(self.log(build, place)), place, tests)
            if again:
                self.run_meson(build, place, again, alone=True)
        finally:
            self.add_rows(build, place, tests, status)

    def log(self, build, place, alone=False):
        return build.folder / 'meson-logs' / f'{log_base(place, alone)}-{self.options.setup}.json'

    def run_meson(self, build, place, tests, alone=False):
        """The status of Meson's runner."""
        self.where = f'{build.name}/{log_base(place, alone)}'
        self.display.line(f'\n== {self.where}: {len(tests)} programs')
        estimate = progress.Estimate(TOP / '.cache' / f'seconds-{build.name}-{self.options.setup}.json',
                                     [test['name'] for test in tests])
        process = progress.start(self.command(build, place, tests, alone))
        try:
            late = progress.follow(process, self.where, tests, estimate, self.end, self.display)
            if late:
                raise DeadlinePassed(f'{self.where}: {", ".join(late)}')
            return process.wait()
        finally:
            stop(process)
            estimate.keep()

    def second_tries(self, entries, place, tests):
        """Those of `tests` that failed and may run once more; none where too many failed."""
        failed = testlog.failed(entries)
        if not self.options.second_try or place == 'guest' or len(failed) > MOST_SECOND_TRIES:
            return []
        return [test for test in tests if test['name'] in failed]

    def add_rows(self, build, place, tests, status):
        suites = collections.defaultdict(list)
        for test in tests:
            suites[suites_of(test)[0]].append(test['name'])
        entries = testlog.decided(*(testlog.read_entries(self.log(build, place, alone)) for alone in (False, True)))
        order = {name: index for index, name in enumerate(ORDER)}
        rows = [testlog.summarise(f'{build.name}/{suite}', entries, names, self.skips)
                for suite, names in sorted(suites.items(), key=lambda item: (order.get(item[0], len(ORDER)), item[0]))]
        if status not in (0, None) and not any(row.failed or row.second_tries for row in rows):
            rows[0].fail(f'meson test ended with status {status}')
        self.rows += rows

    def run_build(self, build):
        if not can_start(build):
            self.display.line(f'\n== {build.name} is left out: vm.mmap_rnd_bits is above 28 here, and setarch -R is not allowed')
            return
        if not self.compile(build):
            return
        for place, tests in sorted(self.tests(build).items(), reverse=True):  # "here" first
            self.run_place(build, place, tests)

    def builds(self):
        if self.options.arm64:
            return [ARM64]
        if self.options.only:
            return [build for build in SANITIZED if build.name == self.options.only]
        return [RELEASE] + (SANITIZED if self.options.sanitize else [])

    def everything(self):
        """The table's rows are complete when this returns, whatever happens."""
        try:
            for build in self.builds():
                self.run_build(build)
        except DeadlinePassed as passed:
            self.failed_by('deadline', f'{self.options.deadline:g} minutes passed while this was running: {passed}')
        except (KeyboardInterrupt, Ended):
            self.failed_by('interrupted', f'while {self.where} was running')
        if not any(row.passed or row.failed for row in self.rows):
            self.failed_by('nothing', 'no test ran')
        missing = set(self.options.suites) - self.options.known - self.options.tests
        if missing and self.options.known:
            self.failed_by('unknown', f'no such suite or test: {", ".join(sorted(missing))}; suites are: {", ".join(sorted(self.options.known))}')

    def failed_by(self, name, note):
        row = testlog.Row(name)
        row.fail(note)
        self.rows.append(row)


def log_base(place, alone):
    return f'{place}-alone' if alone else place


def without_random_layout(build):
    """ThreadSanitizer of g++ 12 cannot start where the kernel spreads mappings widely; setarch helps if allowed."""
    prefix = ['setarch', '-R']
    if build.name != 'tsan' or not shutil.which('setarch'):
        return []
    return prefix if subprocess.run([*prefix, 'true'], check=False, capture_output=True).returncode == 0 else []


def can_start(build):
    """Whether programs of a build start at all under this kernel."""
    if build.name != 'tsan' or without_random_layout(build):
        return True
    try:
        return int(pathlib.Path('/proc/sys/vm/mmap_rnd_bits').read_text()) <= 28
    except (OSError, ValueError):
        return True


def parse(arguments):
    parser = argparse.ArgumentParser(prog='scripts/test', add_help=False, allow_abbrev=False)
    for flag in ('--sanitize', '--arm64', '--elsewhere', '--full', '--second-try'):
        parser.add_argument(flag, action='store_true')
    parser.add_argument('--only', choices=[build.name for build in SANITIZED])
    parser.add_argument('--deadline', type=float)
    parser.add_argument('--started', type=float, default=time.time())
    parser.add_argument('suites', nargs='*')
    options = parser.parse_args(arguments)
    options.deadline = options.deadline or (720 if options.full else 85)
    options.elsewhere |= options.full
    options.setup = 'full' if options.full else 'small'
    options.known, options.tests = set(), set()  # suites and tests that some build has
    return options


def ended(*_):
    raise Ended


def main(arguments):
    options = parse(arguments)
    for number in (signal.SIGTERM, signal.SIGHUP):  # whoever ends this run still gets the table
        if signal.getsignal(number) != signal.SIG_IGN:  # nohup
            signal.signal(number, ended)
    run = Run(options)
    run.everything()
    print('\n' + '\n'.join(testlog.table(run.rows)))
    print('\n'.join(testlog.failures(run.rows)))
    print('\n'.join(testlog.skipped(run.rows)))
    print(f'total time: {testlog.duration(time.time() - options.started)}')
    print(testlog.verdict(run.rows), flush=True)
    return 1 if any(row.failed for row in run.rows) else 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
