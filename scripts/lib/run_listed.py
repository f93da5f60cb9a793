# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""usage: run_listed.py [--num-processes N] LIST LOG [TEST...]

Runs the tests of LIST, or those named, N at a time (1), where Meson cannot: inside a root of another Debian release, whose
Meson does not read this one's build folder. LIST is JSON, [{"name", "command", "environment", "directory", "timeout"}]; LOG
gets what Meson's own log would have, one JSON object a line. Exit status 0 when all passed.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import signal
import subprocess
import sys
import time


def run(test):
    """The log's entry of one test."""
    begin = time.time()
    with subprocess.Popen(test['command'], env={**os.environ, **test['environment']}, cwd=test['directory'], text=True, errors='replace',
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True) as process:
        try:
            stdout, stderr = process.communicate(timeout=test['timeout'])
            status = process.returncode
            result = 'OK' if status == 0 else 'SKIP' if status == 77 else 'FAIL'
        except subprocess.TimeoutExpired as late:
            os.killpg(process.pid, signal.SIGKILL)  # with what it started, which would disturb the next tests
            status, result = -9, 'TIMEOUT'
            stdout, stderr = ((part or b'').decode(errors='replace') for part in (late.stdout, late.stderr))
    return {'name': test['name'], 'result': result, 'returncode': status, 'stdout': stdout, 'stderr': stderr,
            'duration': time.time() - begin}


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument('--num-processes', type=int, default=1)
    parser.add_argument('list', type=pathlib.Path)
    parser.add_argument('log', type=pathlib.Path)
    parser.add_argument('names', nargs='*')
    options = parser.parse_args()
    tests = [test for test in json.loads(options.list.read_text()) if not options.names or test['name'] in options.names]
    bad = 0
    with (options.log.open('w', encoding='utf-8') as log,
          concurrent.futures.ThreadPoolExecutor(options.num_processes) as workers):
        under_way = [workers.submit(run, test) for test in tests]
        for number, done in enumerate(concurrent.futures.as_completed(under_way), 1):
            entry = done.result()
            log.write(json.dumps(entry) + '\n')
            log.flush()
            print(f'{number:>2}/{len(tests)} {entry["name"]:<40} {entry["result"]:<8} {entry["duration"]:7.2f}s', flush=True)
            if entry['result'] not in ('OK', 'SKIP'):
                bad += 1
                print(entry['stdout'] + entry['stderr'], flush=True)
    return 1 if bad else 0


if __name__ == '__main__':
    sys.exit(main())
