# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""The parts of scripts/nic-check: what is run on a machine with network cards, in how much time, and what is said of it."""
import os
import pathlib
import re
import shlex
import shutil

import check_parts
import nccl_host
import nic_card
from check_parts import SKIP, last_lines
from nic_card import reasons, without_cards

PLUGIN = 'plugin/libnccl-net-weft.so'
WITH_FAULTS = 'tests/complete/libnccl-net-weft.so'  # the copy that has the fault injector, too
SYSTEM = 'tests/system'
SUITES = ('conformance-sizes', 'conformance-groups', 'conformance-rules', 'conformance-comms', 'conformance-close', 'faults-handles', 'faults-strangers',
          'faults-peers')
NEEDED = (PLUGIN, WITH_FAULTS, 'tools/weft', f'{SYSTEM}/gpu-memory', f'{SYSTEM}/faults-rails', *(f'{SYSTEM}/{name}' for name in SUITES))
SUITE_SECONDS = 120
SOFTEFA = 'tests/softefa'
MOST_CARDS = 4  # of one device
# An emulated guest is many times slower than any machine with cards.
GUEST = {'WEFT_TEST_PATIENCE': '20', 'WEFT_TEST_FULL': '0', 'WEFT_PEER_WARN': '600000', 'WEFT_PEER_TIMEOUT': '600000', 'WEFT_KERNEL_TIMEOUT': '60000',
         'WEFT_LANE_TIMEOUT': '200000', 'WEFT_CONNECT_TIMEOUT': '200000', 'WEFT_CLOSE_TIMEOUT': '40000'}
# Where processors are few, a software card's work may rest for over a second.
SOFTWARE = {'WEFT_RAIL_TIMEOUT': '5000'}
LEFT = r'is left to the other rails'
ASK_CARDS = '''
import ctypes, sys
print('softefa' if hasattr(ctypes.CDLL('libibverbs.so.1'), 'softefa_set_faults') else '')
'''


class NoCard(Exception):
    """There is none, and what discovery said."""


class Check(check_parts.Parts):
    """The machine, its cards, the other host if there is one, and what was found. `said` is what `weft info` says, None when it says nothing."""

    def __init__(self, options, peer=None):
        super().__init__('nic-check', options.out, options.seconds)
        self.options, self.build, self.peer = options, options.build, peer
        self.plugin, self.patience, self.other_host, self.base = self.build / PLUGIN, {}, {}, {}
        self.softefa = self.find_softefa()
        self.said, self.why_nothing_said, self.asking_took = nic_card.ask(self)
        self.fabrics = nic_card.fabrics_with_cards(self.said) if self.said else {}
        if self.said and not self.fabrics and not nic_card.cards() and not nic_card.cards_refused(self.said):
            raise NoCard('\n'.join(nic_card.refused(self.said)))
        if not self.played_by and nic_card.cards() and all(nic_card.is_software(name) for name in nic_card.cards()):
            self.played_by, self.patience = 'cards in software, whose times are not a card\'s', {**SOFTWARE, **(GUEST if 'WEFT_TEST_RDMA_VM' in os.environ else {})}
        self.note('host', f'{" ".join(os.uname()[1:3])}, {os.cpu_count()} processors' + (f', with {peer.address}' if peer else ''))
        if self.played_by:
            self.note('host', f'SOFTWARE: results are real, times are not a card\'s: {self.played_by}')
        if not peer:
            self.note('host', 'left out: all that takes two hosts: neither --peer nor --shared names another one')

    def find_softefa(self):
        """Whether the cards are those of tests/softefa: --softefa, or as the loader is told."""
        if self.options.softefa:
            path = ':'.join(filter(None, [str(self.build / SOFTEFA), os.environ.get('LD_LIBRARY_PATH')]))
            self.base = {'LD_LIBRARY_PATH': path, 'FI_EFA_ENABLE_SHM_TRANSFER': '0'}
            for name, value in (('SOFTEFA_NICS', '2'), ('SOFTEFA_FABRIC', f'nic-check-{os.getpid()}')):
                self.base[name] = os.environ.get(name, value)
        elif nccl_host.ask(ASK_CARDS)[0] != 'softefa':
            return False
        self.played_by, self.patience, self.other_host = 'the software EFA device', SOFTWARE, {'SOFTEFA_HOST': 'nic-check-b'}
        self.base.setdefault('SOFTEFA_HOST', os.environ.get('SOFTEFA_HOST', 'nic-check-a'))
        return True

    def clean_up(self):
        """The software device's files of this run alone."""
        if self.options.softefa and 'SOFTEFA_FABRIC' not in os.environ:
            folder = pathlib.Path(os.environ.get('SOFTEFA_DIR', '/dev/shm'))
            shutil.rmtree(folder / f'softefa-{os.getuid()}' / self.base['SOFTEFA_FABRIC'], ignore_errors=True)

    def environment(self, settings=None):
        return {**os.environ, 'WEFT_LOCAL': 'off', **self.base, **(settings or {})}

    def over(self, fabric):
        """Settings with which that fabric carries all, also between two processes of this host, each card being a device."""
        efa = {'FI_EFA_ENABLE_SHM_TRANSFER': '0'} if 'efa' in fabric else {}
        return {'WEFT_PROVIDER': fabric, 'WEFT_MERGE_NICS': 'off', **efa, **self.patience}

    def settings_there(self, settings):
        """The same on the other host, where nothing of this process's environment is but what decides how weft speaks."""
        ours = {name: value for name, value in os.environ.items() if name.startswith(('WEFT_', 'NCCL_', 'FI_'))}
        return {**ours, 'WEFT_LOCAL': 'off', **self.base, **settings, **self.other_host}

    def tried(self):
        """{fabric: cards} that parts go over: libfabric's way over verbs only where weft's own takes none."""
        return {fabric: names for fabric, names in self.fabrics.items() if fabric != 'ofi:verbs;ofi_rxm' or 'verbs' not in self.fabrics}

    def merged(self, fabric):
        """(settings, arguments) that make one device of up to 4 cards: as NCCL does, or by name those that are on no bus, as NCCL would lose these."""
        names = self.fabrics[fabric][:MOST_CARDS]
        if len(names) < 2:
            return self.over(fabric), []
        if fabric == 'verbs' and any(nic_card.is_software(name.partition(':')[0]) for name in names):
            return {**self.over(fabric), 'WEFT_MERGE_NICS': ','.join(names)}, []
        return self.over(fabric), ['--merge']

    def pair(self, program, *more):
        """A test program whose second process plays another host where software can play one."""
        others = [word for name, value in self.other_host.items() for word in ('--other', f'{name}={value}')]
        return [self.build / SYSTEM / program, '--plugin', self.plugin, '--abi', '12', '--mode', 'processes', *others, *more]


