#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""`weft stats`, `weft top` and `weft autopsy`: what ranks of a real job counted, while they run and after they were killed.

usage: stats_test.py WEFT
"""
import fcntl
import http.server
import json
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
import unittest

WEFT = sys.argv[1]
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(('WEFT_', 'NCCL_'))}
CLEAN['WEFT_CONF'] = ''
CLEAN['WEFT_PROVIDER'] = 'tcp'
PATIENCE = 60
SAMPLE = re.compile(r'^([a-z_]+)(\{([a-z_]+="(?:[^"\\\n]|\\.)*",?)*\})? [-+0-9.eInf]+$')


def weft(*arguments):
    return subprocess.run([WEFT, *arguments], env=CLEAN, capture_output=True, text=True, check=False, timeout=PATIENCE)


class Job:
    """Two ranks that reduce until they are ended."""

    def __init__(self, folder, ranks=2, operation='all_reduce', **settings):
        settings.update({'WEFT_STATE_DIR': folder} if folder else {})
        self.process = subprocess.Popen([WEFT, 'perf', operation, '-n', str(ranks), '-b', '1M', '-e', '1M', '--iters', '1000000'],
                                        env={**CLEAN, **settings}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.communicate(timeout=PATIENCE)

    def pids(self):
        with open(f'/proc/{self.process.pid}/task/{self.process.pid}/children', encoding='ascii') as children:
            return children.read().split()


def processes(*where):
    answer = weft('stats', '--json', *where)
    return json.loads(answer.stdout)['processes'] if answer.returncode == 0 else []


class Collector:
    """Takes what is posted, as a collector of OpenTelemetry does."""

    def __init__(self):
        self.got, self.status = [], 200

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(handler):  # pylint: disable=no-self-argument,invalid-name
                self.got.append((handler.path, handler.headers['Content-Type'], handler.rfile.read(int(handler.headers['Content-Length']))))
                handler.send_response(self.status)
                handler.end_headers()

            def log_message(self, *_):
                pass

        self.server = http.server.HTTPServer(('127.0.0.1', 0), Handler)
        self.url = f'http://127.0.0.1:{self.server.server_port}'
        self.thread = threading.Thread(target=self.server.serve_forever)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


class StatsTest(unittest.TestCase):
    def until(self, job, what):
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            self.assertTrue(job is None or job.process.poll() is None)
            found = what()
            if found:
                return found
            time.sleep(0.1)
        return self.fail('it did not come to that')

    def moving(self, job, *where, ranks=2):
        def look():
            found = processes(*where)
            busy = [one for one in found if sum(comm['messages'] for comm in one['comms']) > 100]
            return found if len(busy) == ranks else None
        return self.until(job, look)

    def test_counts_grow_and_agree(self):
        with tempfile.TemporaryDirectory() as folder, Job(folder) as job:
            first = self.moving(job, folder)
            comms = [comm for one in first for comm in one['comms']]
            self.assertEqual({comm['direction'] for comm in comms}, {'send', 'receive'})
            for comm in comms:
                self.assertEqual(comm['messages'], sum(size['messages'] for size in comm['sizes']))
                self.assertEqual(comm['bytes'], sum(size['bytes'] for size in comm['sizes']))
                self.assertGreater(comm['busy_seconds'], 0)
            before = sum(comm['bytes'] for comm in comms)
            later = self.until(job, lambda: [one for one in [processes(folder)]
                                             if sum(comm['bytes'] for rank in one for comm in rank['comms']) > before])
            self.assertEqual({one['state'] for one in later[0]}, {'runs'})

    def test_without_a_folder_they_are_found_by_their_number(self):
        with Job(None) as job:
            pids = self.until(job, lambda: job.pids() if len(job.pids()) == 2 else None)
            found = self.moving(job, *pids)
            self.assertEqual(sorted(str(one['pid']) for one in found), sorted(pids))

    def test_puts_and_signals_are_counted_by_direction(self):
        with tempfile.TemporaryDirectory() as folder, Job(folder, operation='put_signal') as job:
            comms = [comm for one in self.moving(job, folder) for comm in one['comms']]
            for direction in ('send', 'receive'):
                sums = [comm['one_sided'] for comm in comms if comm['direction'] == direction]
                self.assertGreater(sum(one['signals'] for one in sums), 0)
                self.assertEqual(sum(one['put_bytes'] for one in sums) >> 20, sum(one['puts'] for one in sums))
                self.assertEqual({(one['gets'], one['get_bytes']) for one in sums}, {(0, 0)})
            self.assertRegex(weft('stats', folder).stdout, r'\n  comm \d+: [1-9]\d* puts of \d+ bytes, 0 gets of 0 bytes and [1-9]\d* signals to the peer')
            lines = weft('stats', '--prometheus', folder).stdout.splitlines()
            for name in ('weft_puts_total', 'weft_put_bytes_total', 'weft_signals_total'):
                values = [float(line.rpartition(' ')[2]) for line in lines if line.startswith(name + '{')]
                self.assertGreater(max(values), 0)

    def test_metrics_are_well_formed(self):
        with tempfile.TemporaryDirectory() as folder, Job(folder) as job:
            self.moving(job, folder)
            answer = weft('stats', '--prometheus', folder)
            self.assertEqual(answer.returncode, 0, answer.stderr)
            types = dict(re.findall(r'^# TYPE (\S+) (\S+)$', answer.stdout, re.MULTILINE))
            self.assertEqual(set(types), set(re.findall(r'^# HELP (\S+) \S', answer.stdout, re.MULTILINE)))
            seen = set()
            for line in answer.stdout.splitlines():
                if line.startswith('#'):
                    continue
                self.assertRegex(line, SAMPLE)
                self.assertNotIn(line.rpartition(' ')[0], seen)
                seen.add(line.rpartition(' ')[0])
                name = re.match(r'[a-z_]+', line).group(0)
                family = name if name in types else re.sub(r'_(bucket|sum|count)$', '', name)
                self.assertIn(family, types)
                self.assertEqual(name.endswith('_total'), types[family] == 'counter', name)
            self.assertNotIn('pid="', answer.stdout)
            self.assertNotIn('peer="', answer.stdout)
            with tempfile.TemporaryDirectory() as collector:
                answer = weft('stats', '--textfile', collector, '--interval', '0', folder)
                self.assertEqual(answer.returncode, 0, answer.stderr)
                self.assertEqual(os.listdir(collector), ['weft.prom'])

    def test_metrics_of_a_rank_are_few_and_name_the_job(self):
        """Of many comms: alltoall has two with each peer. The sums are those of the comms."""
        with tempfile.TemporaryDirectory() as folder, Job(folder, operation='alltoall', ranks=4, SLURM_JOB_ID='4711') as job:
            self.moving(job, folder, ranks=4)
            for pid in job.pids():
                os.kill(int(pid), signal.SIGSTOP)
            try:
                few = weft('stats', '--prometheus', folder).stdout
                many = weft('stats', '--prometheus', '--per-comm', folder).stdout
            finally:
                for pid in job.pids():
                    os.kill(int(pid), signal.SIGCONT)
        samples = [line for line in few.splitlines() if not line.startswith('#')]
        for rank in range(4):
            of_rank = [line for line in samples if f'job="4711",rank="{rank}"' in line]
            self.assertGreater(len(of_rank), 10)
            self.assertLessEqual(len(of_rank), 200)
        self.assertEqual(len([line for line in samples if 'job="4711",rank="' in line]), len(samples))
        sums = {}
        for text in (few, many):
            values = [int(line.rpartition(' ')[2]) for line in text.splitlines() if line.startswith('weft_bytes_total{')]
            sums[len(values)] = sum(values)
        self.assertEqual(sorted(sums), [8, 24])
        self.assertEqual(sums[8], sums[24])
        self.assertIn('peer="rank ', many)

    def test_a_collector_gets_metrics(self):
        with tempfile.TemporaryDirectory() as folder, Job(folder) as job, Collector() as collector:
            self.moving(job, folder)
            answer = weft('stats', '--otlp', collector.url, '--interval', '0', folder)
            self.assertEqual((answer.returncode, answer.stderr), (0, ''))
            path, kind, body = collector.got[0]
            self.assertEqual((path, kind), ('/v1/metrics', 'application/json'))
            resources = json.loads(body)['resourceMetrics']
            self.assertEqual(len(resources), 2)
            for resource in resources:
                about = {one['key']: one['value']['stringValue'] for one in resource['resource']['attributes']}
                self.assertEqual(about['service.name'], 'weft')
                metrics = {one['name']: one for one in resource['scopeMetrics'][0]['metrics']}
                total = metrics['weft_bytes_total']['sum']
                self.assertEqual((total['isMonotonic'], total['aggregationTemporality']), (True, 2))
                self.assertEqual(len(total['dataPoints']), 2)
                for point in total['dataPoints']:
                    self.assertGreater(point['asDouble'], 0)
                    self.assertGreater(int(point['timeUnixNano']), int(point['startTimeUnixNano']))
                self.assertIn('dataPoints', metrics['weft_requests_in_flight']['gauge'])
            collector.status = 503
            answer = weft('stats', '--otlp', collector.url, '--interval', '0', folder)
            self.assertEqual(answer.returncode, 1)
            self.assertIn('answered "HTTP/1.0 503"', answer.stderr)
        for url, words, status in ((collector.url, 'refused', 1), ('https://127.0.0.1', 'is not http://HOST', 2)):
            answer = weft('stats', '--otlp', url, '--interval', '0')
            self.assertEqual(answer.returncode, status)
            self.assertIn(words, answer.stderr)

    def test_files_that_cannot_be_read_are_named(self):
        """Of another version, and of a job that has only begun."""
        with tempfile.TemporaryDirectory() as folder, Job(folder) as job:
            pid = self.moving(job, folder)[0]['pid']
            name, = [one for one in os.listdir(folder) if one.endswith(f'.{pid}.stats')]
            with tempfile.TemporaryDirectory() as other:
                with open(f'{folder}/{name}', 'rb') as file:
                    head = bytearray(file.read(4096))
                head[8] += 1
                for stranger, content in ((f'{other}/old.1.stats', head), (f'{other}/young.2.stats', b'')):
                    with open(stranger, 'wb') as file:
                        file.write(content)
                for command in ('stats', 'autopsy', 'report'):
                    answer = weft(command, *(['--text'] if command == 'report' else []), other)
                    self.assertNotEqual(answer.returncode, 0)
                    self.assertRegex(answer.stderr, r'old\.1\.stats: another version of weft wrote it \(layout \d+, this one reads layout \d+\); use the weft of that job')
                self.assertIn('young.2.stats: it has no counters in it, or not yet', weft('autopsy', other).stderr)
                os.link(f'{folder}/{name}', f'{other}/{name}')
                answer = weft('autopsy', other)
                self.assertEqual(answer.returncode, 0)
                self.assertIn('old.1.stats: another version', answer.stderr)

    def test_top_once(self):
        with tempfile.TemporaryDirectory() as folder, Job(folder) as job:
            self.moving(job, folder)
            answer = weft('top', '--once', '--interval', '0.5', folder)
            self.assertEqual(answer.returncode, 0, answer.stderr)
            self.assertNotIn('\x1b', answer.stdout)
            self.assertIn('2 processes', answer.stdout)
            self.assertRegex(answer.stdout, r'\n\S.* send +[1-9]')

    def test_top_filters(self):
        with tempfile.TemporaryDirectory() as folder, Job(folder) as job:
            self.moving(job, folder)
            rows = weft('top', '--once', '--interval', '0.2', '--sort', 'name', '--filter', 'rank 1 on', folder).stdout.splitlines()
            self.assertIn('by process and peer, with "rank 1 on"', rows[0])
            self.assertEqual([row[:9] for row in rows[2:]], ['rank 0 on'] * 2 + ['rank 1 on'] * 2)  # its own, and those to it
            self.assertEqual(len(weft('top', '--once', '--interval', '0.2', '--filter', 'rank 7 on', folder).stdout.splitlines()), 2)
            self.assertEqual(weft('top', '--sort', 'size', folder).returncode, 2)

    def test_top_has_keys_and_leaves_the_terminal_as_it_was(self):
        with tempfile.TemporaryDirectory() as folder, Job(folder) as job:
            self.moving(job, folder)
            ours, its = pty.openpty()
            fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack('HHHH', 24, 100, 0, 0))
            before = termios.tcgetattr(its)
            for last in (b'q', b'\x03'):
                top = subprocess.Popen([WEFT, 'top', '--interval', '0.2', folder], env=CLEAN, stdin=its, stdout=its, stderr=its, start_new_session=True,
                                       preexec_fn=lambda: fcntl.ioctl(its, termios.TIOCSCTTY, 0))
                try:
                    for key, words in ((b'', b'those that wait longest first'), (b's', b'those that carry most first'), (b'p', b'PAUSED'),
                                       (b's', b'the busiest first; PAUSED')):
                        os.write(ours, key)
                        self.assertIn(words, self.shown(ours, words))
                    os.write(ours, last)
                    self.assertEqual(top.wait(timeout=PATIENCE), 0)
                finally:
                    top.kill()
                    top.wait()
                self.assertEqual(termios.tcgetattr(its), before)
            os.close(ours)
            os.close(its)

    @unittest.skipUnless(shutil.which('tmux'), 'needs tmux')
    def test_top_fits_any_width(self):
        """What a terminal emulator has on its screen: whole lines, and of the columns those that matter most."""
        with tempfile.TemporaryDirectory() as folder, Job(folder) as job:
            self.moving(job, folder)
            for width, there, gone in ((200, ('BAD/SUMS', 'MSG/s', 'PEER'), ()), (100, ('BUSY%', 'WAITS s', 'PEER'), ('BAD/SUMS',)),
                                       (60, ('MB/s', 'PEER'), ('BUSY%', 'BAD/SUMS')), (24, ('PROCESS',), ('MB/s',))):
                tmux = ['tmux', '-S', os.path.join(folder, f'tmux-{width}'), '-f', '/dev/null']  # a server that ends takes its time
                subprocess.run([*tmux, 'new-session', '-d', '-x', str(width), '-y', '12', WEFT, 'top', '--interval', '0.2', folder],
                               env=CLEAN, check=True, timeout=PATIENCE)
                try:
                    lines = self.until(job, lambda: self.screen(tmux))
                finally:
                    subprocess.run([*tmux, 'kill-server'], check=False, timeout=PATIENCE)
                self.assertTrue(lines[0].startswith('weft top: 2 processes'), lines)
                self.assertTrue(lines[1].startswith('PROCESS'), lines)
                self.assertEqual([line[:5] for line in lines[2:6]], ['rank '] * 4, lines)  # no line goes on in the next one
                self.assertFalse(any(lines[6:]), lines)
                self.assertEqual([name for name in there if name not in lines[1]], [], lines)
                self.assertEqual([name for name in gone if name in lines[1]], [], lines)

    @staticmethod
    def screen(tmux):
        """Once there is a table on it."""
        shown = subprocess.run([*tmux, 'capture-pane', '-p'], capture_output=True, text=True, check=False, timeout=PATIENCE).stdout.splitlines()
        return shown if len(shown) > 5 and shown[5] else None

    @staticmethod
    def shown(terminal, words):
        """What the terminal shows until the words are there, or time is up."""
        end, text = time.monotonic() + PATIENCE, b''
        while words not in text and time.monotonic() < end:
            if select.select([terminal], [], [], 0.1)[0]:
                text += os.read(terminal, 65536)
        return text

    def test_a_killed_rank_is_named_by_what_it_left(self):
        with tempfile.TemporaryDirectory() as folder, Job(folder, 3) as job:
            victim = self.moving(job, folder, ranks=3)[1]['pid']
            os.kill(victim, signal.SIGKILL)
            verdict = self.until(None, lambda: self.verdict(folder, 'died'))  # the others end, too
            self.assertEqual(verdict['culprit']['pid'], victim)
            left = [one for one in processes(folder) if one['pid'] == victim]
            self.assertEqual(left[0]['state'], 'gone')
            self.assertGreater(sum(comm['messages'] for comm in left[0]['comms']), 100)
            self.until(None, lambda: all(one['state'] == 'gone' for one in processes(folder)))
            others = [comm['state'] for one in processes(folder) if one['pid'] != victim for comm in one['comms']]
            self.assertIn('failed', others)  # what ended with an error stays to be read
            self.assertEqual(self.verdict(folder, 'died')['culprit']['pid'], victim)

    def test_a_stopped_rank_is_named(self):
        with tempfile.TemporaryDirectory() as folder, Job(folder, 3) as job:
            victim = self.moving(job, folder, ranks=3)[2]['pid']
            os.kill(victim, signal.SIGSTOP)
            try:
                verdict = self.until(job, lambda: self.verdict(folder, 'stopped'))
                self.assertEqual(verdict['culprit']['pid'], victim)
                self.assertIn(f'pid {victim} (stopped)', weft('autopsy', folder).stdout)
            finally:
                os.kill(victim, signal.SIGCONT)

    def test_ranks_that_move_are_no_culprits(self):
        with tempfile.TemporaryDirectory() as folder, Job(folder) as job:
            self.moving(job, folder)
            self.assertTrue(self.verdict(folder, 'none'))

    @staticmethod
    def verdict(folder, kind):
        answer = weft('autopsy', '--json', folder)
        found = json.loads(answer.stdout) if answer.returncode == 0 else {'verdict': ''}
        return found if found['verdict'] == kind else None

    def test_a_job_that_ends_well_leaves_nothing(self):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([WEFT, 'perf', 'sendrecv', '-n', '2', '-b', '8', '-e', '8', '--iters', '2'],
                                  env={**CLEAN, 'WEFT_STATE_DIR': folder}, capture_output=True, text=True, check=False, timeout=PATIENCE)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(os.listdir(folder), [])
            answer = weft('autopsy', folder)
            self.assertEqual((answer.returncode, answer.stdout), (1, ''))
            self.assertIn('there is nothing to read', answer.stderr)


if __name__ == '__main__':
    unittest.main(argv=sys.argv[:1])
