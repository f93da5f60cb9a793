#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""Runs `weft sim`: its table, its JSON, the file that `weft plan` reads, and what it says of what does not fit.

usage: check_sim.py WEFT
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

WEFT = ''
CLEAN = {**{name: value for name, value in os.environ.items() if not name.startswith(('WEFT_', 'NCCL_'))}, 'WEFT_CONF': ''}


def run(*arguments):
    return subprocess.run([WEFT, *map(str, arguments)], env=CLEAN, capture_output=True, text=True, check=False, timeout=60)


class Sim(unittest.TestCase):
    def complaint(self, *arguments):
        done = run('sim', *arguments)
        self.assertEqual(done.returncode, 2, done.stdout)
        lines = done.stderr.splitlines()
        self.assertEqual(len(lines), 1, done.stderr)
        return lines[0]

    def test_it_prints_the_table_of_perf_and_says_that_it_is_simulated(self):
        done = run('sim', 'all_reduce', '-n', 4, '--fabric', 'ndr', '-b', 8, '-e', '64K', '-f', 64)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn('SIMULATED', done.stdout.splitlines()[0])
        rows = [line.split() for line in done.stdout.splitlines() if not line.startswith('#')]
        self.assertEqual([row[:2] for row in rows], [['8', '2'], ['512', '128'], ['32768', '8192']])
        self.assertTrue(all(float(row[5]) > 0 and row[8] == 'N/A' and row[9] == '-' for row in rows), rows)

    def test_it_writes_json(self):
        done = run('sim', 'all_to_all', '-n', 4, '--fabric', 'ethernet-100g', '-b', '1M', '-e', '1M', '--json')
        self.assertEqual(done.returncode, 0, done.stderr)
        document = json.loads(done.stdout)
        self.assertIs(document['simulated'], True)
        self.assertEqual(document['operation'], 'alltoall')
        self.assertEqual(document['results'][0]['bytes'], 1 << 20)
        self.assertEqual(document['connections']['count'], 12)
        again = run('sim', 'all_to_all', '-n', 4, '--fabric', 'ethernet-100g', '-b', '1M', '-e', '1M', '--json')
        self.assertEqual(again.stdout, done.stdout)

    def test_connections_alone(self):
        done = run('sim', 'connect', '-n', 8, '--fabric', 'p5', '--peers', 1)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn('# connections 8 in ', done.stdout)
        self.assertIn('at most 2 links of a rank', done.stdout)

    def test_a_plan_takes_its_network_from_it(self):
        with tempfile.TemporaryDirectory() as folder:
            table = pathlib.Path(folder) / 'ndr.table'
            done = run('sim', '--fabric', 'ndr', '--fit', table)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn('Simulated by weft sim --fit, not measured.', table.read_text())
            job = pathlib.Path(folder) / 'job.json'
            job.write_text('{"operation": {"name": "all_reduce", "MiB": [256]}, "algorithm": "ring"}')
            planned = run('plan', job, '--cluster', table, '-n', 16, '--json')
            self.assertEqual(planned.returncode, 0, planned.stderr)
            self.assertIn('sim:ndr', planned.stdout)
            again = run('sim', 'all_reduce', '-n', 2, '--fabric', table, '-b', 8, '-e', 8)
            self.assertEqual(again.returncode, 0, again.stderr)

    def test_one_machine_is_the_same_wherever_it_is_named(self):
        """A p5 by its file, by its name and by the simulation's table: a step takes the same time within 5 %."""
        examples = pathlib.Path(__file__).resolve().parents[2] / 'tools' / 'plan' / 'examples'
        with tempfile.TemporaryDirectory() as folder:
            table = pathlib.Path(folder) / 'p5.table'
            self.assertEqual(run('sim', '--fabric', 'p5', '--fit', table).returncode, 0)
            self.assertIn('devices_per_node 32\n', table.read_text())
            self.assertIn('gpus_per_node 8\n', table.read_text())
            times = {}
            for cluster in (examples / 'p5.cluster.json', 'p5.48xlarge', table):
                done = run('plan', examples / 'gpt-1b3.job.json', '--cluster', cluster, '-n', '64,512', '--json')
                self.assertEqual(done.returncode, 0, done.stderr)
                times[str(cluster)] = [row['step_us'] for row in json.loads(done.stdout)['predictions']]
        for of_one_size in zip(*times.values()):
            self.assertLess(max(of_one_size), 1.05 * min(of_one_size), times)

    def test_ranks_of_one_host_share_its_processors(self):
        numbers = {'processors': 2, 'send_us': 5, 'receive_us': 1, 'test_us': 0.5, 'look_us': 1, 'step_us': 7, 'shared_step_us': 10,
                   'near_send_gbps': 6, 'near_receive_gbps': 8, 'near_copy_gbps': 20, 'near_reduce_gbps': 20,
                   'far_send_gbps': 4, 'far_receive_gbps': 5, 'far_copy_gbps': 10, 'far_reduce_gbps': 10}
        with tempfile.TemporaryDirectory() as folder:
            table = pathlib.Path(folder) / 'here.table'
            table.write_text('weft-tuner-table 1\nprovider tcp\ndate 2026-01-01\nhosts 1\nranks 2\nstep_us 7\ndevice_gbps 4\ndevices 1\n' +
                             ''.join(f'host_{name} {value}\n' for name, value in numbers.items()))
            times = {}
            for processors in (0, 4):
                done = run('sim', 'all_reduce', '-n', 4, '--fabric', table, '-b', '16M', '-e', '16M', '--processors', processors, '--json', '-')
                self.assertEqual(done.returncode, 0, done.stderr)
                times[processors] = json.loads(done.stdout)['results'][0]['out_of_place']['time_us']
            self.assertGreater(times[0], 1.5 * times[4])
            shown = run('sim', 'all_reduce', '-n', 4, '--fabric', table, '-b', 8, '-e', 8)
            self.assertIn('4 ranks on one host of 2 processors, SIMULATED', shown.stdout)
            self.assertIn('a processor takes 5 us and 4 to 6 GB/s to send', shown.stdout)

    def test_what_does_not_fit_is_named_in_one_line(self):
        self.assertIn('--fabric ndx: is neither a file nor a fabric; the nearest is ndr; fabrics are p5', self.complaint('all_reduce', '--fabric', 'ndx'))
        self.assertIn('--fabric is missing: p5, ndr', self.complaint('all_reduce'))
        self.assertIn('-n 0: 2 to 4096 ranks', self.complaint('all_reduce', '-n', 0, '--fabric', 'ndr'))
        self.assertIn('-b 64 is larger than -e 8', self.complaint('all_reduce', '--fabric', 'ndr', '-b', 64, '-e', 8))
        self.assertIn('all_redu: no such operation; did you mean all_reduce?', self.complaint('all_redu', '--fabric', 'ndr'))
        self.assertIn('all_reduce (collnet) is not simulated', self.complaint('all_reduce', '--algo', 'collnet', '--fabric', 'ndr'))
        self.assertIn('--processors: ndr says nothing of ranks that share a host', self.complaint('all_reduce', '--processors', 2, '--fabric', 'ndr'))
        self.assertIn('--peers 9: a rank of 4 has at most 3', self.complaint('connect', '-n', 4, '--peers', 9, '--fabric', 'ndr'))
        self.assertIn('name an operation', self.complaint('--fabric', 'ndr'))
        with tempfile.NamedTemporaryFile('w', suffix='.table') as table:
            table.write('something else\n')
            table.flush()
            self.assertIn(f'--fabric {table.name}: it does not begin with', self.complaint('all_reduce', '--fabric', table.name))


if __name__ == '__main__':
    WEFT = sys.argv.pop(1)
    unittest.main()
