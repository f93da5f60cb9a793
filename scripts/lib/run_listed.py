# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""usage: run_listed.py LIST LOG [TEST...]

Runs the tests of LIST, or those named, one after the other, where Meson cannot: inside a root of another Debian release, whose
Meson does not read this one's build folder. LIST is JSON, [{"name", "command", "environment", "directory", "timeout"}]; LOG
gets what Meson's own log would have, one JSON object a line. Exit status 0 when all passed.
"""
import json
import os
import pathlib
import subprocess
import sys
import time


def run(test):
    """The log's entry of one test."""
    begin = time.time()
    try:
        done = subprocess.run(test['command'], env={**os.environ, **test['environment']}, cwd=test['directory'],
                              capture_output=True, text=True, errors='replace', timeout=test['timeout'], check=False)
        status, stdout, stderr = done.returncode, done.stdout, done.stderr
        result = 'OK' if status == 0 else 'SKIP' if status == 77 else 'FAIL'
    except subprocess.TimeoutExpired as late:
        status, result = -9, 'TIMEOUT'
        stdout, stderr = ((part or b'').decode(errors='replace') for part in (late.stdout, late.stderr))
    return {'name': test['name'], 'result': result, 'returncode': status, 'stdout': stdout, 'stderr': stderr,
            'duration': time.time() - begin}


def main():
    tests = json.loads(pathlib.Path(sys.argv[1]).read_text())
    names = set(sys.argv[3:])
    tests = [test for test in tests if not names or test['name'] in names]
    bad = 0
    with open(sys.argv[2], 'w', encoding='utf-8') as log:
        for number, test in enumerate(tests, 1):
            entry = run(test)
            log.write(json.dumps(entry) + '\n')
            log.flush()
            print(f'{number:>2}/{len(tests)} {test["name"]:<40} {entry["result"]:<8} {entry["duration"]:7.2f}s', flush=True)
            if entry['result'] not in ('OK', 'SKIP'):
                bad += 1
                print(entry['stdout'] + entry['stderr'], flush=True)
    return 1 if bad else 0


if __name__ == '__main__':
    sys.exit(main())
