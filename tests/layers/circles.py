# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""Units that include each other in a circle. A unit is a header with the source of its name: what either of them includes, the unit
depends on. In a circle nothing can be understood, or tested, before the rest."""
import rooms
import source

# Rooms without one, and none may come. The others still have some; a room that gets rid of them is entered here.
WITHOUT = ('include/weft/', 'src/agg/', 'src/base/', 'src/coll/', 'src/control/', 'src/core/', 'src/topo/', 'src/tuner/', 'providers/common/', 'plugin/')


def unit_of(path):
    return path.rpartition('.')[0]


def graph(texts):
    """{unit: units it includes} of {path: text}; only units that are in it."""
    units = {unit_of(path) for path in texts}
    edges = {unit: set() for unit in units}
    for path, text in texts.items():
        wanted = {unit_of(rooms.own_path(header)) for _, kind, header in source.includes(text) if kind == '"'}
        edges[unit_of(path)] |= (wanted & units) - {unit_of(path)}
    return edges


def reachable(edges, start):
    found, todo = set(), [start]
    while todo:
        for unit in edges[todo.pop()] - found:
            found.add(unit)
            todo.append(unit)
    return found


def circles(edges):
    """Sorted lists of units that reach each other, each at least two units long."""
    beyond = {unit: reachable(edges, unit) for unit in edges}
    groups = {tuple(sorted(other for other in edges if other in beyond[unit] and unit in beyond[other])) for unit in edges}
    return sorted(list(group) for group in groups if len(group) > 1)


def check(texts, without=WITHOUT):
    """Complaints about circles in these rooms; `texts` is {path: text} of all sources."""
    for room in without:
        inside = {path: text for path, text in texts.items() if path.startswith(room) and path.endswith(('.h', '.cc'))}
        for circle in circles(graph(inside)):
            names = ', '.join(unit.removeprefix(room) for unit in circle)
            yield f'{room}: a circle of {len(circle)} units that include each other: {names}'