def cut_short(check, head, what, statuses, took):
    """True where it had less time than it may need, and did not end in it: that is said, and says nothing about the card."""
    if not check.cut or 124 not in statuses:
        return False
    check.note(head, f'left out: {what} had not ended after the {took:.0f} s that were left for it')
    return True


def judge_program(check, head, what, statuses, texts, took):
    """A test program ended; cases that it skipped are told with its reasons."""
    if statuses == [SKIP]:
        check.note(head, f'left out: {what}: {(texts[0].strip().splitlines() or ["no reason"])[-1]}')
        return
    if cut_short(check, head, what, statuses, took):
        return
    told = [line for line in re.findall(r'^FAILED .*$', texts[0], re.M) if ' at ' in line]
    wrong = [f'{told[0]}\n{last_lines(texts[0])}'] if told and any(statuses) else reasons(statuses, texts)
    check.judge(head, what, wrong, took)
    for reason in sorted(set(re.findall(r'^skip .*? s  (.*)$', texts[0], re.MULTILINE))):
        check.note(head, f'left out: cases of {what}: {reason}')


def suites(check):
    """weft's own test programs that drive the plugin as NCCL does, two processes over each fabric; up to 4 cards are one device."""
    if without_cards(check, 'suites'):
        return
    if check.peer:
        check.note('suites', 'both ends are on this host; between the hosts perf compares every element')
    for fabric in check.tried():
        settings, merge = check.merged(fabric)
        for program in SUITES:
            statuses, texts, took = check.ranks(f'suites {fabric} {program}', [check.pair(program, *merge)], [check.environment(settings)], SUITE_SECONDS)
            judge_program(check, 'suites', f'{program} over {fabric}', statuses, texts, took)
    for fabric in set(check.fabrics) - set(check.tried()):
        check.note('suites', f'left out: {fabric}: verbs takes the same cards')


# GPU memory.


