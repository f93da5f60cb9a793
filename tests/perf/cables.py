# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""Two hosts (network namespaces host0 and host1) with several cables between them, each a network of its own that can be cut."""
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
        for name in self.names:
            check_hosts.ip('link', 'add', f'{name}-0', 'type', 'veth', 'peer', 'name', f'{name}-1')
            for host in range(2):
                inside = ('-n', f'host{host}')
                check_hosts.ip('link', 'set', f'{name}-{host}', 'netns', f'host{host}')
                check_hosts.ip(*inside, 'link', 'set', f'{name}-{host}', 'name', name)
                check_hosts.ip(*inside, 'addr', 'add', f'{self.address(name, host)}/24', 'dev', name)
                check_hosts.ip(*inside, 'link', 'set', name, 'up')

    def lose(self, name, host):
        """What the host sends over this cable vanishes on it: the links stay up, as behind a switch that fails."""
        check_hosts.ip('-n', f'host{host}', 'neigh', 'replace', self.address(name, 1 - host), 'lladdr', NOWHERE, 'nud', 'permanent', 'dev', name)

    def find(self, name, host):
        check_hosts.ip('-n', f'host{host}', 'neigh', 'del', self.address(name, 1 - host), 'dev', name)

    def refuse(self, name, host):
        """The host's own firewall drops what it sends over this cable."""
        check_hosts.ip('-n', f'host{host}', 'route', 'add', 'blackhole', self.address(name, 1 - host))

    def allow(self, name, host):
        check_hosts.ip('-n', f'host{host}', 'route', 'del', 'blackhole', self.address(name, 1 - host))
