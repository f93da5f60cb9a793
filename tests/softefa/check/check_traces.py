# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""usage: check_traces.py LIBRARY_FOLDER WEFT RECORDER KEPT

Records `weft perf` over EFA cards whose packets come out of order and replays it there, then every folder of traces in KEPT, if
there is one: `weft perf --replay` verifies every byte.
"""
import os
import pathlib
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from virtual_hosts import VirtualHosts

RANKS = '3'


def run(library, command):
    with VirtualHosts(library, 1, 'reorder=50') as hosts:
        result = hosts.run(command, 120)
    print(f'{result.output}{result.counters}')
    assert result.status == 0, f'exit status {result.status}: {command}'
    assert len(result.nics_used()) == 1, result.nics_used()
    return result


def main():
    library, weft, recorder, kept = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        os.environ['WEFT_RECORD_DIR'] = folder
        run(library, [weft, 'perf', 'alltoall', '-n', RANKS, '-b', '64', '-e', '64K', '-f', '8', '--iters', '2', '-w', '1',
                      '--plugin', recorder])
        assert len(os.listdir(folder)) == int(RANKS), os.listdir(folder)
        assert 'every byte verified' in run(library, [weft, 'perf', '--replay', folder, '-n', RANKS]).output
    jobs = sorted(path for path in pathlib.Path(kept).glob('*') if path.is_dir())
    os.environ['WEFT_COLLNET'] = 'peers'  # for the job whose network reduced
    for job in jobs:
        ranks = len(list(job.glob('*.trace')))
        run(library, [weft, 'perf', '--replay', str(job), '-n', str(ranks), '--stall-timeout', '30'])


if __name__ == '__main__':
    main()
