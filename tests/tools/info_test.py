#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""What `weft info` says, against settings made up here and against the plugin itself.

usage: info_test.py WEFT [PLUGIN LAYOUT]

With the plugin and NCCL's measured layout (tests/abi/layout_data.json) the properties shown are compared with those
that the plugin writes when it is asked as NCCL asks.
"""
import ctypes
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

WEFT = sys.argv[1]
PLUGIN, LAYOUT = sys.argv[2:4] if len(sys.argv) > 3 else (None, None)
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(('WEFT_', 'NCCL_'))}
CLEAN['WEFT_CONF'] = ''  # whatever this machine has
POINTERS = {1: 'host', 2: 'cuda', 4: 'dmabuf'}


def info(*arguments, **settings):
    return subprocess.run([WEFT, 'info', *arguments], env={**CLEAN, **settings}, capture_output=True, text=True,
                          check=False, timeout=60)


def document(*arguments, **settings):
    done = info('--json', *arguments, **settings)
    return done.returncode, json.loads(done.stdout)


JOB = pathlib.Path(__file__).resolve().parents[2] / 'tools' / 'plan' / 'examples' / 'gpt-1b3.job.json'


class TopologyTest(unittest.TestCase):
    """Files for NCCL_TOPO_FILE, by the grammar of NCCL's parser: a system of cpus, each with trees of pci."""

    def devices(self, node):
        """(class, classes of what shares its bridge) of each device below a node."""
        for child in node:
            self.assertEqual(child.tag, 'pci')
            self.assertRegex(child.get('busid'), r'^[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.\d$')
            if len(child):
                yield from self.devices(child)
            else:
                yield child.get('class'), [other.get('class') for other in node]

    def read(self, name):
        done = info('--topology', name)
        self.assertEqual((done.returncode, done.stderr), (0, ''))
        system = xml.etree.ElementTree.fromstring(done.stdout)
        self.assertEqual((system.tag, system.get('version')), ('system', '1'))
        cpus = list(system)
        self.assertEqual([(cpu.tag, cpu.get('numaid')) for cpu in cpus], [('cpu', str(i)) for i in range(len(cpus))])
        busy = [int(cpu.get('affinity').replace(',', ''), 16) for cpu in cpus]
        self.assertEqual(sum(bin(mask).count('1') for mask in busy), bin(sum(busy)).count('1'), 'a processor in two nodes')
        return [device for cpu in cpus for device in self.devices(cpu)]

    def test_machines_have_their_gpus_and_cards(self):
        gpu, infiniband, ethernet = '0x030200', '0x020700', '0x020000'
        for name, gpus, kind, cards in (('nc-a100-v4', 4, infiniband, 0), ('ndv2', 8, infiniband, 1), ('nd-a100-v4', 8, infiniband, 8),
                                        ('nd-h100-v5', 8, infiniband, 8), ('p4d.24xlarge', 8, ethernet, 4), ('p4de.24xlarge', 8, ethernet, 4)):
            with self.subTest(name):
                classes = [device for device, _ in self.read(name)]
                self.assertEqual((classes.count(gpu), classes.count(kind)), (gpus, cards))

    def test_each_gpu_of_a_large_machine_has_a_card_beside_it(self):
        for name in ('nd-a100-v4', 'nd-h100-v5', 'p4d.24xlarge'):
            for device, beside in self.read(name):
                self.assertTrue({'0x030200'} < set(beside), f'{name}: {device} among {beside}')

    def test_others_are_answered(self):
        for name, words, status in (('p5.48xlarge', 'needs no file', 1), ('nd-a100v4', 'the nearest is nd-a100-v4', 2), ('zz', 'known are', 2)):
            done = info('--topology', name)
            self.assertEqual((done.returncode, done.stdout), (status, ''))
            self.assertIn(words, done.stderr)


