# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""Builds weft in each way, runs its suites, prints one table. Called by scripts/test, which has the usage text.

Each suite is one `meson test` with a log of its own, so that a run can be resumed and a deadline can name
what it hit.
"""
import argparse
import dataclasses
import hashlib
import json
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import head_start
import later
import report
import testlog

TOP = pathlib.Path(__file__).resolve().parents[2]
SUPPRESSIONS = TOP / 'tests' / 'suppressions'
ORDER = ['house', 'abi', 'unit', 'fuzz', 'protocol', 'fault', 'tools', 'efa', 'efa-trixie', 'nccl', 'system', 'verbs', 'soak', 'perf']
# These wait more than they compute, so each build runs them at once.
TOGETHER = {'abi', 'unit', 'fuzz', 'protocol', 'fault', 'tools'}
# Several processes, sockets and time limits: on a machine that is busy with something else a check may fail once for that. In the
# first tier such a program is run a second time, by itself; the second tier forgives nothing.
UNSTEADY = {'tools', 'efa', 'efa-trixie', 'system', 'verbs', 'soak', 'perf'}
# Of other suites, these: what they check is how soon something is noticed.
UNSTEADY_PROGRAMS = {'unit-control-process', 'unit-control-silence'}
# These measure how fast something is; during all others the next builds are compiled on processors they leave idle.
MEASURING = {'efa', 'efa-trixie', 'perf'}
COMMON = ['-Dtests=enabled', '-Dtools=enabled', '-Dofi=enabled', '-Dverbs=enabled']
# Suites that need devices no machine has by chance: they run inside the guest of scripts/rdma-vm.
IN_GUEST = {'verbs'}
GUEST_SECONDS = 1500
# libfabric 2 has another path to EFA than 1.17: the same programs, with a later Debian's libraries.
LATER = {'bookworm': 'trixie'}
LATER_PACKAGES = 'python3,libfabric1,libfabric-bin,libstdc++6'
REST_PATIENCE = 3  # seconds for what outlives the first process of a command that was told to end
MOST_AGAIN = 6  # programs of some thirty: a busy moment meets all that run in it; more is no accident


@dataclasses.dataclass
class Build:
    name: str
    options: list
    env: dict
    patience: int  # factor on the tests' own timeouts
    full: tuple = ()  # suites that run at the second tier's counts here: growth shows in release, wrong accesses under ASan

    @property
    def folder(self):
        return TOP / f'build-{self.name}'


# The sanitizers' run-time libraries take a thread-local block whose address ends in 010 for one with a header, as glibc 2.19
# had it, and its first words for a size: once in some hundred threads of a loaded plugin they die of that by themselves
# ("failed to allocate 0x1ecbffffff000 bytes", "Tracer caught signal 11"). Such blocks come from malloc since glibc 2.25
# and are seen there, so nobody has to look at __tls_get_addr.
TLS_BY_MALLOC = 'intercept_tls_get_addr=0'

# Most of what the compiler does for a sanitizer's build is the C++ library's templates, again for each source: as one source, a
# library or program with several takes half as long. The release build shows that each source compiles by itself.
AS_ONE_SOURCE = ['-Dunity=on', '-Dunity_size=1000']

# Blanks and colons part a sanitizer's options, so paths are quoted.
BUILDS = [
    Build('release', ['-Dbuildtype=release', '-Dwerror=true'], {}, 1,
          full=tuple(suite for suite in ORDER if suite != 'fuzz')),
    Build('asan', ['-Dbuildtype=debug', '-Ddebug=false', '-Db_sanitize=address,undefined', '-Db_lundef=false', *AS_ONE_SOURCE], {
        'ASAN_OPTIONS': f'detect_stack_use_after_return=1:{TLS_BY_MALLOC}:suppressions="{SUPPRESSIONS}/asan.txt"',
        'LSAN_OPTIONS': f'suppressions="{SUPPRESSIONS}/lsan.txt":print_suppressions=0',
        'UBSAN_OPTIONS': 'halt_on_error=1:print_stacktrace=1',
    }, 4, full=('fuzz',)),
    Build('tsan', ['-Dbuildtype=debug', '-Ddebug=false', '-Doptimization=1', '-Db_sanitize=thread', '-Db_lundef=false',
                   *AS_ONE_SOURCE], {
        'TSAN_OPTIONS': f'halt_on_error=1:second_deadlock_stack=1:{TLS_BY_MALLOC}:suppressions="{SUPPRESSIONS}/tsan.txt"',
    }, 6),
]


class DeadlinePassed(Exception):
    pass


class UnknownName(Exception):
    pass


class Deadline:
    """One end for everything this run starts."""

    def __init__(self, started, minutes):
        self.minutes = minutes
        self.end = started + 60 * minutes

    def run(self, command, **how):
        """Exit status of `command`; ends it and everything it started when the time is up."""
        left = self.end - time.time()
        if left <= 0:
            raise DeadlinePassed
        with subprocess.Popen(command, start_new_session=True, **how) as process:
            try:
                return process.wait(timeout=left)
            except subprocess.TimeoutExpired:
                stop(process)
                raise DeadlinePassed from None
            except BaseException:
                stop(process)
                raise


def stop(process):
    """Ends a process that leads a session, and what it started there."""
    # Meson's runner ends its tests, which have sessions of their own, when it is asked to; killed, it cannot.
    for how, patience in ((signal.SIGTERM, 20), (signal.SIGKILL, 5)):
        try:
            os.killpg(process.pid, how)
            process.wait(timeout=patience)
            break
        except subprocess.TimeoutExpired:
            continue
        except ProcessLookupError:
            break
    kill_rest(process.pid)


def kill_rest(session):
    """Who does not hear that it shall end: the first process of a namespace, for one."""
    end = time.monotonic() + REST_PATIENCE
    while head_start.processes_of(session) and time.monotonic() < end:
        time.sleep(0.02)
    head_start.signal_all(session, signal.SIGKILL)


def fingerprint():
    """Changes whenever a source does; records of runs and build folders are not sources."""
    digest = hashlib.sha256()
    for path in sorted(TOP.rglob('*')):
        inside = path.relative_to(TOP).parts
        if inside[0].startswith(('build', '.git', '.cache')) or '__pycache__' in inside:
            continue
        if path.is_file() and path != TOP / report.RECORDS:
            digest.update('/'.join(inside).encode() + b'\0' + path.read_bytes())
    return digest.hexdigest()


class Memory:
    """What passed already, one file a build folder; only believed for the same sources and counts."""

    def __init__(self, build, key, fresh):
        self.path = build.folder / 'passed-suites.json'
        self.key = key
        if fresh:
            self.path.unlink(missing_ok=True)
        self.rows = self.stored()

    def stored(self):
        stored = json.loads(self.path.read_text()) if self.path.exists() else {}
        return stored.get('rows', {}) if stored.get('key') == self.key else {}

    def recall(self, suite):
        row = self.rows.get(suite)
        return testlog.Row(**row) if row else None

    def keep(self, suite, row):
        self.rows = {**self.stored(), suite: dataclasses.asdict(row)}  # another run may be at other suites
        self.path.write_text(json.dumps({'key': self.key, 'rows': self.rows}))


class Run:
    def __init__(self, options):
        self.options = options
        self.rows = []
        self.where = 'configuring'  # what the deadline would hit
        self.deadline = Deadline(options.started, options.deadline)
        self.skips = testlog.read_skips(TOP / 'tests' / 'skips')
        self.cores = len(os.sched_getaffinity(0))
        self.key = fingerprint()
        self.later = []  # tests that run with a later Debian's libraries
        self.builds = [build for build in BUILDS if build.name not in options.without]
        self.ahead = self.head_start(self.builds[1:])

    def compile(self, build):
        """True when built; else a failed row says so."""
        self.where = f'{build.name}/build'
        print(f'\n== {self.where}', flush=True)
        begin = time.time()
        if self.ahead.under_way:
            self.ahead.go()  # what it has begun of this build it brings to an end; until then the command below waits
        status = self.deadline.run(build_command(build, 'weftNinja "$2"'))
        row = testlog.Row(self.where, seconds=time.time() - begin)
        if status != 0:
            row.failed = 1
            row.notes.append('the build failed, so none of its suites ran')
        self.rows.append(row)
        return status == 0

    def suites(self, build):
        """{suite: [test names]} in the order to run; a test belongs to the first suite it names."""
        command = ['meson', 'introspect', '--tests', build.folder]
        tests = json.loads(subprocess.run(command, check=True, capture_output=True, timeout=120).stdout)
        found = {}
        for test in tests:
            suite = (test['suite'] or ['other'])[0].rpartition(':')[2]
            found.setdefault(suite, []).append(test['name'])
        if build.name == 'release' and 'efa' in found and release_name() in LATER:
            self.later = later.tests_of(tests, found['efa'], build.folder)
            found['efa-trixie'] = [test['name'] for test in self.later]
        order = {name: index for index, name in enumerate(ORDER)}
        return dict(sorted(found.items(), key=lambda item: (order.get(item[0], len(ORDER)), item[0])))

    def wanted(self, suite):
        named = self.options.suites
        left_out = (suite in self.options.without or (suite in IN_GUEST and 'vm' in self.options.without)
                    or (suite == 'efa-trixie' and 'trixie' in self.options.without))
        return (not named or suite in named) and not left_out

    def run_suites(self, build, suites):
        """Rows of `suites`, {name: tests}, that one `meson test` ran."""
        full = self.full(build, next(iter(suites)))
        name = '+'.join(suites)
        self.where = f'{build.name}/{name}'
        print(f'\n== {self.where}', flush=True)
        log, second = (build.folder / 'meson-logs' / f'{name}{which}.json' for which in ('', '-again'))
        for path in log, second:
            path.unlink(missing_ok=True)
        begin = time.time()
        status = None
        try:
            status = self.deadline.run(self.command(build, suites, name, full), env=self.environment(build, full))
            self.run_again(build, suites, log, second)
        finally:  # a run that was cut off shows what it got to
            rows = [testlog.summarise(f'{build.name}/{suite}', log, tests, self.skips, second) for suite, tests in suites.items()]
            if len(rows) == 1:
                rows[0].seconds = time.time() - begin  # together, a suite's time is that of its programs
            if status not in (0, None) and not any(row.failed or row.outputs for row in rows):
                rows[0].failed = 1
                rows[0].notes.append(f'meson test ended with status {status}')
            self.rows += rows
        return dict(zip(suites, rows))

    def run_again(self, build, suites, log, second):
        """What failed in `log` in a way that may be the machine's, once more and one by one, into the log `second`."""
        tests = [] if self.options.all else testlog.doubtful_tests(log, unsteady(suites))
        if not 0 < len(tests) <= MOST_AGAIN:
            return
        print(f'\n== {self.where}, by itself: {" ".join(tests)}', flush=True)
        self.deadline.run([*self.command(build, suites, second.stem, False, processes=1), *tests],
                          env=self.environment(build, False))

    def full(self, build, suite):
        return self.options.all and suite in build.full

    def command(self, build, suites, name, full, processes=None):
        patience = build.patience * (30 if full else 1)
        processes = processes or self.cores * (2 if TOGETHER.issuperset(suites) else 1)
        if 'efa-trixie' in suites:
            return self.later_command(build, name, processes)
        command = [*without_random_layout(build), 'meson', 'test', '-C', build.folder, '--no-rebuild', '--logbase', name,
                   '--num-processes', str(processes), '-t', str(patience), '--print-errorlogs']
        for suite in suites:
            command += ['--suite', suite]
        if IN_GUEST.isdisjoint(suites):
            return command
        seconds = GUEST_SECONDS * (3 if full else 1)
        return [TOP / 'scripts' / 'rdma-vm', '--rails', '2', '--timeout', str(seconds), '--write', build.folder, '--', *command]

    def later_command(self, build, name, processes):
        tests, log = (build.folder / 'meson-logs' / f'{name}{which}.json' for which in ('-list', ''))
        tests.write_text(json.dumps(self.later))
        brought = [word for path in later.libraries_of(build.folder / 'tools' / 'weft') for word in ('--bring', path)]
        return [TOP / 'scripts' / 'in-debian', '--with', LATER_PACKAGES, *brought, LATER[release_name()], '--',
                'python3', TOP / 'scripts' / 'lib' / 'run_listed.py', '--num-processes', str(processes), tests, log]

    @staticmethod
    def environment(build, full):
        return {**os.environ, **build.env, **({'WEFT_TEST_FULL': '1'} if full else {})}

    def groups(self, build, suites):
        """[{suite: tests}]: what runs together, in the order of `suites`; one group has one tier's counts."""
        groups = {}
        for suite, tests in suites.items():
            key = ('together', self.full(build, suite)) if suite in TOGETHER else suite
            groups.setdefault(key, {})[suite] = tests
        return list(groups.values())

    def left_to_run(self, build, memory):
        """{suite: tests}; of what need not or cannot run here the row says why."""
        left = {}
        for suite, tests in self.suites(build).items():
            if not self.wanted(suite):
                continue
            row = memory.recall(suite) if memory else None
            if row:
                row.notes.append('passed earlier on the same sources')
                self.rows.append(row)
            elif suite == 'efa-trixie' and os.geteuid() != 0:
                self.rows.append(testlog.Row(f'{build.name}/{suite}', skipped=len(tests), notes=['needs root']))
            else:
                left[suite] = tests
        return left

    def run_build(self, build):
        if not self.compile(build):
            return
        memory = Memory(build, self.key, self.options.fresh) if self.options.all else None
        left = self.left_to_run(build, memory)
        for group in self.groups(build, left):
            if MEASURING.isdisjoint(group):
                self.ahead.go()
            else:
                self.ahead.halt()
            for suite, row in self.run_suites(build, group).items():
                if memory and row.failed == 0:
                    memory.keep(suite, row)

    def head_start(self, builds):
        """Of the second tier there is none: its suites have the machine for themselves."""
        wanted = [] if self.options.all else builds
        commands = [build_command(build, f'exec ninja -C "$2" -k 0 -j {self.cores}') for build in wanted]
        return head_start.HeadStart(in_turn(commands), end=stop)

    def everything(self):
        try:
            for build in self.builds:
                self.run_build(build)
        except DeadlinePassed:
            row = testlog.Row('deadline', failed=1)
            row.notes.append(f'{self.deadline.minutes} minutes passed while {self.where} was running')
            self.rows.append(row)
        except KeyboardInterrupt:
            row = testlog.Row('interrupted', failed=1)
            row.notes.append(f'while {self.where} was running')
            self.rows.append(row)
        finally:
            self.ahead.end()


