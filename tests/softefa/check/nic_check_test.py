#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""scripts/nic-check over the software EFA device: what it finds right, that it reports cards that die, and that nothing is said to be wrong that was only
left out or cut short. And by itself: made-up cards in sysfs, programs of others that are scripts, and an `ip` that writes down what it is told.

usage: nic_check_test.py BUILD
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import types
import unittest
import unittest.mock

TOP = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(TOP / 'scripts' / 'lib'))
import nic_card
import nic_flap
import nic_nccl
import nic_parts
import nic_peer
import nic_perf

BUILD = pathlib.Path(sys.argv[1]).resolve()
SCRIPT = TOP / 'scripts' / 'nic-check'
SECONDS = 640
TASKS = ('SLURM_PROCID', 'SLURM_NTASKS', 'OMPI_COMM_WORLD_RANK', 'OMPI_COMM_WORLD_SIZE', 'PMI_RANK', 'PMI_SIZE', 'RANK', 'WORLD_SIZE')
# No settings of whoever runs this.
CLEAN = {name: value for name, value in os.environ.items()
         if not name.startswith(('WEFT_', 'NCCL_', 'SOFTGPU_', 'SOFTEFA_', 'FI_')) and name not in ('LD_LIBRARY_PATH', *TASKS)}
CLEAN['WEFT_CONF'] = ''
MOST_LINES = 60
# ssh as far as nic-check uses it: options have a value each, then come host and command.
SSH = '#!/bin/bash\nwhile [[ $1 == -* ]]; do shift 2; done\nshift\nexec bash -c "$*"\n'


class Folder(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)

    def program(self, name, text):
        """A script that is found before any other program of that name."""
        file = self.folder / 'bin' / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
        file.chmod(0o755)
        return {'PATH': f'{file.parent}:{os.environ["PATH"]}'}

    def run_it(self, *arguments, **settings):
        """(exit status, what it said)"""
        done = subprocess.run([sys.executable, SCRIPT, '--build', BUILD, *map(str, arguments)], env={**CLEAN, **settings}, capture_output=True, text=True,
                              timeout=SECONDS, check=False, cwd=self.folder)
        return done.returncode, done.stdout + done.stderr

    def summary(self):
        return (self.folder / 'nic-check-out' / 'summary.txt').read_text()


