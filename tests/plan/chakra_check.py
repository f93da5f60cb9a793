#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""Reads the Chakra traces that `weft plan --chakra` writes by Google's Protocol Buffers, with the fields of Chakra's schema.

usage: chakra_check.py WEFT JOB CLUSTER

Exit status 77, which is "skipped", where Python has no protobuf.
"""
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
COMPUTE, COLLECTIVE = 4, 7


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
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName('check.' + name)) for name in FIELDS}


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


def main(arguments):
    if len(arguments) != 3:
        sys.exit(__doc__)
    weft, job, cluster = arguments
    kinds = classes()
    with tempfile.TemporaryDirectory() as top:
        name = pathlib.Path(top) / 'job'
        subprocess.run([weft, 'plan', job, '--cluster', cluster, '-n', '2', '--chakra', name], check=True, timeout=60, stdout=subprocess.DEVNULL)
        head, *bodies = parts(pathlib.Path(f'{name}.1.et').read_bytes())
    demand(kinds['GlobalMetadata'].FromString(head).version == '0.0.4', 'the head has no version')
    nodes = [kinds['Node'].FromString(body) for body in bodies]
    demand([node.id for node in nodes] == list(range(len(nodes))), 'nodes are not numbered in order')
    demand(all(before < node.id for node in nodes for before in node.data_deps), 'a node waits for a later one')
    for node in nodes:
        attributes = {attribute.name: attribute for attribute in node.attr}
        demand(node.type in (COMPUTE, COLLECTIVE), f'{node.name} is of type {node.type}')
        demand('is_cpu_op' in attributes, f'{node.name} does not say where it runs')
        demand(node.type == COMPUTE or attributes['comm_size'].int64_val > 0, f'{node.name} has no size')
    print(f'{len(nodes)} nodes')


if __name__ == '__main__':
    main(sys.argv[1:])
