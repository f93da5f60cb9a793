#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""`weft autopsy` reads what PyTorch's flight recorder leaves: pickles of every protocol, as Python writes them.

usage: torch_dump_test.py WEFT
"""
import json
import os
import pickle
import subprocess
import sys
import tempfile
import unittest

WEFT = sys.argv[1]


def entry(number, state='completed', name='nccl:all_reduce', sizes=((1024,),), pair=False):
    """As PyTorch 2.4 and later write an entry of theirs, with what the autopsy does not read."""
    return {'record_id': number, 'pg_id': 0, 'process_group': ('0', 'default_pg'), 'collective_seq_id': number, 'p2p_seq_id': 0, 'op_id': number,
            'profiling_name': name, 'time_created_ns': 1_700_000_000_000_000_000 + number, 'duration_ms': 0.25 if state == 'completed' else None,
            'frames': [{'name': 'step', 'filename': 'train.py', 'line': 70000}], 'input_sizes': [list(one) for one in sizes], 'state': state,
            'is_p2p': pair, 'retired': state == 'completed', 'timeout_ms': 600000}


def dump(entries):
    return {'version': '2.10', 'pg_config': {'0': {'name': '0', 'desc': 'default_pg', 'ranks': '[0, 1, 2]'}}, 'entries': entries}


class TorchDumpTest(unittest.TestCase):
    def autopsy(self, dumps, protocol):
        with tempfile.TemporaryDirectory() as folder:
            for rank, one in enumerate(dumps):
                with open(os.path.join(folder, f'nccl_trace_rank_{rank}'), 'wb') as file:
                    pickle.dump(one, file, protocol=protocol)
            answer = subprocess.run([WEFT, 'autopsy', '--json', folder], capture_output=True, text=True, check=False, timeout=60)
            self.assertEqual(answer.returncode, 0, answer.stderr)
            return json.loads(answer.stdout)

    def test_the_rank_that_is_behind(self):
        going = [entry(number) for number in range(1, 300)]
        for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
            found = self.autopsy([dump(going + [entry(300, 'started')]), dump(going + [entry(300, 'scheduled')]), dump(going)], protocol)
            self.assertEqual(found['verdict'], 'torch')
            self.assertEqual(found['evidence'], ['PyTorch: rank 2 has not called collective 300 of group 0, nccl:all_reduce of [[1024]], that others are in; '
                                                 'its last one was 299, nccl:all_reduce of [[1024]]'])

    def test_a_rank_in_another_collective(self):
        going = [entry(1), entry(2)]
        found = self.autopsy([dump(going + [entry(3, 'started')]), dump(going + [entry(3, 'started')]),
                              dump(going + [entry(3, 'started', 'nccl:broadcast', ((8, 2), (3,)))])], 2)
        self.assertEqual(found['evidence'], ['PyTorch: rank 2 has called nccl:broadcast of [[8, 2], [3]] as collective 3 of group 0, '
                                             'and others nccl:all_reduce of [[1024]]'])

    def test_ranks_that_agree_and_messages_of_pairs(self):
        going = [entry(1), entry(2, 'started')]
        self.assertEqual(self.autopsy([dump(going), dump(going), dump(going + [entry(9, 'started', 'nccl:send 2->0', pair=True)])], 2)['verdict'], 'none')


if __name__ == '__main__':
    unittest.main(argv=sys.argv[:1])
