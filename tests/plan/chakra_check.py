#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""Reads the Chakra traces that `weft plan --chakra` writes by Google's Protocol Buffers, with the fields of Chakra's schema.

usage: chakra_check.py WEFT JOB CLUSTER RECORDER PLUGIN

The second half records four ranks of `weft perf` and exports what they sent each other. Exit status 77, which is "skipped", where Python has no protobuf.
"""
import collections
import os
import pathlib
import subprocess
import sys
import tempfile

try:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
except ImportError:
    print('skipped: Python has no protobuf')
    sys.exit(77)

UINT64, STRING, BOOL, INT64, MESSAGE, INT32 = 4, 9, 8, 3, 11, 5
FIELDS = {  # message: [(name, number, type, repeated)]
    'GlobalMetadata': [('version', 1, STRING, False)],
    'AttributeProto': [('name', 1, STRING, False), ('int64_val', 9, INT64, False), ('bool_val', 27, BOOL, False)],
    'Node': [('id', 1, UINT64, False), ('name', 2, STRING, False), ('type', 3, INT32, False), ('data_deps', 5, UINT64, True),
             ('duration_micros', 7, UINT64, False), ('attr', 10, MESSAGE, True)],
}
COMPUTE, SEND, RECEIVE, COLLECTIVE = 4, 5, 6, 7
RANKS = 4


def classes():
    file = descriptor_pb2.FileDescriptorProto(name='et.proto', package='check', syntax='proto3')
    for name, fields in FIELDS.items():
        message = file.message_type.add(name=name)
        for field, number, kind, repeated in fields:
            added = message.field.add(name=field, number=number, type=kind, label=3 if repeated else 1)
            if kind == MESSAGE:
                added.type_name = '.check.AttributeProto'
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    # Before release 4.22 a class was made by a factory.
    made = getattr(message_factory, 'GetMessageClass', None) or message_factory.MessageFactory(pool).GetPrototype
    return {name: made(pool.FindMessageTypeByName('check.' + name)) for name in FIELDS}


def parts(data):
    """The messages of a file, each after its length as a varint."""
    at = 0
    while at < len(data):
        length, shift = 0, 0
        while True:
            byte = data[at]
            at += 1
            length |= (byte & 0x7f) << shift
            shift += 7
            if byte < 0x80:
                break
        yield data[at:at + length]
        at += length


def demand(condition, what):
    if not condition:
        sys.exit(f'FAILED: {what}')


def nodes_of(kinds, path):
    head, *bodies = parts(path.read_bytes())
    demand(kinds['GlobalMetadata'].FromString(head).version == '0.0.4', 'the head has no version')
    nodes = [kinds['Node'].FromString(body) for body in bodies]
    demand([node.id for node in nodes] == list(range(len(nodes))), 'nodes are not numbered in order')
    demand(all(before < node.id for node in nodes for before in node.data_deps), 'a node waits for a later one')
    return nodes


def check_recorded(kinds, weft, cluster, recorder, plugin, top):
    """Each message that a rank sends another is received there, with the same tag and size."""
    traces, name = top / 'traces', top / 'recorded'
    traces.mkdir()
    clean = {key: value for key, value in os.environ.items() if not key.startswith('WEFT_')}
    subprocess.run([weft, 'perf', 'all_reduce', '-n', str(RANKS), '-c', '0', '-w', '0', '--iters', '2', '-b', '64K', '-e', '1M', '-f', '16', '--plugin', recorder],
                   check=True, timeout=120, stdout=subprocess.DEVNULL,
                   env={**clean, 'WEFT_PROVIDER': 'tcp', 'WEFT_RECORD_DIR': str(traces), 'WEFT_RECORD_PLUGIN': str(plugin)})
    subprocess.run([weft, 'plan', traces, '--cluster', cluster, '-n', str(RANKS), '--chakra', name], check=True, timeout=60, stdout=subprocess.DEVNULL)
    balance, pairs = collections.Counter(), set()
    for rank in range(RANKS):
        for node in nodes_of(kinds, pathlib.Path(f'{name}.{rank}.et')):
            if node.type == COMPUTE:
                continue
            demand(node.type in (SEND, RECEIVE), f'{node.name} is of type {node.type}')
            source, target, tag, size = ({a.name: a.int64_val for a in node.attr}[key] for key in ('comm_src', 'comm_dst', 'comm_tag', 'comm_size'))
            demand(rank == (source if node.type == SEND else target), 'a message is on a rank that is not its own')
            pairs.add((source, target))
            balance[source, target, tag, size] += 1 if node.type == SEND else -1
    demand(len(pairs) == RANKS, f'a ring of {RANKS} ranks has messages of {len(pairs)} pairs')
    demand(not any(balance.values()), 'a message is not received as it was sent')
    print(f'{len(balance)} recorded messages between {RANKS} ranks')


def main(arguments):
    if len(arguments) != 5:
        sys.exit(__doc__)
    weft, job, cluster, recorder, plugin = arguments
    kinds = classes()
    with tempfile.TemporaryDirectory() as top:
        name = pathlib.Path(top) / 'job'
        subprocess.run([weft, 'plan', job, '--cluster', cluster, '-n', '2', '--chakra', name], check=True, timeout=60, stdout=subprocess.DEVNULL)
        nodes = nodes_of(kinds, pathlib.Path(f'{name}.1.et'))
        check_recorded(kinds, weft, cluster, recorder, plugin, pathlib.Path(top))
    for node in nodes:
        attributes = {attribute.name: attribute for attribute in node.attr}
        demand(node.type in (COMPUTE, COLLECTIVE), f'{node.name} is of type {node.type}')
        demand('is_cpu_op' in attributes, f'{node.name} does not say where it runs')
        demand(node.type == COMPUTE or attributes['comm_size'].int64_val > 0, f'{node.name} has no size')
    print(f'{len(nodes)} nodes')


if __name__ == '__main__':
    main(sys.argv[1:])
