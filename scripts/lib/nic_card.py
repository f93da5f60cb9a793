# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""For scripts/nic-check: what cards say of themselves, and what weft's discovery makes of each of them."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import time

from check_parts import OutOfTime, failures

SYSFS = pathlib.Path('/sys/class/infiniband')
# Those that drive cards; the others are for sockets and shared memory.
CARD_FABRICS = ('ofi:efa-direct', 'ofi:efa', 'verbs', 'ofi:verbs;ofi_rxm')
OF_A_CARD = ('hca_type', 'board_id', 'fw_ver', 'node_desc')
OF_A_PORT = ('state', 'phys_state', 'rate', 'link_layer')
OF_PCI = ('vendor', 'device', 'current_link_speed', 'current_link_width', 'max_link_speed', 'max_link_width', 'numa_node')
# (program, arguments, which package has it)
TOOLS = (('ibv_devinfo', ['-v'], 'ibverbs-utils'), ('rdma', ['link', 'show'], 'iproute2'), ('rdma', ['dev', 'show'], 'iproute2'),
         ('rdma', ['statistic', 'show'], 'iproute2'), ('fi_info', ['-p', 'efa', '-v'], 'libfabric-bin'), ('fi_info', ['-p', 'verbs', '-v'], 'libfabric-bin'),
         ('ibstat', [], 'infiniband-diags'), ('lspci', ['-vvv'], 'pciutils'), ('numactl', ['--hardware'], 'numactl'), ('ip', ['-d', 'address'], 'iproute2'),
         ('nvidia-smi', ['topo', '-m'], 'NVIDIA\'s driver'), ('lsmod', [], 'kmod'), ('dmesg', [], 'util-linux'))
OF_A_NETDEV = (('ethtool', ['-i']), ('ethtool', []), ('ethtool', ['-S']), ('ethtool', ['-a']))
MISSING = 'is missing'
NOT_FOR_VERBS = 'neither InfiniBand nor RoCE'
TELLING = re.compile(r'mlx[45]|bnxt|irdma|\befa\b|infiniband|rdma|nvidia.peermem|AER|PCIe Bus Error|DMAR|IOMMU', re.I)


def without_cards(check, head):
    if not check.fabrics:
        check.note(head, 'left out: no card is taken, see discovery')
    return not check.fabrics


def reasons(statuses, texts):
    """As failures, with the last telling line of each first."""
    found = failures(statuses, texts)
    return [f'{head}: {rest.splitlines()[-1].strip() if rest else "it said nothing"}\n{rest}' for head, _, rest in (each.partition('\n') for each in found)]


def read(file):
    try:
        return file.read_text(errors='replace').strip()
    except OSError:
        return ''


def cards():
    """Names of the RDMA cards that the kernel shows."""
    return sorted(entry.name for entry in SYSFS.iterdir()) if SYSFS.is_dir() else []


def netdevs(card):
    """Interfaces of a card: those beside it on the PCI bus, or which its GIDs name."""
    top = SYSFS / card
    named = {read(file) for file in top.glob('ports/*/gid_attrs/ndevs/*')} - {''}
    beside = {entry.name for entry in top.glob('device/net/*')}
    return sorted(named | beside)


def is_software(card):
    """SoftRoCE and its like are on no bus."""
    return not (SYSFS / card / 'device').exists()


def roce_gid(card, port):
    """The index of the first RoCE v2 GID of an IPv4 address, '' where there is none."""
    folder = SYSFS / card / 'ports' / str(port)
    for index in sorted(folder.glob('gid_attrs/types/*'), key=lambda file: int(file.name)):
        if read(index) == 'RoCE v2' and read(folder / 'gids' / index.name).startswith('0000:0000:0000:0000:0000:ffff:'):
            return index.name
    return ''


