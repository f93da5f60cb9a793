# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""usage: check_libfabric.py LIBRARY_FOLDER

The installed libfabric's own programs, unmodified, on the software EFA device: what fi_info lists, and fi_pingpong
between two virtual hosts, with its data check, plain and with faults.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / 'scripts' / 'lib'))
from ports import free_port

PATIENCE = 100  # seconds for a program that takes one or two
ENOUGH = 60  # seconds for faults to show
FABRIC = f'libfabric-{os.getpid()}'


def settings(library, host, more):
    return {**os.environ, 'LD_LIBRARY_PATH': library, 'SOFTEFA_FABRIC': FABRIC, 'SOFTEFA_HOST': host,
            'SOFTEFA_STATISTICS': '1', **more}


def listed(library, more):
    result = subprocess.run(['fi_info', '-p', 'efa', '-v'], env=settings(library, 'a', more), capture_output=True, text=True,
                            timeout=PATIENCE, check=False)
    return result.returncode, result.stdout + result.stderr


def wait_for_port(port, server):
    end = time.monotonic() + PATIENCE
    listening = f':{port:04X} '
    while time.monotonic() < end and server.poll() is None:
        for line in pathlib.Path('/proc/net/tcp').read_text().splitlines() + pathlib.Path('/proc/net/tcp6').read_text().splitlines():
            fields = line.split()
            if fields[3] == '0A' and (fields[1] + ' ').endswith(listening):
                return
        time.sleep(0.02)
    raise AssertionError('the server of fi_pingpong does not listen')


def pingpong(library, kind, sizes, count, faults=''):
    """Output of both ends; fails when one of them does."""
    port = free_port()
    command = ['fi_pingpong', '-p', 'efa', '-e', kind, '-c', '-I', str(count), '-S', sizes]
    more = {'SOFTEFA_FAULTS': faults}
    with subprocess.Popen([*command, '-B', str(port)], env=settings(library, 'a', more), stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True) as server:
        try:
            wait_for_port(port, server)
            client = subprocess.run([*command, '-P', str(port), '127.0.0.1'], env=settings(library, 'b', more),
                                    capture_output=True, text=True, timeout=PATIENCE, check=False)
            output = client.stdout + client.stderr + server.communicate(timeout=PATIENCE)[0]
        finally:
            server.kill()
    assert client.returncode == 0 and server.returncode == 0, f'{kind} {sizes} {faults}:\n{output}'
    return output


def count_of(output, what):
    return sum(int(number) for number in re.findall(rf'{what} (\d+)', output))


def check_listing(library):
    status, text = listed(library, {})
    assert status == 0 and 'FI_EP_RDM' in text and 'FI_EP_DGRAM' in text, text
    status, text = listed(library, {'SOFTEFA_NICS': '4', 'SOFTEFA_PCI': '0000:c3:1a.0'})
    assert status == 0 and len(set(re.findall(r'rdmap\w+-rdm', text))) == 4, text
    assert 'rdmap195s26-rdm' in text, text
    assert listed(library, {'SOFTEFA_NICS': '0'})[0] != 0, 'no NIC, and yet the provider is listed'


def largest_message():
    """From 2.0 on fi_pingpong takes the first provider in the list, efa-direct, which sends no more than fits a packet."""
    text = subprocess.run(['fi_info', '--version'], capture_output=True, text=True, timeout=PATIENCE, check=True).stdout
    return '1048576' if int(re.search(r'libfabric: (\d+)', text)[1]) < 2 else '8192'


def check_pingpongs(library):
    largest = largest_message()
    for kind, sizes in (('rdm', '64'), ('rdm', '8192'), ('rdm', largest), ('dgram', '64'), ('dgram', '8192')):
        output = pingpong(library, kind, sizes, 20)
        assert count_of(output, 'received') >= 40, output  # one a message, each way
    # One message is under way at a time, and the direct fabric sends one in one packet, which nothing can overtake.
    if largest == '1048576':
        check_faults(library, largest, 20, ('held', 'lost', 'out of order'))
    else:
        check_faults(library, largest, 200, ('held', 'lost'))


def check_faults(library, sizes, count, wanted):
    """On a busy machine those that are held may have gone before another packet comes, so it is tried again, and they are held longer."""
    output, longest, end = '', 1, time.monotonic() + ENOUGH
    while missing := [what for what in wanted if count_of(output, what) == 0]:
        assert time.monotonic() < end, f'no packet was {" or ".join(missing)}:\n{output}'
        output += pingpong(library, 'rdm', sizes, count, f'reorder=30 reorder_time={longest}ms loss=2')
        longest = min(2 * longest, 50)


def main():
    library = sys.argv[1]
    for program in ('fi_info', 'fi_pingpong'):
        assert shutil.which(program), f'{program} is missing: apt-get install libfabric-bin'
    try:
        check_listing(library)
        check_pingpongs(library)
    finally:
        shutil.rmtree(f'/dev/shm/softefa-{os.getuid()}/{FABRIC}', ignore_errors=True)


if __name__ == '__main__':
    main()