class OverSoftefa(Folder):
    def test_what_can_be_done_there(self):
        status, said = self.run_it('--softefa', '--only', 'card,discovery,perf,failover,gpu,nccl', '--nccl', BUILD / 'tests' / 'nccl' / 'libnccl-static.so')
        self.assertEqual(status, 0, said)
        summary = self.summary()
        self.assertLessEqual(len(summary.splitlines()), MOST_LINES)
        for words in ('SOFTWARE', 'takes rdmap16s27, rdmap32s27', 'refused verbs rdmap16s27:1', 'right weft info', r'right half a round trip of 8 B over ofi:efa\S* rdmap16s27: [1-9]',
                      'right 1 MiB each way at once', 'right works of one card vanish', 'right a card dies', r'nccl +left out', 'left out: all that takes two hosts',
                      'all right after .* \\(on the software EFA device\\)'):
            self.assertRegex(summary, words)
        self.assertTrue((self.folder / 'nic-check-out' / 'failover-ofi-efa-works-of-one-card-fail' / '0.log').exists() or 'efa-direct' in summary)

    def test_suites_that_have_no_time(self):
        """They are not wrong."""
        status, said = self.run_it('--softefa', '--only', 'suites', '--seconds', '12')
        self.assertEqual(status, 0, said)
        self.assertRegex(said, 'left out: .* had not ended after|left out, or cut short')

    def test_flap(self):
        status, said = self.run_it('--softefa', '--only', 'flap')
        self.assertEqual(status, 0, said)
        self.assertEqual(said.count('right the software network goes down and up'), 2 * 2, said)  # when it is found, and in the summary

    def test_no_card(self):
        status, said = self.run_it('--softefa', SOFTEFA_NICS='0')
        self.assertEqual((status, 'there is no card that weft drives' in said.splitlines()[-1]), (2, True), said)

    def test_a_card_that_is_dead(self):
        status, said = self.run_it('--softefa', '--only', 'discovery,suites,perf,failover,flap,gpu,nccl', SOFTEFA_FAULTS='nic1.dead=1')
        self.assertEqual(status, 1, said)
        self.assertRegex(said, 'WRONG weft info .*rdmap32s27:1: the port is down')

    def test_a_card_that_dies(self):
        status, said = self.run_it('--softefa', '--only', 'perf', SOFTEFA_NICS='1', SOFTEFA_FAULTS='dying=1')
        self.assertEqual(status, 1, said)
        self.assertIn('WRONG half a round trip of 8 B', said)
        self.assertIn('NOT all right', self.summary().splitlines()[-1])

    def test_another_host_by_ssh(self):
        status, said = self.run_it('--softefa', '--only', 'discovery,perf', '--peer', 'somebody@localhost', **self.program('ssh', SSH))
        self.assertEqual(status, 0, said)
        for words in ('between this host and localhost', 'right weft info on localhost', 'right a put of 8 B with its signal'):
            self.assertIn(words, said)

    def test_another_host_that_ssh_does_not_reach(self):
        status, said = self.run_it('--softefa', '--peer', 'nowhere', **self.program('ssh', '#!/bin/sh\necho "Permission denied (publickey)." >&2\nexit 255\n'))
        self.assertEqual((status, 'Permission denied' in said.splitlines()[-1]), (2, True), said)

    def test_another_host_of_a_launcher(self):
        shared = self.folder / 'shared'
        shared.mkdir()
        fabric = {'SOFTEFA_FABRIC': f'nic-check-test-{os.getpid()}', 'WORLD_SIZE': '2'}
        self.addCleanup(shutil.rmtree, f'/dev/shm/softefa-{os.getuid()}/{fabric["SOFTEFA_FABRIC"]}', True)
        with subprocess.Popen([sys.executable, SCRIPT, '--build', BUILD, '--softefa', '--shared', shared], cwd=self.folder,
                              env={**CLEAN, **fabric, 'RANK': '1', 'WEFT_NIC_CHECK_ADDRESS': 'localhost'}) as other:
            try:
                status, said = self.run_it('--softefa', '--only', 'perf', '--shared', shared, RANK='0', **fabric)
                self.assertEqual(status, 0, said)
                self.assertIn('right half a round trip of 8 B', said)
                self.assertEqual(other.wait(20), 0)
            finally:
                other.kill()

    def test_bad_arguments(self):
        for arguments, words in ((['--only', 'nothing'], 'there is no part nothing'), (['--build', self.folder], 'has no plugin/libnccl-net-weft.so'),
                                 (['--seconds', '601'], '--seconds are 10 to 600'), (['--peer=-oProxyCommand=x'], '--peer names a host'),
                                 (['--shared', self.folder], 'none of their variables is set')):
            status, said = self.run_it(*arguments)
            self.assertEqual((status, words in said), (2, True), said)


