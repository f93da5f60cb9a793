#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""`weft report`, and the profiles that processes write at their end (WEFT_PROFILE).

usage: report_test.py WEFT TRACES
TRACES is the folder of a recorded job of PyTorch (tests/nccl/jobs).
"""
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import xml.etree.ElementTree

WEFT, TRACES = sys.argv[1:3]
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(('WEFT_', 'NCCL_'))}
CLEAN['WEFT_CONF'] = ''
CLEAN['WEFT_PROVIDER'] = 'tcp'
PATIENCE = 100
XHTML = '{http://www.w3.org/1999/xhtml}'
ENDING = '.profile.json'
# Gradients in a fusion buffer of 64 MiB: two almost full, one half full, and small ones beside them; as MiB, and how often.
FUSED = (('60M', 2), ('30M', 1), ('64K', 40))


def weft(*arguments, **settings):
    return subprocess.run([WEFT, *arguments], env={**CLEAN, **settings}, capture_output=True, text=True, check=False, timeout=PATIENCE)


def exchange(folder, size, times):
    """Two ranks send each other that many messages of that size."""
    return weft('perf', 'sendrecv', '-n', '2', '-b', size, '-e', size, '--iters', str(times), '-w', '0', '-c', '0', WEFT_PROFILE=folder)


def of(rows, **fields):
    return [row for row in rows if all(row[name] == value for name, value in fields.items())]


class PageTest(unittest.TestCase):
    def report(self, *arguments):
        """(page, text, document) of the same run."""
        answers = [weft('report', *arguments, *form) for form in (('-o', '-'), ('--text',), ('--json',))]
        for answer in answers:
            self.assertEqual((answer.returncode, answer.stderr), (0, ''))
        return answers[0].stdout, answers[1].stdout, json.loads(answers[2].stdout)

    def check_whole(self, page):
        """It is XML, and shows nothing that is not in it."""
        root = xml.etree.ElementTree.fromstring(page)
        self.assertEqual(root.tag, XHTML + 'html')
        for element in root.iter():
            self.assertNotIn(element.tag.rpartition('}')[2], ('script', 'link', 'img', 'iframe', 'object', 'embed', 'use', 'image'))
            for name in element.attrib:
                self.assertNotIn(name.rpartition('}')[2], ('src', 'href', 'srcset', 'data', 'action'))
            for number in ('x', 'y', 'width', 'cx', 'cy', 'points'):
                self.assertNotRegex(element.get(number, ''), 'nan|inf|--')
        self.assertNotRegex(page, r'url\(|@import|https?://(?!www\.w3\.org/)')
        return root

    def check_agrees(self, root, text):
        """Each row of each table stands in the text as well."""
        lines = {' '.join(line.split()) for line in text.splitlines()}
        rows = [[''.join(cell.itertext()) for cell in row] for row in root.iter(XHTML + 'tr')]
        self.assertGreater(len(rows), 5)
        for row in rows:
            self.assertIn(' '.join(' '.join(row).split()), lines)
        titles = [''.join(title.itertext()) for title in root.iter(XHTML + 'h2')]
        self.assertEqual([line for line in text.splitlines() if line in titles], titles)

    def test_a_recorded_job_of_pytorch(self):
        page, text, document = self.report(TRACES)
        root = self.check_whole(page)
        self.check_agrees(root, text)
        run = document['run']
        self.assertEqual((run['source'], run['notes']), ('trace', []))
        recorded = json.loads(weft('trace', '--json', TRACES).stdout)
        for process, trace in zip(run['processes'], recorded):
            sent = of(process['flows'], kind='send')
            self.assertEqual(sum(flow['messages'] for flow in sent), trace['sends']['done'])
            self.assertEqual(sum(flow['bytes'] for flow in sent), sum(size['sent_bytes'] for size in trace['sizes']))
            waited = sum(flow['wait_seconds'] for flow in process['flows'])
            self.assertAlmostEqual(waited, trace['not_now_nanoseconds'] / 1e9, places=6)
        # Every byte that one rank has sent the other has received; both know each other, and what they did for NCCL.
        self.assertEqual(sum(row['bytes'] for row in run['sizes_sent']), sum(row['bytes'] for row in run['sizes_received']))
        names = [process['name'] for process in run['processes']]
        self.assertEqual({(pair['from'], pair['to']) for pair in run['pairs']}, {(names[0], names[1]), (names[1], names[0])})
        self.assertLessEqual({'allreduce send', 'allgather send', 'reducescatter receive'}, {row['operation'] for row in run['operations']})
        rates = run['sent']
        self.assertAlmostEqual(sum(rates['bytes_per_second']) * rates['slice_seconds'], sum(row['bytes'] for row in run['sizes_sent']), delta=1e4)

    def test_a_page_is_written_and_named(self):
        with tempfile.TemporaryDirectory() as folder:
            path = f'{folder}/page.html'
            answer = weft('report', TRACES, '-o', path)
            self.assertEqual((answer.returncode, answer.stdout), (0, f'{path} is written; a browser shows it\n'))
            with open(path, encoding='utf-8') as page:
                self.check_whole(page.read())
            answer = weft('report', TRACES, '-o', f'{folder}/none/page.html')
            self.assertEqual(answer.returncode, 1)
            self.assertIn(f'{folder}/none/page.html', answer.stderr)

    def test_the_page_of_a_plan_is_whole(self):
        answer = weft('plan', TRACES, '--cluster', 'p5.48xlarge', '-n', '2..64', '--html', '-')
        self.assertEqual(answer.returncode, 0, answer.stderr)
        self.check_whole(answer.stdout)

    def test_what_is_no_run_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            answer = weft('report', folder)
            self.assertEqual((answer.returncode, answer.stdout), (2, ''))
            for setting in ('WEFT_PROFILE', 'WEFT_RECORD_DIR', 'WEFT_STATE_DIR'):
                self.assertIn(setting, answer.stderr)
            for content, reason in (('{"weft_profile": 1,', 'is no JSON'), ('{"weft_profile": 99}', 'another version'), ('{}', 'weft_profile: is missing'),
                                    ('[]', 'is missing'), ('{"weft_profile": 1, "place": 5}', 'place: must be a text')):
                with open(f'{folder}/a{ENDING}', 'w', encoding='ascii') as file:
                    file.write(content)
                answer = weft('report', '--text', folder)
                self.assertEqual((answer.returncode, answer.stdout), (2, ''))
                self.assertIn(f'a{ENDING}', answer.stderr)
                self.assertIn(reason, answer.stderr)
        answer = weft('report', '/nonexistent')
        self.assertEqual(answer.returncode, 2)
        self.assertIn('no such file', answer.stderr)

    def test_a_fusion_buffer_shows_its_shape(self):
        with tempfile.TemporaryDirectory() as folder:
            for size, times in FUSED:
                # Slots of 64 MiB, so that each is one message; a broadcast is measured twice, out of place and in place.
                done = weft('perf', 'broadcast', '-n', '2', '-b', size, '-e', size, '--iters', str(times), '-w', '0', '-c', '0', '--buffsize', '512M',
                            WEFT_PROFILE=folder)
                self.assertEqual((done.returncode, done.stderr), (0, ''))
            self.assertEqual(len(os.listdir(folder)), 2 * len(FUSED))
            self.assertTrue(all(name.endswith(ENDING) for name in os.listdir(folder)))
            page, text, document = self.report(folder)
            self.check_agrees(self.check_whole(page), text)
            run = document['run']
            sent = {row['size']: row for row in of(run['operations'], operation='send')}
            received = {row['size']: row for row in of(run['operations'], operation='receive')}
            self.assertEqual(list(sent), ['up to 128 KiB', '16 to 32 MiB', '32 to 64 MiB'])
            for name, size, times in (('32 to 64 MiB', 60 << 20, 2), ('16 to 32 MiB', 30 << 20, 1)):
                self.assertEqual((sent[name]['messages'], sent[name]['bytes']), (2 * times, 2 * times * size))
                self.assertEqual((received[name]['messages'], received[name]['bytes']), (2 * times, 2 * times * size))
            # Most calls are small, most bytes and most of the time are those of the largest.
            total = sum(row['bytes'] for row in sent.values())
            self.assertGreater(sent['32 to 64 MiB']['bytes'], 0.75 * total)
            self.assertLess(sent['up to 128 KiB']['bytes'], 0.03 * total)
            self.assertGreater(sent['up to 128 KiB']['messages'], 0.9 * sum(row['messages'] for row in sent.values()))
            self.assertEqual(max(sent, key=lambda name: sent[name]['seconds']), '32 to 64 MiB')

    def test_a_profile_has_what_else_was_used(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(exchange(folder, '1M', 30).returncode, 0)
            run = self.report(folder)[2]['run']
            self.assertEqual((run['source'], len(run['processes'])), ('profile', 2))
            for process in run['processes']:
                threads = {thread['name']: thread['seconds'] for thread in process['threads']}
                self.assertGreater(threads['weft-control'], 0)
                self.assertGreater(process['processor_seconds'], threads['weft-control'])
                self.assertGreater(process['seconds'], 0)
                self.assertGreater(sum(one['made'] for one in process['registrations']), 0)
                for flow in process['flows']:
                    self.assertGreater(flow['p99_seconds'], 0)
                    self.assertGreaterEqual(flow['p99_seconds'], flow['p50_seconds'])
                    self.assertGreater(flow['busy_seconds'], 0)

    def test_one_sided_operations_have_a_part_of_their_own(self):
        for operation in ('put_signal', 'get'):
            with tempfile.TemporaryDirectory() as folder:
                done = weft('perf', operation, '-n', '2', '-b', '64K', '-e', '64K', '--iters', '20', '-w', '0', '-c', '0', WEFT_PROFILE=folder)
                self.assertEqual((done.returncode, done.stderr), (0, ''))
                page, text, document = self.report(folder)
                self.check_agrees(self.check_whole(page), text)
                self.assertIn('One-sided operations', text)
                ways = {'send': {}, 'receive': {}}
                for process in document['run']['processes']:
                    for flow in process['flows']:
                        if 'one_sided' in flow:
                            ways[flow['kind']][process['name'] if flow['kind'] == 'send' else flow['peer']] = flow['one_sided']
                self.assertEqual(ways['send'], ways['receive'])  # all that left has come, by process
                self.assertTrue(ways['send'])
                for sums in ways['send'].values():
                    times = sums['gets' if operation == 'get' else 'puts']
                    self.assertGreaterEqual(times, 20)
                    self.assertGreaterEqual(sums['get_bytes' if operation == 'get' else 'put_bytes'], 20 << 16)
                    self.assertEqual(sums['puts' if operation == 'get' else 'gets'], 0)
                    if operation == 'put_signal':
                        self.assertGreaterEqual(sums['signals'], times)

    def test_counting_may_be_off(self):
        with tempfile.TemporaryDirectory() as folder:
            done = weft('perf', 'sendrecv', '-n', '2', '-b', '8', '-e', '8', '--iters', '2', WEFT_PROFILE=folder, WEFT_STATS='0')
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertGreater(sum(row['messages'] for row in self.report(folder)[2]['run']['sizes_sent']), 0)

    def test_two_runs_are_compared(self):
        with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
            self.assertEqual(exchange(first, '1M', 40).returncode, 0)
            self.assertEqual(exchange(second, '1M', 400).returncode, 0)
            page, text, document = self.report(first, second)
            self.check_agrees(self.check_whole(page), text)
            self.assertEqual(text.splitlines()[2], 'What differs')
            rows = {row['number']: row for row in document['differences']}
            self.assertTrue(rows['messages of send']['differs'])
            self.assertEqual(rows['messages of send']['second'], 10 * rows['messages of send']['first'])
            self.assertFalse(rows['processes']['differs'])
            differs = [row['differs'] for row in document['differences']]
            self.assertEqual(differs, sorted(differs, reverse=True))
            # A trace knows operations and a profile does not: they are compared without.
            rows = {row['number'] for row in self.report(first, TRACES)[2]['differences']}
            self.assertIn('messages of send', rows)
            self.assertFalse([row for row in rows if 'allreduce' in row])
            # Of a run and itself nothing does.
            self.assertFalse(any(row['differs'] for row in self.report(first, first)[2]['differences']))


class ProfileFileTest(unittest.TestCase):
    def test_a_folder_that_cannot_be_written_is_one_warning(self):
        for folder in ('/nonexistent/profiles', '/dev/null'):
            done = exchange(folder, '8', 2)
            self.assertEqual(done.returncode, 0, done.stderr)
            warnings = [line for line in done.stderr.splitlines() if folder in line]
            self.assertEqual(len(warnings), 2, done.stderr)  # of each rank one
            for warning in warnings:
                self.assertIn('give WEFT_PROFILE a folder that this process may write to', warning)

    def test_a_full_disk_leaves_no_file(self):
        with tempfile.TemporaryDirectory() as folder:
            script = f'mount -t tmpfs -o size=16k none {folder} && head -c 1000000 /dev/zero > {folder}/fill; ' \
                     f'"$@"; echo "status $?"; ls -A {folder}'
            done = subprocess.run(['unshare', *([] if os.geteuid() == 0 else ['-Ur']), '-m', 'sh', '-c', script, 'sh', WEFT, 'perf', 'sendrecv', '-n', '2',
                                   '-b', '8', '-e', '8', '--iters', '2'], env={**CLEAN, 'WEFT_PROFILE': folder}, capture_output=True, text=True,
                                  check=False, timeout=PATIENCE)
            self.assertEqual(done.stdout.splitlines()[-2:], ['status 0', 'fill'], done.stdout + done.stderr)
            self.assertEqual(len(re.findall(f'writing a profile: {folder}/.*full', done.stderr)), 2, done.stderr)

    def test_a_killed_process_leaves_no_file(self):
        with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as state:
            job = subprocess.Popen([WEFT, 'perf', 'all_reduce', '-n', '2', '-b', '1M', '-e', '1M', '--iters', '1000000'],
                                   env={**CLEAN, 'WEFT_PROFILE': folder, 'WEFT_STATE_DIR': state}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True)
            end = time.monotonic() + PATIENCE
            while time.monotonic() < end and not weft('stats', '--json', state).stdout.count('"direction": "send"') == 2:
                time.sleep(0.1)
            with open(f'/proc/{job.pid}/task/{job.pid}/children', encoding='ascii') as children:
                for pid in children.read().split():
                    os.kill(int(pid), signal.SIGKILL)
            job.communicate(timeout=PATIENCE)
            self.assertEqual(os.listdir(folder), [])
            # Their counters are still there, and tell the same.
            document = json.loads(weft('report', '--json', state).stdout)
            self.assertEqual((document['run']['source'], len(document['run']['processes'])), ('counters', 2))


if __name__ == '__main__':
    unittest.main(argv=sys.argv[:1])
