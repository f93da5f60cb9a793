# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""Two hosts (network namespaces host0 and host1) with several cables between them, each a network of its own that can be cut."""
import subprocess

import check_hosts

NOWHERE = '02:00:00:00:00:01'  # a card that is not there


class Cables:
    """One network a name. In the network of number N, host H has the address PREFIX.N.(H + 1), on an interface of the network's name."""

    def __init__(self, names, prefix):
        self.names = names
        self.prefix = prefix

    def address(self, name, host):
        return f'{self.prefix}.{self.names.index(name)}.{host + 1}'

    def lay(self):
        for host in range(2):
            check_hosts.ip('netns', 'add', f'host{host}')
            check_hosts.ip('-n', f'host{host}', 'link', 'set', 'lo', 'up')
            self.recover_soon(host)
        for name in self.names:
            check_hosts.ip('link', 'add', f'{name}-0', 'type', 'veth', 'peer', 'name', f'{name}-1')
            for host in range(2):
                inside = ('-n', f'host{host}')
                check_hosts.ip('link', 'set', f'{name}-{host}', 'netns', f'host{host}')
                check_hosts.ip(*inside, 'link', 'set', f'{name}-{host}', 'name', name)
                check_hosts.ip(*inside, 'addr', 'add', f'{self.address(name, host)}/24', 'dev', name)
                check_hosts.ip(*inside, 'link', 'set', name, 'up')

    def recover_soon(self, host):
        """BBR, which hosts may have as their default, paces by what it measured: after a cable was cut it was seen to hold data back for 28 s."""
        for control in ('cubic', 'reno'):
            setting = ['sh', '-c', f'echo {control} >/proc/sys/net/ipv4/tcp_congestion_control']
            if subprocess.run(['nsenter', f'--net=/run/netns/host{host}', *setting], check=False, capture_output=True, timeout=30).returncode == 0:
                return

    def change(self, names, hosts, command):
        """At once for all cables of a host. Without `ip -n`, which mounts and unmounts: on a busy machine that takes seconds, and the outage too."""
        for host in hosts:
            lines = [command.format(other=self.address(name, 1 - host), name=name) for name in names]
            subprocess.run(['nsenter', f'--net=/run/netns/host{host}', 'ip', '-batch', '-'], input='\n'.join(lines), text=True, check=True, timeout=30)

    def lose(self, names, hosts):
        """What these hosts send over these cables vanishes on them: the links stay up, as behind a switch that fails."""
        self.change(names, hosts, f'neigh replace {{other}} lladdr {NOWHERE} nud permanent dev {{name}}')

    def find(self, names, hosts):
        self.change(names, hosts, 'neigh del {other} dev {name}')

    def refuse(self, names, hosts):
        """The hosts' own firewalls drop what they send over these cables."""
        self.change(names, hosts, 'route add blackhole {other}')

    def allow(self, names, hosts):
        self.change(names, hosts, 'route del blackhole {other}')
