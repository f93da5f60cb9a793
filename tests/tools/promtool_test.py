#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""Prometheus' own checks on the metrics of a running job, and on the rules that are installed beside them.

usage: promtool_test.py WEFT ALERTS
Needs promtool (package prometheus), or WEFT_PROMTOOL naming it; without it the test is skipped.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

WEFT, ALERTS = sys.argv[1:3]
PROMTOOL = os.environ.get('WEFT_PROMTOOL') or shutil.which('promtool')
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(('WEFT_', 'NCCL_'))}
CLEAN.update(WEFT_CONF='', WEFT_PROVIDER='tcp')
PATIENCE = 60


def run(*command, **more):
    return subprocess.run(command, env=CLEAN, capture_output=True, text=True, check=False, timeout=PATIENCE, **more)


class PromtoolTest(unittest.TestCase):
    def test_metrics_of_a_job(self):
        with tempfile.TemporaryDirectory() as folder:
            job = subprocess.Popen([WEFT, 'perf', 'all_reduce', '-n', '2', '-b', '1M', '-e', '1M', '--iters', '1000000'],
                                   env={**CLEAN, 'WEFT_STATE_DIR': folder}, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            try:
                end = time.monotonic() + PATIENCE
                while time.monotonic() < end and not self.moving(folder):
                    time.sleep(0.1)
                metrics = run(WEFT, 'stats', '--prometheus', folder).stdout
            finally:
                job.terminate()
                job.communicate(timeout=PATIENCE)
        self.assertIn('weft_message_size_bytes_bucket', metrics)
        checked = run(PROMTOOL, 'check', 'metrics', input=metrics)
        self.assertEqual((checked.returncode, checked.stdout, checked.stderr), (0, '', ''))

    @staticmethod
    def moving(folder):
        answer = run(WEFT, 'stats', '--json', folder)
        processes = json.loads(answer.stdout)['processes'] if answer.returncode == 0 else []
        return sum(sum(comm['messages'] for comm in one['comms']) > 100 for one in processes) == 2

    def test_alerts(self):
        checked = run(PROMTOOL, 'check', 'rules', ALERTS)
        self.assertEqual(checked.returncode, 0, checked.stdout + checked.stderr)
        self.assertIn('SUCCESS', checked.stdout)


if __name__ == '__main__':
    if not PROMTOOL:
        print('promtool is not installed; Debian has it in the package prometheus')
        sys.exit(77)
    unittest.main(argv=sys.argv[:1])