def unsteady(suites):
    """Of `suites`, {name: tests}, the programs that may be run a second time."""
    return [test for suite, tests in suites.items() for test in tests if suite in UNSTEADY or test in UNSTEADY_PROGRAMS]


def build_command(build, ninja):
    """Configures the build's folder and goes on with `ninja`, shell code in which $2 is the folder."""
    script = f'set -e; source "$1/scripts/lib/build.sh"; weftAlone "$1" "$2"; weftConfigure "$1" "${{@:2}}"; {ninja}'
    return ['bash', '-c', script, 'build', TOP, build.folder, *COMMON, *build.options]


def in_turn(commands):
    """One command that runs these one after the other, whatever becomes of each; empty for none."""
    return ['sh', '-c', '\n'.join(shlex.join(map(str, command)) for command in commands)] if commands else []


def release_name():
    """Debian's own name of this machine's release; of another system's, or empty."""
    return report.os_release('VERSION_CODENAME')


def without_random_layout(build):
    """ThreadSanitizer of g++ 12 cannot start where the kernel spreads mappings widely; setarch helps if allowed."""
    prefix = ['setarch', '-R']
    if build.name != 'tsan' or not shutil.which('setarch'):
        return []
    return prefix if subprocess.run([*prefix, 'true'], check=False, capture_output=True).returncode == 0 else []