def gpu_settings(check, fabric):
    """(settings, why there is no GPU). Beside the software EFA device the software GPU plays one."""
    found = nccl_host.find_gpus()
    if found.names or not check.softefa:
        return check.over(fabric), '' if found.names else f'no GPU: {found.why}'
    path = ':'.join(filter(None, [str(check.build / 'tests' / 'softgpu'), check.environment().get('LD_LIBRARY_PATH')]))
    return {**check.over(fabric), 'LD_LIBRARY_PATH': path, 'SOFTGPU_DMABUF': 'card', 'SOFTGPU_STRICT': '1', 'SOFTGPU_ORDERED': '0'}, ''


def gpu(check):
    """GPU memory as NCCL registers it, by address and by dma-buf, with each fabric's cards; and what each pair of GPU and card is."""
    if without_cards(check, 'gpu'):
        return
    for fabric in check.tried():
        settings, why = gpu_settings(check, fabric)
        if why:
            check.note('gpu', f'left out: {fabric}: {why}')
            continue
        said, wrong, took = nic_card.ask(check, settings)
        if not said:
            check.judge('gpu', f'weft info over {fabric}', wrong, took)
            continue
        if not any({'cuda', 'dmabuf'} & set(device['pointers']) for device in said['devices']):
            reason = next((device['gpuDirect'] for device in said['devices'] if device['gpuDirect']), said['gpuDirect']['noDriver'] or 'weft info says no reason')
            check.note('gpu', f'left out: {fabric} takes no GPU memory, so data goes through the host\'s: {reason}')
            continue
        for each in said['gpuDirect']['pairs'][:4]:
            check.note('gpu', f'{fabric}: {each["device"]} and GPU {each["gpu"]} {each["gpuName"]}: {"" if each["on"] else "off, "}{each["by"]}: {each["why"]}')
        statuses, texts, took = check.ranks(f'gpu {fabric}', [check.pair('gpu-memory', *check.merged(fabric)[1])],
                                            [check.environment(settings)], 60)
        judge_program(check, 'gpu', f'registration and transfer of GPU memory over {fabric}', statuses, texts, took)


# A rail that is lost.

INJECTED = (('works of one card fail', 'fault=kill,rail=1,nth=50,count=0'), ('works of one card vanish', 'fault=killSilent,rail=1,nth=50,count=0'))


def failover(check):
    """One of several cards fails in the middle, by the fault injector above the driver, which takes no right; the software device's card dies indeed."""
    if without_cards(check, 'failover'):
        return
    for fabric, names in check.tried().items():
        if len(names) < 2:
            check.note('failover', f'left out: {fabric} has one card, {names[0]}, so there is no other to go on with')
            continue
        for what, rule in INJECTED:
            settings, merge = check.merged(fabric)
            settings = {**settings, 'WEFT_PROVIDER': f'fault({rule}):{fabric}'}
            command = [check.build / 'tools' / 'weft', 'perf', 'sendrecv', '-n', '2', *merge, '-b', '64K', '-e', '1M', '-f', '16', '--iters', '40', '-v', '--timeout', '60',
                       '--plugin', check.build / WITH_FAULTS]
            statuses, texts, took = check.ranks(f'failover {fabric} {what}', [command], [check.environment(settings)], 60)
            if cut_short(check, 'failover', f'{what}, over {fabric}', statuses, took):
                continue
            wrong = reasons(statuses, texts)
            if not wrong and not re.search(LEFT, texts[0]):
                wrong = [f'no line of the log says "{LEFT}": the fault hit nothing']
            check.judge('failover', f'{what}, the others carry all, over {fabric}', wrong, took)
        if check.softefa:
            card_dies(check, fabric)
        else:
            check.note('failover', 'a card that loses its link: see flap')


def card_dies(check, fabric):
    """The second card of one virtual host takes the work along that it has."""
    folder = check.folder_for('failover card dies')
    control, then = folder / 'faults', folder / 'faults.then'
    control.write_text('delay=2ms')
    then.write_text('delay=2ms nic1.dying=1')
    killing = f'(sleep 0.02; mv {shlex.quote(str(then))} {shlex.quote(str(control))}) &'
    command = check.pair('faults-rails', '--merge', '--break', killing, '--other', 'SOFTEFA_CONTROL=')
    statuses, texts, took = check.ranks(f'failover {fabric} card dies', [command], [check.environment({**check.over(fabric), 'SOFTEFA_CONTROL': str(control)})], 60)
    judge_program(check, 'failover', f'a card dies, over {fabric}', statuses, texts, took)