def describe(card):
    """Everything that sysfs says, and a line of it."""
    top, said = SYSFS / card, []
    facts = {name: read(top / name) for name in OF_A_CARD}
    facts.update({name: read(top / 'device' / name) for name in OF_PCI})
    driver = os.path.basename(os.path.realpath(top / 'device' / 'driver')) if (top / 'device' / 'driver').exists() else ''
    said += [f'{name:20} {value}' for name, value in (('driver', driver), *facts.items())]
    ports = []
    for port in sorted((top / 'ports').glob('*')):
        values = {name: read(port / name) for name in OF_A_PORT}
        said += [f'port {port.name} {name:13} {value}' for name, value in values.items()]
        said += [f'port {port.name} counter {file.name:24} {read(file)}' for file in sorted((*port.glob('counters/*'), *port.glob('hw_counters/*')))]
        ports.append(f'port {port.name} {values["state"]}, {values["rate"]}, {values["link_layer"]}')
    bus = f'PCIe {facts["current_link_speed"]} x{facts["current_link_width"]} of {facts["max_link_speed"]} x{facts["max_link_width"]}, NUMA node {facts["numa_node"]}'
    what = 'A CARD IN SOFTWARE' if is_software(card) else f'{driver} {facts["hca_type"] or facts["device"]}, firmware {facts["fw_ver"] or "not said"}, {bus}'
    return said, f'{card}: {what}; {"; ".join(ports) or "no port"}; {", ".join(netdevs(card)) or "no interface"}'


def save(check, name, text):
    (check.folder_for('card') / name).write_text(text)


def run_tool(check, command):
    """Its output goes into the folder; why there is none."""
    if not shutil.which(command[0], path=os.environ.get('PATH', '') + ':/sbin'):
        return MISSING
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors='replace', check=False, timeout=check.left(20),
                              env=check.environment() if command[0] == 'fi_info' else None)
    except subprocess.TimeoutExpired:
        return 'did not end'
    text = done.stdout
    if command[0] == 'dmesg':
        text = '\n'.join(line for line in text.splitlines() if TELLING.search(line))
    save(check, re.sub(r'[^A-Za-z0-9]+', '-', ' '.join(command)).strip('-') + '.txt', f'$ {" ".join(command)}\n{text}{done.stderr}')
    return '' if done.returncode == 0 else f'says "{(done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]}"'


def what_cards_say(check):
    """Sysfs, and every tool that is there."""
    for name in cards():
        said, line = describe(name)
        save(check, f'{name}.txt', '\n'.join(said) + '\n')
        check.note('card', line)
    if not cards():
        check.note('card', f'{SYSFS} shows none' + (f': they are played by {check.played_by}, through libibverbs alone' if check.played_by else ''))
    save(check, 'machine.txt', '\n'.join([' '.join(os.uname()), f'page size {os.sysconf("SC_PAGE_SIZE")}', read(pathlib.Path('/proc/cmdline')),
                                          read(pathlib.Path('/proc/self/limits'))]) + '\n')
    missing, failed = set(), []
    commands = [([tool, *arguments], package) for tool, arguments, package in TOOLS]
    commands += [([tool, *arguments, netdev], 'ethtool') for name in cards() for netdev in netdevs(name) for tool, arguments in OF_A_NETDEV]
    for command, package in commands:
        try:
            why = run_tool(check, command)
        except OutOfTime:
            why = 'comes too late: the time of this part is over'
        if why == MISSING:
            missing.add((command[0], package))
        elif why:
            failed.append((command, why))
    if missing:
        check.note('card', f'left out, as they are missing: {", ".join(f"{name} ({package})" for name, package in sorted(missing))}')
    for command, why in failed:
        check.note('card', f'left out: {" ".join(command)} {why}')


def ask(check, settings=None, seconds=60):
    """What `weft info --json` says, or None and why."""
    statuses, texts, took = check.ranks('discovery', [[check.build / 'tools' / 'weft', 'info', '--json']], [check.environment(settings=settings)], seconds)
    begin = texts[0].find('{\n')
    if statuses != [0] or begin < 0:
        return None, reasons(statuses, texts) or ['it said nothing'], took
    return json.JSONDecoder().raw_decode(texts[0][begin:])[0], [], took


def fabrics_with_cards(said):
    """{fabric: names of its cards}, the best first."""
    return {each['provider']: [device['name'] for device in each['devices']] for each in said['providers'] if each['provider'] in CARD_FABRICS and each['devices']}


def refused(said):
    """'what: why' of all that discovery tried for cards and did not take."""
    lines = []
    for each in said['providers']:
        if each['provider'] in CARD_FABRICS:
            lines += [f'{one["what"]}: {one["why"]}' for one in each['refused']]
            lines += [f'{each["provider"]}: {each["failure"]}'] if not each['devices'] and not each['refused'] else []
    return lines


