# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""For scripts/nic-check: `weft perf` over the cards, and beside it, in turn, the programs of others that are there: perftest's, and libfabric's."""
import json
import re
import shutil
import signal
import statistics
import subprocess
import time

import nic_card
from check_parts import OutOfTime
from ports import free_port

ROUNDS = 3
MIB = 1 << 20
# (name, arguments of weft perf, unit); one way in each direction at once is what ib_write_bw -b does.
LATENCY = ('half a round trip of 8 B', ['pingpong', '-b', '8', '-e', '8'], 'us')
PUT = ('a put of 8 B with its signal', ['put_signal', '-b', '8', '-e', '8'], 'us')
STREAM = ('1 MiB each way at once', ['sendrecv', '-b', '1M', '-e', '1M'], 'GB/s')
MEASURES = (LATENCY, PUT, STREAM)
LISTEN_SECONDS = 10


class ToolFailed(Exception):
    """A program of others did not give a figure, and why."""


def weft_value(check, fabric, measure):
    """(its figure or None, what is wrong)"""
    name, arguments, unit = measure
    file = check.folder_for(f'perf {fabric}') / f'{arguments[0]}.json'
    file.unlink(missing_ok=True)
    settings = check.over(fabric)
    command = [check.build / 'tools' / 'weft', 'perf', *arguments, '--duration', '0.5', '--timeout', '60', '--plugin', check.plugin, '--json', file]
    head = f'perf {fabric} {arguments[0]}'
    if check.peer:
        statuses, texts = between_hosts(check, head, command, settings)
    else:
        statuses, texts, _ = check.ranks(head, [[*command, '-n', '2']], [check.environment(settings=settings)], 60)
    if check.cut and 124 in statuses:
        raise OutOfTime
    if any(statuses) or not file.exists():
        return None, nic_card.reasons(statuses, texts) or [f'{name}: it wrote no result']
    said = json.loads(file.read_text())
    row = said['results'][0]['out_of_place']
    wrong = [f'{name}: {said["summary"]["wrong"]} elements are wrong'] if said['summary']['wrong'] else []
    return row['algbw_gbps'] if unit == 'GB/s' else row['time_us'], wrong


def between_hosts(check, head, command, settings):
    """The server there, the client here."""
    port = free_port()
    server = check.peer.start([check.peer.build / 'tools' / 'weft', 'perf', '--server', '--port', port, '--plugin', check.peer.build / 'plugin' / 'libnccl-net-weft.so',
                               '--timeout', '60'], check.settings_there(settings), check.left(70))
    try:
        settings = {**settings, 'WEFT_TOKEN': token_of(server)}
        statuses, texts, _ = check.ranks(head, [[*command, '--client', check.peer.address, '--port', port]], [check.environment(settings=settings)], 60)
        (check.folder_for(head) / 'server.log').write_text(server.text())
        return statuses, [text + (server.text() if any(statuses) else '') for text in texts]
    finally:
        server.kill()


def token_of(server):
    """What the server prints for its client to know, which no command line has."""
    until, found = time.monotonic() + LISTEN_SECONDS, None
    while not found and server.poll() is None and time.monotonic() < until:
        time.sleep(0.1)
        found = re.search(r'WEFT_TOKEN=(\w+)\s', server.text())
    return found[1] if found else ''


def pair(check, server, client, settings):
    """What the client says; it is started again until the server listens."""
    if check.peer:
        there = check.peer.start(server, check.settings_there(settings), check.left(30))
    else:
        there = Local(server, check.environment(settings={**settings, **check.other_host}))
    until = time.monotonic() + LISTEN_SECONDS
    try:
        while True:
            time.sleep(0.3)
            done = subprocess.run([str(word) for word in client], capture_output=True, text=True, errors='replace', check=False, timeout=check.left(30),
                                  env=check.environment(settings=settings))
            if done.returncode == 0:
                return done.stdout
            if there.poll() is not None or time.monotonic() > until:
                said = (done.stderr + done.stdout + there.text()).strip().splitlines()
                raise ToolFailed((said or [f'status {done.returncode}'])[-1])
    except subprocess.TimeoutExpired as late:
        raise ToolFailed('it did not end') from late
    finally:
        there.kill()


