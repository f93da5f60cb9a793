# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""For scripts/nic-check: NCCL over weft on the cards, and beside it NCCL's own transport over them and aws-ofi-nccl, where they are there."""
import os
import tempfile

import gpu_parts
import nccl_group
import nccl_host
import nic_card
from check_parts import last_lines

ANSWER_SECONDS = 30
OPERATIONS = ('all_reduce', 'send_recv', 'all_to_all')
SIZES = ((8, '8 B'), (1 << 20, '1 MiB'), (16 << 20, '16 MiB'))
AWS_OFI = ('libnccl-net-ofi.so', 'libnccl-net.so')


def aws_ofi(check):
    """The file of aws-ofi-nccl, '' where there is none: as it is named, or as the loader finds it."""
    if check.options.aws_ofi:
        return check.options.aws_ofi
    return next((file for name in AWS_OFI for file in nccl_host.loader_files(name)), '')


def transports(check, fabric):
    """(name, plugin, settings, what NCCL's log has to say)"""
    yield 'weft', str(check.plugin), {'NCCL_NET': 'weft', **check.over(fabric)}, 'via NET/weft'
    yield 'built-in', 'none', {'NCCL_NET': 'IB'}, 'via NET/IB'
    plugin = aws_ofi(check)
    if plugin:
        yield 'aws-ofi-nccl', plugin, {'FI_EFA_ENABLE_SHM_TRANSFER': '0'}, 'via NET/'
    else:
        check.note('nccl', f'left out: aws-ofi-nccl: the loader finds no {" and no ".join(AWS_OFI)}; --aws-ofi FILE names it')


def begin(check, host, folder, transport):
    """A group that is up and has used that transport, or None."""
    name, plugin, settings, says = transport
    environment = {**check.environment(), **host.environment(plugin)}
    environment['LD_LIBRARY_PATH'] = ':'.join(filter(None, [host.runtime_folder, check.base.get('LD_LIBRARY_PATH') or os.environ.get('LD_LIBRARY_PATH')]))
    environment.update({**check.base, 'LD_LIBRARY_PATH': environment['LD_LIBRARY_PATH'], 'WEFT_LOCAL': 'off', **settings})
    environment.setdefault('NCCL_SOCKET_IFNAME', 'lo')
    program = [str(check.build / 'tests' / 'nccl' / 'nccl-time'), host.library.file]
    group = nccl_group.Group(name, program, folder, lambda rank: {**environment, 'NCCL_HOSTID': f'nic-check-{rank}'}, host.device, 2, seconds=check.left(ANSWER_SECONDS))
    try:
        group.ready()
        group.check('all_reduce', 65536)
        said = '\n'.join(group.lines('.'))
        if says not in said:
            raise nccl_group.GroupFailed(f'{name}: no channel went {says}\n{last_lines(said)}')
        return group
    except nccl_group.GroupFailed as failure:
        group.kill()
        if name == 'weft':
            check.judge('nccl', 'two ranks over weft', [str(failure)], 0)
        else:
            check.note('nccl', f'left out: {name}: {" / ".join(str(failure).splitlines()[:2])}')
        return None


def nccl(check):
    """Microseconds of an operation, and how many times as fast as each of the others, in turn."""
    if nic_card.without_cards(check, 'nccl'):
        return
    if not (check.build / 'tests' / 'nccl' / 'nccl-time').exists():
        check.note('nccl', 'left out: tests/nccl/nccl-time is not built')
        return
    try:
        host = nccl_host.Host(check.build / 'tests' / 'softgpu', check.options.nccl, check.options.python)
    except nccl_host.CannotRun as reason:
        check.note('nccl', f'left out: {reason}')
        return
    fabric = next(iter(check.tried()))
    check.note('nccl', f'{nccl_host.version_text(host.library.version)}, {host.library.file}, two ranks of this host as two nodes' + (', A SOFTWARE GPU' if host.software else ''))
    groups = []
    with tempfile.TemporaryDirectory(prefix='nic-check-') as folder:
        try:
            for transport in transports(check, fabric):
                check.left(30)
                groups.append(begin(check, host, folder, transport))
            groups = [group for group in groups if group]
            if groups and groups[0].name == 'weft':
                table(check, groups)
            for group in groups:
                check.wrong += group.end()
        except nccl_group.GroupFailed as failure:
            check.judge('nccl', 'nccl-time', [str(failure)], 0)
        finally:
            for group in filter(None, groups):
                group.kill()


def table(check, groups):
    for operation in OPERATIONS:
        for size, text in SIZES:
            check.left(30)
            best = gpu_parts.best_times(groups, operation, size)
            ours = best.pop('weft')
            check.note('nccl', f'{operation:12}{text:>7}  weft {ours:.1f} us' + ''.join(f', {name} {value:.1f} us ({value / ours:.2f})' for name, value in best.items()))
    check.judge('nccl', 'every element of every result', [], 0)