def cards_refused(said):
    """Cards that libibverbs shows and no fabric of weft takes: 'verbs NAME:PORT' is such a one."""
    taken = {name.partition(':')[0] for names in fabrics_with_cards(said).values() for name in names}
    lines = [(re.match(r'verbs (\S+?):(\d+): ', line), line) for line in refused(said)]
    lines = [line for found, line in lines if found and found[1] not in taken and not meant(found[1], line)]
    return sorted(lines, key=lambda line: NOT_FOR_VERBS in line)  # which says least of an EFA card


def meant(card, line):
    """A card that somebody keeps from us: by WEFT_HCA, or as its interfaces are in another network namespace."""
    names = netdevs(card)
    return 'WEFT_HCA' in line or (bool(names) and not any((pathlib.Path('/sys/class/net') / name).exists() for name in names))


def discovery(check):
    """Every trial with its result; a card that is there and that nothing takes is wrong."""
    said, wrong, took = check.said, check.why_nothing_said, check.asking_took
    if said:
        for fabric, names in fabrics_with_cards(said).items():
            check.note('discovery', f'{"> " if fabric == said["taken"] else ""}{fabric} takes {", ".join(names)}')
        for line in refused(said):
            check.note('discovery', f'refused {line}')
        for device in said['devices']:
            check.note('discovery', f'NCCL is told {device["name"]}: {device["speedMbps"]} Mb/s, {"+".join(device["pointers"])}, flush '
                                    f'{"forced" if device["forceFlush"] else "as needed"}, {"lines of 128 B in order" if device["lines128InOrder"] else "no order"}')
        wrong = cards_refused(said) + ([] if said['taken'] in CARD_FABRICS else [f'weft takes {said["taken"] or "nothing"}, which is no card'])
    check.judge('discovery', 'weft info', wrong, took)
    log = {'WEFT_DEBUG': 'TRACE', 'NCCL_DEBUG': 'TRACE', **check.patience}
    check.ranks('discovery log', [[check.build / 'tools' / 'weft', 'info'], [check.build / 'tools' / 'weft', 'info', '--config']], [check.environment(settings=log)] * 2, 30)
    if check.peer:
        there(check)
    doctor(check)


def there(check):
    """Discovery on the other host, whose cards have to be of a fabric that is here too."""
    begin = time.monotonic()
    job = check.peer.start([check.peer.build / 'tools' / 'weft', 'info', '--json'], check.settings_there({}), check.left(30))
    while job.poll() is None and time.monotonic() < begin + 30:
        time.sleep(0.1)
    text = job.text()
    job.kill()
    save(check, 'peer.txt', text)
    start, what = text.find('{\n'), f'weft info on {check.peer.address}'
    if job.poll() != 0 or start < 0:
        check.judge('discovery', what, [(text.strip().splitlines() or ['it said nothing'])[-1]], time.monotonic() - begin)
        return
    said = json.JSONDecoder().raw_decode(text[start:])[0]
    theirs = fabrics_with_cards(said)
    for fabric, names in theirs.items():
        check.note('discovery', f'{check.peer.address}: {fabric} takes {", ".join(names)}')
    wrong = [] if set(theirs) & set(check.fabrics) else [f'no fabric of the cards here is there: {", ".join(refused(said))[:300] or "none"}']
    if said['versions'] != check.said['versions']:
        check.note('discovery', f'versions differ: here {check.said["versions"]}, there {said["versions"]}')
    check.judge('discovery', what, wrong, time.monotonic() - begin)


def doctor(check):
    """What it finds is told; whether it fits the job is not this script's to judge."""
    command = [check.build / 'tools' / 'weft', 'doctor', '--json', '--job', *(['--hosts', check.peer.address] if check.peer else [])]
    statuses, texts, _ = check.ranks('doctor', [command], [check.environment(settings={'NCCL_NET_PLUGIN': str(check.plugin)})], 60)
    begin = texts[0].find('{\n')
    if statuses[0] not in (0, 3, 4) or begin < 0:
        check.judge('doctor', 'weft doctor', reasons(statuses, texts), 0)
        return
    for host in json.JSONDecoder().raw_decode(texts[0][begin:])[0]['hosts']:
        for finding in host['findings']:
            if finding['severity'] in ('warning', 'error'):
                check.note('doctor', f'{finding["severity"]}: {finding["topic"]}: {finding["what"]}: {finding["evidence"]}')
