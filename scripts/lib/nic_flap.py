# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""For scripts/nic-check: a link that goes down and comes up again under traffic. Only where --flap allows it, by `ip link set`; the software EFA device
plays it without."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import time

import nic_card
from check_parts import end_group

DOWN_SECONDS = 1.0
SILENT_SECONDS = 0.3  # below the second for which the software device waits for a peer
BEFORE_SECONDS = 2.0
HEAD_SECONDS = 20
TABLE = '(elements)'
TRAFFIC_SECONDS = 8
SAFE_SECONDS = 20  # after which the link is set up in any case, also when this script was killed
GUARD = 'sleep "$1"; ip link set dev "$2" up; [ -z "$3" ] || echo "$3" >"$4"'
FOREIGN = 'the other of the two hosts, or whoever is logged in, is reached through it'


class SoftwareLink:
    """All cards of the software EFA device fall silent for some time, by its file of faults."""

    def __init__(self, folder):
        self.name, self.file = 'the software network', folder / 'faults'
        self.replace('none')
        self.settings = {'SOFTEFA_CONTROL': str(self.file)}

    def replace(self, faults):
        part = self.file.with_name('faults.part')
        part.write_text(faults)
        part.rename(self.file)

    def flap(self):
        self.replace('mute=*')
        time.sleep(SILENT_SECONDS)
        self.replace('unmute=*')


class Interface:
    """The interface of a card. Its IPv6 addresses are kept while it is down, and it is up again whatever becomes of this process."""

    def __init__(self, name):
        self.name, self.settings = name, {}
        self.keeps = pathlib.Path('/proc/sys/net/ipv6/conf') / name / 'keep_addr_on_down'

    def flap(self):
        before = nic_card.read(self.keeps)
        if before:
            self.keeps.write_text('1')
        guard = subprocess.Popen(['sh', '-c', GUARD, 'guard', str(SAFE_SECONDS), self.name, before, str(self.keeps)], start_new_session=True)
        try:
            subprocess.run(['ip', 'link', 'set', 'dev', self.name, 'down'], check=True, capture_output=True, timeout=10)
            time.sleep(DOWN_SECONDS)
        finally:
            subprocess.run(['ip', 'link', 'set', 'dev', self.name, 'up'], check=True, capture_output=True, timeout=10)
            end_group(guard)
            if before:
                self.keeps.write_text(before)


def routes_to(address):
    done = subprocess.run(['ip', '-o', 'route', 'get', address], capture_output=True, text=True, check=False)
    found = re.search(r' dev (\S+)', done.stdout)
    return found[1] if found else ''


def in_use(check):
    """Interfaces that must stay: of the default route, of the ssh session, and of the way to the other host."""
    done = subprocess.run(['ip', '-o', 'route', 'show', 'default'], capture_output=True, text=True, check=False)
    stay = set(re.findall(r' dev (\S+)', done.stdout))
    for address in filter(None, [os.environ.get('SSH_CONNECTION', '').split(' ')[0]]):
        stay.add(routes_to(address))
    if check.peer:
        found = re.search(r'^\S+', subprocess.run(['getent', 'ahosts', check.peer.address], capture_output=True, text=True, check=False).stdout)
        stay.add(routes_to(found[0]) if found else '')
    return stay - {''}


def link_of(check, fabric, card):
    """(what can be set down, why nothing can)"""
    if check.softefa:
        return SoftwareLink(check.folder_for(f'flap {fabric}')), ''
    if not check.options.flap:
        return None, 'it takes an interface down for a second, so --flap has to allow it'
    if os.geteuid() != 0:
        return None, 'ip link set takes root'
    if not shutil.which('ip'):
        return None, 'there is no ip (iproute2)'
    names = nic_card.netdevs(card.partition(':')[0])
    if not names:
        return None, f'{card} has no interface that can be set down (EFA and InfiniBand without IPoIB have none)'
    stay = in_use(check) & set(names)
    if stay:
        return None, f'{", ".join(sorted(stay))} of {card} has the default route, or {FOREIGN}'
    return Interface(names[0]), ''


def flap(check):
    """Traffic over one card, whose link is lost for a moment in the middle. What the card's own retries survive the job has to survive."""
    if nic_card.without_cards(check, 'flap'):
        return
    for fabric, names in check.tried().items():
        link, why = link_of(check, fabric, names[0])
        if not link:
            check.note('flap', f'left out: {fabric}: {why}')
            continue
        under_traffic(check, fabric, link, f'{names[0]} alone', (check.over(fabric), []))
        if len(names) > 1:
            under_traffic(check, fabric, link, f'{names[0]} and others as one device', check.merged(fabric))


def under_traffic(check, fabric, link, cards, how):
    """`weft perf` runs in its own time while the link goes and comes."""
    what = f'{link.name} goes down and up under traffic over {fabric} {cards}'
    folder = check.folder_for(f'flap {fabric} {cards}')
    settings, merge = how
    command = [check.build / 'tools' / 'weft', 'perf', 'sendrecv', '-n', '2', *merge, '-b', '1M', '-e', '1M', '--duration', TRAFFIC_SECONDS, '--timeout', '60', '-v',
               '--plugin', check.plugin, '--json', folder / 'traffic.json']
    (folder / 'traffic.json').unlink(missing_ok=True)
    check.left(60)
    begin = time.monotonic()
    with open(folder / 'traffic.log', 'wb') as log:
        traffic = subprocess.Popen([str(word) for word in command], env=check.environment({**settings, **link.settings}), stdin=subprocess.DEVNULL, stdout=log,
                                   stderr=subprocess.STDOUT)
    try:
        wait_for_traffic(folder / 'traffic.log', traffic)
        early = traffic.poll() is not None
        if not early:
            link.flap()
        status = traffic.wait(check.left(60))
    except subprocess.TimeoutExpired:
        status = 124
    finally:
        if traffic.poll() is None:
            traffic.kill()
        traffic.wait()
    text = (folder / 'traffic.log').read_text(errors='replace')
    wrong = nic_card.reasons([status], [text])
    if not wrong and early:
        wrong = ['the traffic was over before the link went down, so this shows nothing']
    longest = longest_wait(folder / 'traffic.json') if not wrong else 0
    if not wrong and check.softefa and longest < SILENT_SECONDS / 2:
        wrong = [f'nothing stood still: the longest operation took {longest:.2f} s']
    check.judge('flap', what + ('' if wrong else f': the longest operation took {longest:.2f} s'), wrong, time.monotonic() - begin)


def wait_for_traffic(log, traffic):
    """The head of the table is there as soon as all are connected."""
    until = time.monotonic() + HEAD_SECONDS
    while TABLE not in log.read_text(errors='replace') and traffic.poll() is None and time.monotonic() < until:
        time.sleep(0.1)
    time.sleep(BEFORE_SECONDS)


def longest_wait(file):
    """Seconds of the slowest operation that `weft perf` measured."""
    return max(row['out_of_place']['latency']['max_us'] for row in json.loads(file.read_text())['results']) / 1e6