class ByItself(Folder):
    def new_check(self, **more):
        options = types.SimpleNamespace(flap=True)
        values = {'options': options, 'peer': None, 'softefa': False, 'fabrics': {'verbs': ['mlx5_0:1']}, 'lines': [], 'cut': False, 'other_host': {},
                  'left': lambda most: most, 'environment': lambda settings=None: {**os.environ, **(settings or {})}, 'over': lambda fabric: {},
                  'folder_for': lambda name: self.folder}
        check = types.SimpleNamespace(**{**values, **more})
        check.note = lambda head, text: check.lines.append(f'{head} {text}')
        return check

    def sysfs(self, **files):
        """A ConnectX in a made-up sysfs, and its interface."""
        card = self.folder / 'infiniband' / 'mlx5_0'
        named = {'hca_type': 'MT4129', 'fw_ver': '28.39.1002', 'ports/1/state': '4: ACTIVE', 'ports/1/rate': '400 Gb/sec (4X NDR)', 'ports/1/link_layer': 'Ethernet',
                 'ports/1/gid_attrs/types/0': 'IB/RoCE v1', 'ports/1/gid_attrs/types/10': 'RoCE v2', 'ports/1/gid_attrs/types/3': 'RoCE v2',
                 'ports/1/gids/3': 'fe80:0000:0000:0000:0000:0000:0000:0001', 'ports/1/gids/10': '0000:0000:0000:0000:0000:ffff:0a00:0001',
                 'ports/1/gid_attrs/ndevs/3': 'lo', 'ports/1/hw_counters/out_of_sequence': '17', 'device/current_link_width': '16', **files}
        for name, text in named.items():
            (card / name).parent.mkdir(parents=True, exist_ok=True)
            (card / name).write_text(text + '\n')
        patch = unittest.mock.patch('nic_card.SYSFS', card.parent)
        patch.start()
        self.addCleanup(patch.stop)

    def test_what_a_card_says_of_itself(self):
        self.sysfs()
        said, line = nic_card.describe('mlx5_0')
        for words in ('MT4129', 'firmware 28.39.1002', '4: ACTIVE', '400 Gb/sec', ' x16 '):
            self.assertIn(words, line)
        self.assertTrue(any('out_of_sequence' in each and '17' in each for each in said))
        self.assertEqual((nic_card.cards(), nic_card.netdevs('mlx5_0'), nic_card.roce_gid('mlx5_0', 1)), (['mlx5_0'], ['lo'], '10'))

    def test_cards_that_nothing_takes(self):
        """Those that are kept from weft are no fault."""
        providers = [{'provider': 'verbs', 'devices': [{'name': 'mlx5_1:1'}], 'failure': '', 'refused': [
            {'what': 'verbs mlx5_0:1', 'why': 'the port is down'}, {'what': 'verbs mlx5_2:1', 'why': 'WEFT_HCA leaves it out'},
            {'what': 'verbs mlx5_1:2', 'why': 'the port is down'}]}]
        self.sysfs()
        self.assertEqual(nic_card.cards_refused({'providers': providers}), ['verbs mlx5_0:1: the port is down'])
        self.sysfs(**{'ports/1/gid_attrs/ndevs/3': 'of-another-namespace'})
        self.assertEqual(nic_card.cards_refused({'providers': providers}), [])

    def test_figures_of_perftest(self):
        """A server that listens late, figures of the last line, and what a program that gives none says."""
        with unittest.mock.patch.dict(os.environ, self.program('ib_write_lat', f'''#!/bin/sh
case "$*" in *127.0.0.1) [ -e {self.folder}/again ] || {{ touch {self.folder}/again; exit 1; }}
echo " #bytes #iterations t_min"; echo " 8 1000 1.10 9.00 1.23 1.25";; *) exec sleep 20;; esac
''')):
            self.assertEqual(nic_perf.perftest(self.new_check(), 'mlx5_0:1', 'ib_write_lat')[4], 1.23)
        with unittest.mock.patch.dict(os.environ, self.program('ib_write_lat', '#!/bin/sh\necho "Couldn\'t get device attributes" >&2\nexit 1\n')):
            with self.assertRaisesRegex(nic_perf.ToolFailed, 'device attributes|status 1'):
                nic_perf.perftest(self.new_check(), 'mlx5_0:1', 'ib_write_lat')

    def test_a_link_is_not_set_down_unless(self):
        """It is allowed, by root, and nothing else goes through it."""
        self.sysfs()
        routes = self.program('ip', '#!/bin/sh\necho "default via 10.0.0.1 dev lo proto dhcp"\n')
        for options, uid, environment, words in ((False, 0, {}, '--flap has to allow it'), (True, 1000, {}, 'takes root'), (True, 0, routes, 'has the default route')):
            with unittest.mock.patch('os.geteuid', return_value=uid), unittest.mock.patch.dict(os.environ, environment):
                link, why = nic_flap.link_of(self.new_check(options=types.SimpleNamespace(flap=options)), 'verbs', 'mlx5_0:1')
            self.assertEqual((link, words in why), (None, True), why)

    def test_a_link_comes_up_again(self):
        """Whatever happens while it is down."""
        calls = self.folder / 'calls'
        ended = types.SimpleNamespace(sleep=unittest.mock.Mock(side_effect=SystemExit))
        with unittest.mock.patch.dict(os.environ, self.program('ip', f'#!/bin/sh\necho "$@" >>{calls}\n')), unittest.mock.patch('nic_flap.time', ended):
            with self.assertRaises(SystemExit):
                nic_flap.Interface('no-such-link').flap()
        self.assertEqual(calls.read_text(), 'link set dev no-such-link down\nlink set dev no-such-link up\n')

    def over_softefa(self):
        """A check of its own, in this process."""
        for patch in (unittest.mock.patch.dict(os.environ, CLEAN, clear=True), unittest.mock.patch('builtins.print')):
            patch.start()
            self.addCleanup(patch.stop)
        check = nic_parts.Check(types.SimpleNamespace(out=self.folder, build=BUILD, seconds=200, softefa=True, flap=False))
        self.addCleanup(check.clean_up)
        return check

    def test_suites(self):
        """A program that passes, one that fails and tells, one that is skipped, and one that hangs."""
        system = self.folder / 'build' / nic_parts.SYSTEM
        system.mkdir(parents=True)
        shutil.copy(BUILD / nic_parts.SYSTEM / 'conformance-groups', system)
        for name, text in (('fails', 'echo "FAILED sizes (side 1) at end.cc:20: byte 7 is wrong"; exit 1'), ('skipped', 'echo "no such thing here"; exit 77'),
                           ('hangs', 'exec sleep 600')):
            (system / name).write_text(f'#!/bin/sh\n{text}\n')
            (system / name).chmod(0o755)
        check = self.over_softefa()
        check.build = self.folder / 'build'
        with unittest.mock.patch('nic_parts.SUITES', ('conformance-groups', 'fails', 'skipped')):
            check.run('suites', nic_parts.suites, 120)
        with unittest.mock.patch('nic_parts.SUITES', ('hangs',)), unittest.mock.patch('nic_parts.SUITE_SECONDS', 1):
            check.run('suites', nic_parts.suites, 60)
        said = '\n'.join(check.lines)
        for words in ('right conformance-groups over ofi:efa', 'WRONG fails over .*byte 7 is wrong', 'left out: skipped over .*no such thing here',
                      'WRONG hangs over .*did not end in time'):
            self.assertRegex(said, words)

    def test_nccl_over_each_transport(self):
        """Ranks that answer as nccl-time does: over weft, over aws-ofi-nccl, and none where NCCL's own transport takes no card."""
        program = self.folder / 'tests' / 'nccl' / 'nccl-time'
        program.parent.mkdir(parents=True)
        program.write_text('''#!/bin/sh
[ "$NCCL_NET" != IB ] || { echo "NCCL WARN Failed to initialize any NET plugin" >&2; exit 1; }
echo "Channel 00/0 : 0[0] -> 1[0] [send] via NET/${NCCL_NET-AWS Libfabric}/0" >>"$NCCL_DEBUG_FILE"
echo "ready 23007 100 100"
while read -r word rest; do case $word in check) echo right;; *) echo "done ${TIME-400}";; esac; done
''')
        program.chmod(0o755)
        host = types.SimpleNamespace(software=False, library=types.SimpleNamespace(version=23007, file='/nccl'), runtime_folder='', device=lambda rank: 0,
                                     environment=lambda plugin: {'NCCL_NET_PLUGIN': plugin, **({'TIME': '800'} if plugin == '/aws' else {})})
        judged = []
        check = self.new_check(build=self.folder, plugin='/weft.so', base={}, wrong=[], tried=lambda: {'verbs': ['mlx5_0:1']}, over=lambda fabric: {'WEFT_PROVIDER': fabric},
                               options=types.SimpleNamespace(aws_ofi='/aws', nccl='', python='python3'), judge=lambda *words: judged.append(words))
        with unittest.mock.patch('nccl_host.Host', return_value=host):
            nic_nccl.nccl(check)
        said = '\n'.join(check.lines)
        self.assertRegex(said, r'left out: built-in: .*ended')
        self.assertRegex(said, r'all_reduce +8 B +weft 20.0 us, aws-ofi-nccl 40.0 us \(2.00\)')
        self.assertEqual((judged, check.wrong), ([('nccl', 'every element of every result', [], 0)], []))

    def test_a_network_that_stays_down(self):
        """What outlasts the card's patience ends the job, and that is told."""
        check = self.over_softefa()
        with unittest.mock.patch('nic_flap.SILENT_SECONDS', 8):
            fabric = next(iter(check.tried()))
            link, _ = nic_flap.link_of(check, fabric, 'rdmap16s27')
            nic_flap.under_traffic(check, fabric, link, 'rdmap16s27 alone', (check.over(fabric), []))
        self.assertTrue(any('WRONG the software network' in line for line in check.lines), check.lines)

    def test_what_the_other_task_runs_has_an_end(self):
        shared = self.folder / 'shared'
        shared.mkdir()
        nic_peer.write_whole(shared / '1.job', '{"command": ["sleep", "60"], "settings": {}, "seconds": 0.5}')
        nic_peer.write_whole(shared / '2.job', '{"command": ["nowhere/program"], "settings": {}, "seconds": 5}')
        begin = time.monotonic()
        nic_peer.serve(shared, BUILD, 2)
        self.assertLess(time.monotonic() - begin, 20)
        peer = nic_peer.SharedPeer(shared)
        self.assertEqual([nic_peer.SharedJob(shared, number).poll() for number in (1, 2)], [-9, 127])
        self.assertIn('nowhere/program', nic_peer.SharedJob(shared, 2).text())
        self.assertEqual(peer.build, BUILD)


unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2, warnings='ignore')