def parse(arguments):
    parser = argparse.ArgumentParser(prog='scripts/test', add_help=False)
    parser.add_argument('--all', action='store_true')
    parser.add_argument('--fresh', action='store_true')
    parser.add_argument('--deadline', type=float)
    parser.add_argument('--started', type=float, default=time.time())
    parser.add_argument('suites', nargs='*')
    prefix = '--without-'
    without = {argument[len(prefix):] for argument in arguments if argument.startswith(prefix)}
    options = parser.parse_args([argument for argument in arguments if not argument.startswith(prefix)])
    options.without = without
    options.command = ' '.join(['scripts/test', *arguments[arguments.index('--started') + 2:]])
    options.deadline = options.deadline or (720 if options.all else 80)
    return options


def check_names(options):
    """Names that fit nothing are mistakes, not requests for nothing. A suite may be one build's only, so no build is asked."""
    suites = {suite for suite in ORDER if suite != 'efa-trixie' or release_name() in LATER}
    builds = {build.name for build in BUILDS}
    wrong = (set(options.suites) - suites) | (options.without - set(ORDER) - builds - {'vm', 'trixie'})
    if wrong:
        raise UnknownName(f'no such suite: {", ".join(sorted(wrong))}; there are: {", ".join(sorted(suites))}')


def interrupted(*_):
    raise KeyboardInterrupt


def main(arguments):
    options = parse(arguments)
    try:
        check_names(options)
    except UnknownName as mistake:
        print(f'error: {mistake}', file=sys.stderr)
        return 2
    for number in (signal.SIGTERM, signal.SIGHUP):  # whoever ends this run still gets the table
        if signal.getsignal(number) != signal.SIG_IGN:  # nohup
            signal.signal(number, interrupted)
    run = Run(options)
    free = shutil.disk_usage(TOP).free >> 30
    print(f'cores: {run.cores}, free disk: {free} GiB, tier: {"all" if options.all else "first"}, '
          f'deadline: {options.deadline:g} min', flush=True)
    run.everything()
    passed = sum(row.passed for row in run.rows)
    failed = sum(row.failed for row in run.rows)
    if passed + failed == 0:
        run.rows.append(testlog.Row('nothing', failed=1, notes=['no test ran']))
        failed = 1
    seconds = time.time() - options.started
    print('\n' + '\n'.join(report.table(run.rows)))
    print('\n'.join(report.failures(run.rows)))
    print(f'total time: {report.duration(seconds)}')
    if options.all:
        report.append_record(TOP, options.command, run.rows, seconds, run.cores)
    print(report.verdict(run.rows))
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