class Local:
    """A server on this host, in its own group."""

    def __init__(self, command, environment):
        self.process = subprocess.Popen([str(word) for word in command], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def poll(self):
        return self.process.poll()

    def text(self):
        return ''

    def kill(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()


# Programs of others. Each gives a figure in the measure's unit.


def perftest(check, device, program, *arguments):
    """The figures of the client's last line that begins with a number."""
    card, _, port = device.partition(':')
    command = [program, '-d', card, '-p', free_port(), '-F', *arguments]
    if is_efa(check, device):
        command += ['-c', 'SRD', '-x', '0']
    elif nic_card.roce_gid(card, port or '1'):
        command += ['-i', port or '1', '-x', nic_card.roce_gid(card, port or '1')]
    said = pair(check, command, [*command, address(check)], {})
    figures = [line.split() for line in said.splitlines() if re.match(r'\s*\d+\s+\d', line)]
    if not figures:
        raise ToolFailed('it gave no figure')
    return [float(word) for word in figures[-1]]


def is_efa(check, device):
    return any(device in check.fabrics.get(fabric, []) for fabric in ('ofi:efa', 'ofi:efa-direct'))


def address(check):
    return check.peer.address if check.peer else '127.0.0.1'


def libfabric_command(fabric, device, program):
    provider, endpoint = ('efa', 'rdm') if 'efa' in fabric else ('verbs;ofi_rxm', 'rdm')
    domain = f'{device}-rdm' if 'efa' in fabric else device.partition(':')[0]
    # fi_pingpong is told the kind of endpoint by -e, as the programs of fabtests are.
    return [program, '-p', provider, '-d', domain, '-e', endpoint]


def fi_pingpong(check, fabric, device, size):
    """(microseconds one way, MB/s)"""
    port = free_port()
    command = [*libfabric_command(fabric, device, 'fi_pingpong'), '-I', '200', '-S', size]
    said = pair(check, [*command, '-B', port], [*command, '-P', port, address(check)], check.over(fabric))
    found = re.findall(r'^\S+\s+\d+\s+=\d+\s+\S+\s+\S+s\s+([\d.]+)\s+([\d.]+)', said, re.M)
    if not found:
        raise ToolFailed('it gave no figure')
    return float(found[-1][1]), float(found[-1][0])


def fi_rma_bw(check, fabric, device):
    """GB/s of writes of 1 MiB, one way."""
    port = free_port()
    command = [*libfabric_command(fabric, device, 'fi_rma_bw'), '-o', 'write', '-I', '200', '-S', MIB]
    said = pair(check, [*command, '-B', port], [*command, '-P', port, address(check)], check.over(fabric))
    found = re.findall(r'^\S+\s+(?:\S+\s+)+?(\d+\.\d+)\s+\d+\.\d+\s+\d+\.\d+\s*$', said, re.M)
    if not found:
        raise ToolFailed('it gave no figure')
    return float(found[-1]) / 1e3


def others(check, fabric, device, measure):
    """(name, function) of each program that is there and says the like."""
    raw = fabric == 'verbs' or 'efa' in fabric
    if measure is LATENCY:
        if raw and shutil.which('ib_write_lat'):
            yield 'ib_write_lat', lambda: perftest(check, device, 'ib_write_lat', '-s', '8', '-n', '1000')[4]
        if fabric != 'verbs' and shutil.which('fi_pingpong'):
            yield 'fi_pingpong', lambda: fi_pingpong(check, fabric, device, '8')[0]
    if measure is STREAM:
        if raw and shutil.which('ib_write_bw'):
            yield 'ib_write_bw -b / 2', lambda: perftest(check, device, 'ib_write_bw', '-b', '-s', str(MIB), '-n', '200', '--report_gbits')[3] / 16
        if fabric != 'verbs' and shutil.which('fi_rma_bw'):
            yield 'fi_rma_bw, one way', lambda: fi_rma_bw(check, fabric, device)


def what_is_missing():
    packages = {'ib_write_lat': 'perftest', 'ib_write_bw': 'perftest', 'fi_pingpong': 'libfabric-bin', 'fi_rma_bw': 'libfabric\'s fabtests'}
    return [f'{program} ({package})' for program, package in packages.items() if not shutil.which(program)]


def compare(check, fabric, device, measure):
    """A line: medians, weft's first, and how many times as good weft is."""
    name, _, unit = measure
    begin, values, programs = time.monotonic(), {'weft': []}, list(others(check, fabric, device, measure))
    for _ in range(ROUNDS):
        value, wrong = weft_value(check, fabric, measure)
        if wrong:
            check.judge('perf', f'{name} over {fabric}', wrong, time.monotonic() - begin)
            return
        values['weft'].append(value)
        for program, once in list(programs):
            try:
                values.setdefault(program, []).append(once())
            except ToolFailed as why:
                check.note('perf', f'left out: {program} over {fabric}: {why}')
                programs.remove((program, once))
                values.pop(program, None)
    ours = statistics.median(values.pop('weft'))
    said = ''
    for program, seen in values.items():
        theirs = statistics.median(seen)
        said += f', {program} {theirs:.2f} {unit} ({(theirs / ours if unit == "us" else ours / theirs) if ours and theirs else 0:.2f})'
    check.judge('perf', f'{name} over {fabric} {device}: {ours:.2f} {unit}{said}', [], time.monotonic() - begin)


def perf(check):
    if nic_card.without_cards(check, 'perf'):
        return
    where = f'between this host and {check.peer.address}' if check.peer else 'by two processes of this host, through the card and back'
    check.note('perf', f'{where}; medians of {ROUNDS} rounds, in brackets how many times as fast as that program')
    missing = what_is_missing()
    if missing:
        check.note('perf', f'left out: there is no {", ".join(missing)}')
    for fabric, names in check.tried().items():
        for measure in MEASURES:
            compare(check, fabric, names[0], measure)