class InfoTest(unittest.TestCase):
    def test_a_named_provider_is_the_one_taken(self):
        status, found = document(WEFT_PROVIDER='loop', WEFT_LOOP_RAILS='3')
        self.assertEqual((status, found['taken'], found['failure']), (0, 'loop', ''))
        self.assertEqual([device['name'] for device in found['devices']], ['loop0', 'loop1', 'loop2'])
        self.assertEqual(found['providers'][0]['provider'], 'loop')
        self.assertEqual(len(found['providers'][0]['devices']), 3)

    def test_the_provider_taken_is_marked_by_the_name_it_was_given(self):
        for named in ('loop(rails=2)', 'fault(seed=1):loop'):
            marked = [line for line in info(WEFT_PROVIDER=named).stdout.splitlines() if line.startswith('>')]
            self.assertEqual(marked, [f'> {named}'])

    def test_how_peers_on_this_host_are_reached_is_said_in_words(self):
        for settings, words in (({'WEFT_PROVIDER': 'local'}, 'through shared memory, which is all that this provider is'),
                                ({'WEFT_PROVIDER': 'loop', 'WEFT_LOCAL': 'off'}, 'over the network, as all others: WEFT_LOCAL is off'),
                                ({'WEFT_PROVIDER': 'loop'}, 'over the network, as all others: WEFT_PROVIDER names one for all, and WEFT_LOCAL is not on')):
            status, found = document(**settings)
            self.assertEqual((status, found['devices'][0]['sameHost']), (0, words))

    def test_unset_says_why_each_better_provider_was_not_taken(self):
        status, found = document()
        self.assertEqual(status, 0, found['failure'])
        names = [provider['provider'] for provider in found['providers']]
        self.assertIn(found['taken'], names)
        for provider in found['providers'][:names.index(found['taken'])]:
            self.assertTrue(provider['failure'], provider)
        self.assertTrue(all(device['speedMbps'] > 0 for device in found['devices']))

    def test_an_image_without_libraries_of_fabrics_is_good_for_tcp(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in ('libibverbs.so.1', 'libefa.so.1'):  # the loader finds these first, and they are no libraries
                with open(os.path.join(folder, name), 'w', encoding='ascii') as file:
                    file.write('no library\n' * 100)
            paths = os.pathsep.join(filter(None, [folder, os.environ.get('LD_LIBRARY_PATH')]))
            done = info('--image', '--json', WEFT_LIBFABRIC=os.path.join(folder, 'libfabric.so.1'), LD_LIBRARY_PATH=paths)
            findings = {found['what']: found for found in json.loads(done.stdout)['findings']}
            for lacking in ('libfabric', 'rdma-core', 'EFA'):
                self.assertEqual(findings[lacking]['kind'], 'note', findings[lacking])
            self.assertEqual(findings['network']['kind'], 'ok', findings['network'])
            self.assertIn('TCP over plain sockets; ', findings['network']['says'])
            self.assertEqual(done.returncode, 0, done.stdout)

    @unittest.skipIf(os.getuid() != 0, 'a network of its own wants root')
    def test_a_host_without_interface_has_no_network(self):
        done = subprocess.run(['unshare', '-n', WEFT, 'info', '--json'], env=CLEAN, capture_output=True, text=True, check=False, timeout=60)
        if 'unshare: ' in done.stderr:
            self.skipTest(done.stderr)
        self.assertEqual(done.returncode, 1, done.stdout)
        offered = [one['provider'] for one in json.loads(done.stdout)['providers'] if one.get('devices')]
        self.assertEqual(offered, [])

    def test_a_provider_that_fails_is_never_replaced(self):
        status, found = document(WEFT_PROVIDER='ofi:nosuch')
        self.assertEqual((status, found['taken'], found['devices']), (1, '', []))
        self.assertIn('nosuch', found['failure'])
        text = info(WEFT_PROVIDER='ofi:nosuch')
        self.assertEqual(text.returncode, 1)
        self.assertIn('nothing for NCCL to use\n', text.stdout)
        self.assertIn('error: ', text.stderr)  # the reason is where weft(1) says
        self.assertIn('nosuch', text.stderr)

    def test_a_provider_that_loses_bytes_is_refused_in_words(self):
        status, found = document(WEFT_PROVIDER='ofi:sockets')
        self.assertEqual((status, found['taken'], found['devices']), (1, '', []))
        # libfabric 2 has none.
        self.assertRegex(found['failure'], 'ofi:net carries messages over the same interfaces|nothing for "sockets"|shows no "sockets"')

    def test_a_file_sets_what_the_environment_leaves_unset(self):
        with tempfile.NamedTemporaryFile('w', suffix='.conf') as file:
            file.write('# an image\nWEFT_PROVIDER = loop\nWEFT_LOOP_RAILS = 2\nWEFT_FLUHS = 1\n')
            file.flush()
            status, found = document(WEFT_CONF=file.name, WEFT_LOOP_RAILS='3')
            self.assertEqual((status, found['taken'], len(found['devices'])), (0, 'loop', 3))
            rows = {row['name']: (row['origin'], row['where']) for row in found['config']}
            self.assertEqual(rows['WEFT_PROVIDER'], ('file', f'{file.name}:2'))
            self.assertEqual(rows['WEFT_LOOP_RAILS'], ('environment', 'WEFT_LOOP_RAILS'))
            self.assertEqual(rows['WEFT_FLUSH'], ('default', ''))
            self.assertIn(f'{file.name}:4: WEFT_FLUHS is not a setting of weft; the nearest is WEFT_FLUSH', found['unknown'])
            file.write('WEFT_FLUSH = yes\n')
            file.flush()
            failed = info(WEFT_CONF=file.name)
            self.assertEqual(failed.returncode, 1)
            self.assertIn(f'{file.name}:5: WEFT_FLUSH is "yes"; allowed: 0 or 1', failed.stderr)
            missing = info(WEFT_CONF=file.name + '.none')
            self.assertEqual(missing.returncode, 1)
            self.assertIn(file.name + '.none cannot be read: there is no such file', missing.stderr)

    def test_the_sample_file_is_read_back_without_a_word(self):
        sample = info('--config', '--sample').stdout
        with tempfile.NamedTemporaryFile('w', suffix='.conf') as file:
            file.write(sample.replace('\n#WEFT', '\nWEFT'))
            file.flush()
            status, found = document('--config', WEFT_CONF=file.name)
            self.assertEqual((status, found['unknown']), (0, []))
            self.assertEqual({(row['origin'], row['changed']) for row in found['config']}, {('file', False)})

    def test_the_tuner_says_that_it_has_no_numbers(self):
        done = info('--tuner', WEFT_PROVIDER='loop')
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn('no published or measured numbers for', done.stdout)
        self.assertIn('LL128 between nodes is priced out', done.stdout)
        status, found = document('--tuner', WEFT_PROVIDER='loop')
        self.assertEqual((status, found['platform'], found['choices'], found['aside']), (0, None, [], False))

    def test_the_tuner_names_the_source_of_each_number(self):
        status, found = document('--tuner', '--machine', 'p5.48xlarge', '--nodes', '16')
        self.assertEqual((status, found['platform'], found['ranks']), (0, 'p5', 128))
        self.assertTrue(all(number['source'] and number['value'] > 0 for number in found['numbers']))
        self.assertEqual({choice['collective'] for choice in found['choices']},
                         {'AllReduce', 'AllGather', 'ReduceScatter'})
        self.assertNotIn('LL128', {choice['protocol'] for choice in found['choices']})
        text = info('--tuner', '--machine', 'p5.48xlarge').stdout
        for number in found['numbers']:
            self.assertIn(number['source'], text)

    def test_the_tuner_stands_aside_for_the_user(self):
        for name in ('NCCL_ALGO', 'NCCL_PROTO', 'NCCL_TUNER_PLUGIN'):
            status, found = document('--tuner', '--machine', 'p5.48xlarge', **{name: 'x'})
            self.assertEqual((status, found['aside'], found['platform'], found['choices']), (0, True, None, []))
            self.assertIn(name, found['reasons'][0])
        self.assertIn('WEFT_TUNER is 0', info('--tuner', WEFT_PROVIDER='loop', WEFT_TUNER='0').stdout)

    def test_the_tuner_takes_no_shape_that_cannot_be(self):
        for shape in (('--nodes', '-1'), ('--nodes', '0'), ('--nodes', '4', '--ranks', '2'), ('--ranks', '0')):
            done = info('--tuner', '--machine', 'p5.48xlarge', *shape)
            self.assertNotEqual(done.returncode, 0, shape)
            self.assertRegex(done.stdout + done.stderr, '--(nodes|ranks)')
            self.assertNotIn('cheapest', done.stdout)

    def test_a_machine_without_numbers_names_those_that_have_some(self):
        done = info('--tuner', '--machine', 'p5.48xlrge')
        self.assertEqual((done.returncode, done.stdout), (2, ''))
        self.assertIn('there are numbers of p5.48xlarge, p5e.48xlarge, p5en.48xlarge only; the nearest is p5.48xlarge', done.stderr)

    def test_a_misspelt_provider_gets_the_nearest_one(self):
        for spec, nearest in (('tpc', 'tcp'), ('verb', 'verbs'), ('ofi:', None), ('infiniband', None)):
            failure = document(WEFT_PROVIDER=spec)[1]['failure']
            self.assertIn(f'WEFT_PROVIDER is "{spec}": there is no such provider', failure)
            self.assertEqual(f'; the nearest is {nearest};' in failure, nearest is not None, failure)

    def test_the_users_own_setting_is_the_first_reason(self):
        status, found = document(WEFT_SOCKET_IFNAME='nope')
        self.assertEqual(status, 1)
        self.assertRegex(found['failure'], r'^choosing the fabric: no fabric can be used: .*(tcp|ofi:tcp|ofi:net)')
        self.assertIn('WEFT_SOCKET_IFNAME (or NCCL_SOCKET_IFNAME) is "nope" and leaves it out', found['failure'])
        self.assertLess(len(found['failure']), 700)

    def test_the_log_has_a_line_for_each_fabric(self):
        done = info(WEFT_DEBUG='INFO', WEFT_SOCKET_IFNAME='nope')
        lines = [line for line in done.stderr.splitlines() if ' is not used: ' in line]
        self.assertEqual(len(lines), 8, done.stderr)
        self.assertTrue(all(len(line) < 1000 for line in lines), lines)
        self.assertNotIn(' is not used: ', info(WEFT_SOCKET_IFNAME='nope').stderr)
        self.assertIn('INFO ofi:efa is not used: ', info(WEFT_DEBUG='INFO').stderr)

    def test_json_says_that_a_setting_is_bad(self):
        done = info('--json', WEFT_EAGER_MAX='8k')
        self.assertEqual(done.returncode, 1)
        self.assertIn('WEFT_EAGER_MAX is "8k"', json.loads(done.stdout)['failure'])
        self.assertIn('WEFT_EAGER_MAX is "8k"', done.stderr)

    def test_words_that_are_none_get_the_nearest_right_one(self):
        for words, hint in ((('prf', 'all_reduce'), 'weft: prf: no such command; did you mean weft perf?; there are info, perf,'),
                            (('all_reduce',), 'weft: all_reduce: no such command; did you mean weft perf all_reduce?'),
                            (('perf', 'allreduce', '-n', '2'), 'allreduce: no such operation; did you mean all_reduce?; there are all_reduce,'),
                            (('sim', 'allreduce', '--fabric', 'p5'),
                             'weft sim: allreduce: no such operation; did you mean all_reduce?; there are all_reduce, all_gather, reduce_scatter, broadcast, alltoall, connect'),
                            (('help', 'prf'), 'did you mean weft perf?')):
            done = subprocess.run([WEFT, *words], capture_output=True, text=True, check=False, timeout=60)
            self.assertEqual(done.returncode, 2, words)
            self.assertIn(hint, done.stderr)

    def test_an_option_that_is_none_is_named(self):
        for words, hint in ((('--nonsense',), 'weft: --nonsense: no such option before a command'), (('--versoin',), 'did you mean --version?')):
            done = subprocess.run([WEFT, *words], capture_output=True, text=True, check=False, timeout=60)
            self.assertEqual((done.returncode, done.stdout), (2, ''))
            self.assertIn(hint, done.stderr)

    def test_errors_of_the_command_line_have_one_voice(self):
        for words, said in ((('perf', 'all_reduce', '--algos', 'ring'), 'weft perf: --algos: no such option; did you mean --algo?; see weft perf --help'),
                            (('state',), 'weft state: folder: it is missing; see weft state --help'),
                            (('info', '--tuner', '--nodes', '0'), 'weft info: --nodes: 0 is not possible; it takes 1 to 1000000; see weft info --help'),
                            (('info', '--nodes', '2'), 'weft info: --nodes: only together with --tuner; see weft info --help'),
                            (('info', '--config', '--image'), 'weft info: --config: not together with --image; see weft info --help'),
                            (('stats', '--interval', 'soon'), 'weft stats: --interval: soon is not possible; it takes 0 to 86400; see weft stats --help'),
                            (('stats', '--interval'), 'weft stats: --interval: its value is missing; see weft stats --help'),
                            (('top', '--sort', 'size'), 'weft top: --sort: size is not possible; it takes one of '),
                            (('trace', 'a', '--evnts'), 'weft trace: --evnts: no such option; did you mean --events?; see weft trace --help'),
                            (('autopsy', 'a', 'b'), 'weft autopsy: b: nothing takes this word; see weft autopsy --help'),
                            (('stats', '1', 'x'), 'weft stats: reading arguments: "x" is no process number'),
                            (('plan', JOB, '--cluster', 'p6.48xlarge'), 'weft plan: p6.48xlarge: is neither a file nor a platform')):
            done = subprocess.run([WEFT, *words], env=CLEAN, capture_output=True, text=True, check=False, timeout=60)
            self.assertEqual((done.returncode, done.stdout), (2, ''), words)
            self.assertTrue(done.stderr.startswith(said), done.stderr)
            self.assertEqual(done.stderr.count('\n'), 1, done.stderr)

    def test_help_names_the_program_and_speaks_to_people(self):
        for words in (('--help',), ('info', '--help'), ('help', 'info'), ('perf', '--help'), ('stats', '--help')):
            shown = subprocess.run([WEFT, *words], env=CLEAN, capture_output=True, text=True, check=True, timeout=60).stdout
            self.assertRegex(shown, r'(?m)^Usage: weft( (info|perf|stats))? \[OPTIONS\]', words)
            for part in ('UINT', 'FLOAT', ':INT', 'Needs:', 'Excludes:'):
                self.assertNotIn(part, shown)
        shown = subprocess.run([WEFT, 'info', '--help'], env=CLEAN, capture_output=True, text=True, check=True, timeout=60).stdout
        self.assertRegex(shown, r'--nodes N +of the communicator \(1 to 1000000; 4 by default; with\s+--tuner\)')

    def test_a_dash_behind_json_is_the_standard_output_of_every_command(self):
        for words in (('info', '--config', '--json'), ('info', '--config', '--json', '-'), ('info', '--json', '-', '--config')):
            done = subprocess.run([WEFT, *words], env=CLEAN, capture_output=True, text=True, check=False, timeout=60)
            self.assertIn('config', json.loads(done.stdout))
        for words in (('--json',), ('--json', '-'), ('--json', '--channels', '1')):
            done = subprocess.run([WEFT, 'perf', 'sendrecv', '-n', '2', '-b', '8', '-e', '8', '--iters', '2', *words],
                                  env={**CLEAN, 'WEFT_PROVIDER': 'local'}, capture_output=True, text=True, check=False, timeout=60)
            self.assertEqual(done.returncode, 0, done.stderr)
            json.loads(done.stdout)
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([WEFT, 'trace', folder, '--json', '-'], capture_output=True, text=True, check=False, timeout=60)
            self.assertNotIn('"-"', done.stderr)
            self.assertNotIn(' -:', done.stderr)

    def test_a_reason_that_several_providers_share_is_said_once(self):
        done = info(WEFT_LIBFABRIC='/nonexistent/libfabric.so.1')
        lines = [line for line in done.stdout.splitlines() if '/nonexistent/libfabric.so.1' in line]
        self.assertEqual(len(lines), 1, done.stdout)
        self.assertRegex(lines[0], r'^  ofi:[\w-]+, ofi:')
        # Nor a card that is missing, of which each says the same in its own name.
        self.assertLessEqual(info().stdout.count('fi_info -l shows the providers it has'), 1)

    def test_every_usage_error_has_one_exit_code(self):
        for words in ((), ('perf', '--nosuch'), ('info', '--markdown'), ('perf', 'all_reduce', '-n', 'x'), ('perf', 'all_reduce', '-n', '0'),
                      ('trace',), ('perf', 'all_reduce', '-n', '2', '-f', '1.0000001'), ('perf', 'all_reduce', '-n', '2', '--plot', 'a.png'),
                      ('info', '--tuner', '--nodes', '4', '--ranks', '2')):
            done = subprocess.run([WEFT, *words], capture_output=True, text=True, check=False, timeout=60)
            self.assertEqual((done.returncode, done.stdout), (2, ''), (words, done.stderr))
            self.assertNotEqual(done.stderr, '')

    def test_help_and_versions_in_every_spelling(self):
        ask = lambda *words: subprocess.run([WEFT, *words], capture_output=True, text=True, check=True, timeout=60).stdout
        for words in (('--help',), ('help',), ('perf', '--help'), ('help', 'perf'), ('info', '--help'), ('trace', '--help'), ('state', '--help')):
            self.assertIn('Examples:\n    ', ask(*words))
        version = ask('--version')
        self.assertRegex(version, r'^weft \d+\.\d+\.\d+ \(commit \w+.*\)\nbuilt by compiler \S+.*optimized.*, with tcp local loop')
        self.assertEqual({ask('-V'), ask('version'), *(ask(command, '--version') for command in ('info', 'perf', 'trace', 'state', 'doctor'))}, {version})

    def test_versions_are_named(self):
        versions = document(WEFT_PROVIDER='loop')[1]['versions']
        self.assertEqual(versions['kernel'], 'Linux ' + os.uname().release)
        self.assertRegex(versions['glibc'], r'^2\.\d+$')
        self.assertRegex(versions['weft'], r'^\d+\.\d+\.\d+$')

    def test_cards_put_together_are_one_device_with_its_reason(self):
        settings = {'WEFT_PROVIDER': 'loop', 'WEFT_LOOP_RAILS': '3'}
        devices = document(**settings)[1]['devices']
        self.assertEqual([device['rails'] for device in devices], [['loop0'], ['loop1'], ['loop2']])
        self.assertRegex(devices[0]['grouping'], '^alone: ')
        devices = document(WEFT_MERGE_NICS='loop0,loop2', **settings)[1]['devices']
        self.assertEqual([device['rails'] for device in devices], [['loop0', 'loop2'], ['loop1']])
        self.assertEqual(devices[0]['grouping'], 'WEFT_MERGE_NICS names them')
        self.assertEqual(devices[0]['speedMbps'], 2 * devices[1]['speedMbps'])
        self.assertEqual(devices[0]['members'], [0])  # as NCCL sees it, it is one
        self.assertIn("WEFT_MERGE_NICS names them", info(WEFT_MERGE_NICS='loop0,loop2', **settings).stdout)
        self.assertIn('there is no loop7', info(WEFT_MERGE_NICS='loop0,loop7', **settings).stderr)

    def test_text_shows_what_json_shows(self):
        settings = {'WEFT_PROVIDER': 'loop', 'WEFT_LOOP_RAILS': '2'}
        text = info(**settings).stdout
        self.assertIn('> loop', text)
        for device in document(**settings)[1]['devices']:
            for name in device:
                self.assertIn(f'      {name} ', text)

    def test_settings_show_effective_values_and_what_differs(self):
        settings = {'WEFT_EAGER_MAX': '4096', 'NCCL_SOCKET_IFNAME': 'eth9', 'WEFT_EAGR_MAX': '1'}
        status, found = document('--config', **settings)
        rows = {row['name']: row for row in found['config']}
        self.assertEqual(status, 0)
        self.assertEqual(sorted(name for name, row in rows.items() if row['changed']),
                         ['WEFT_EAGER_MAX', 'WEFT_SOCKET_IFNAME'])
        self.assertEqual(rows['WEFT_EAGER_MAX']['value'], '4096')
        self.assertEqual(rows['WEFT_SOCKET_IFNAME']['value'], 'eth9')
        self.assertEqual(len(found['unknown']), 1)
        done = info('--config', **settings)
        text = done.stdout
        self.assertRegex(text, r'(?m)^\* WEFT_EAGER_MAX +4096 +\(from environment; default: -1\)$')
        self.assertIn('warning: WEFT_EAGR_MAX is not a setting', done.stderr)
        self.assertNotIn('is not a setting', text)

    def test_a_bad_setting_fails_and_is_named(self):
        for arguments in ((), ('--config',)):
            done = info(*arguments, WEFT_EAGER_MAX='8k')
            self.assertEqual(done.returncode, 1)
            self.assertIn('WEFT_EAGER_MAX is "8k"', done.stderr)

    def test_the_page_is_the_same_everywhere(self):
        self.assertEqual(info('--config', '--markdown', WEFT_EAGER_MAX='1').stdout, info('--config', '--markdown').stdout)

    @unittest.skipUnless(PLUGIN, 'the plugin is looked at in the release build')
    def test_the_plugin_tells_nccl_the_same(self):
        os.environ.update(WEFT_PROVIDER='loop', WEFT_LOOP_RAILS='2')
        told = Table(PLUGIN, LAYOUT).properties()
        shown = document(WEFT_PROVIDER='loop', WEFT_LOOP_RAILS='2')[1]['devices']
        self.assertEqual(len(told), len(shown))
        for told_device, shown_device in zip(told, shown):
            self.assertEqual(told_device, {name: shown_device[name] for name in told_device})


class Table:
    """NCCL's newest table of a plugin, reached through measured offsets."""
    NAMES = {'name': 'name', 'speed': 'speedMbps', 'port': 'port', 'latency': 'latencyUs', 'maxComms': 'maxComms',
             'maxRecvs': 'maxRecvs', 'regIsGlobal': 'regIsGlobal', 'forceFlush': 'forceFlush',
             'maxP2pBytes': 'maxP2pBytes', 'maxCollBytes': 'maxCollBytes', 'maxMultiRequestSize': 'maxMultiRequestSize',
             'railId': 'railId', 'planeId': 'planeId'}
    TYPES = {'int': ctypes.c_int, 'float': ctypes.c_float, 'size_t': ctypes.c_size_t, 'int16_t': ctypes.c_int16}
    LOGGER = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_ulong, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p)
    PROFILER = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_int64,
                                ctypes.c_void_p)

    def __init__(self, plugin, layout):
        with open(layout, encoding='utf-8') as file:
            self.structs = json.load(file)['structs']
        self.library = ctypes.CDLL(plugin)
        self.table = ctypes.addressof(ctypes.c_char.in_dll(self.library, 'ncclNetPlugin_v12'))
        self.logger = self.LOGGER(lambda *_: None)
        self.profiler = self.PROFILER(lambda *_: 0)

    def call(self, name, *arguments):
        offset = next(f['offset'] for f in self.structs['ncclNet_v12_t']['fields'] if f['name'] == name)
        pointer = ctypes.c_void_p.from_address(self.table + offset).value
        status = ctypes.CFUNCTYPE(ctypes.c_int)(pointer)(*arguments)
        if status != 0:
            raise RuntimeError(f'{name} gave {status}')

    def read(self, block, field):
        address = ctypes.addressof(block) + field['offset']
        if field['type'] == 'char*':
            return ctypes.c_char_p.from_address(address).value.decode()
        value = self.TYPES[field['type']].from_address(address).value
        return bool(value) if field['name'] in ('regIsGlobal', 'forceFlush') else value

    def device(self, index):
        struct = self.structs['ncclNetProperties_v12_t']
        block = ctypes.create_string_buffer(b'\xaa' * struct['size'], struct['size'])
        self.call('getProperties', ctypes.c_int(index), block)
        fields = {field['name']: field for field in struct['fields']}
        told = {shown: self.read(block, fields[name]) for name, shown in self.NAMES.items()}
        support = ctypes.c_int.from_address(ctypes.addressof(block) + fields['ptrSupport']['offset']).value
        told['pointers'] = [name for bit, name in POINTERS.items() if support & bit]
        told['guid'] = hex(ctypes.c_uint64.from_address(ctypes.addressof(block) + fields['guid']['offset']).value)
        return told

    def properties(self):
        context, count = ctypes.c_void_p(), ctypes.c_int()
        config = ctypes.c_int(-1)  # ncclNetCommConfig_v12_t: the traffic class alone
        self.call('init', ctypes.byref(context), ctypes.c_uint64(1), ctypes.byref(config), self.logger, self.profiler)
        self.call('devices', ctypes.byref(count))
        told = [self.device(index) for index in range(count.value)]
        self.call('finalize', context)
        return told


if __name__ == '__main__':
    unittest.main(argv=sys.argv[:1])
