#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""Writes the bill of materials of weft as SPDX 2.3 JSON: what is inside the binaries, and what they open at run time.

usage: make_sbom.py VERSION COMMIT OUTPUT NAME=VERSION...

NAME is one of those below. The document says when it was made only by SOURCE_DATE_EPOCH, so that one commit makes one document.
"""
import datetime
import json
import os
import pathlib
import sys

# (name, licence, supplier, how it stands to weft)
PARTS = {
    'libstdc++': ('GPL-3.0-only WITH GCC-exception-3.1', 'Organization: GNU project', 'STATIC_LINK'),
    'libsodium': ('ISC', 'NOASSERTION', 'STATIC_LINK'),
    'libfabric': ('BSD-2-Clause OR GPL-2.0-only', 'Organization: OpenFabrics Interfaces', 'OPTIONAL_DEPENDENCY_OF'),
    'libibverbs': ('GPL-2.0-only OR Linux-OpenIB', 'Organization: linux-rdma', 'OPTIONAL_DEPENDENCY_OF'),
    'fmt': ('MIT', 'NOASSERTION', 'STATIC_LINK'),
    'CLI11': ('BSD-3-Clause', 'NOASSERTION', 'STATIC_LINK'),
    'nlohmann_json': ('MIT', 'NOASSERTION', 'STATIC_LINK'),
}


def package(name, version, licence, supplier):
    return {'SPDXID': f'SPDXRef-{name.replace("_", "-").replace("+", "p")}', 'name': name, 'versionInfo': version,
            'downloadLocation': 'NOASSERTION', 'filesAnalyzed': False, 'licenseConcluded': licence,
            'licenseDeclared': licence, 'copyrightText': 'NOASSERTION', 'supplier': supplier}


def relation(weft, part, kind):
    ends = (part, weft) if kind.endswith('_OF') else (weft, part)
    return {'spdxElementId': ends[0], 'relationshipType': kind, 'relatedSpdxElement': ends[1]}


def document(version, commit, parts):
    made = datetime.datetime.fromtimestamp(int(os.environ.get('SOURCE_DATE_EPOCH', '0')), datetime.timezone.utc)
    weft = package('weft', version, 'Apache-2.0', 'Organization: The weft authors')
    packages, relations = [weft], [relation('SPDXRef-DOCUMENT', weft['SPDXID'], 'DESCRIBES')]
    for name, its_version in parts:
        licence, supplier, kind = PARTS[name]
        packages.append(package(name, its_version, licence, supplier))
        relations.append(relation(weft['SPDXID'], packages[-1]['SPDXID'], kind))
    return {'spdxVersion': 'SPDX-2.3', 'dataLicense': 'CC0-1.0', 'SPDXID': 'SPDXRef-DOCUMENT', 'name': f'weft-{version}',
            'documentNamespace': f'https://spdx.org/spdxdocs/weft-{version}-{commit}',
            'creationInfo': {'created': made.strftime('%Y-%m-%dT%H:%M:%SZ'), 'creators': ['Organization: The weft authors']},
            'packages': packages, 'relationships': relations}


def main(arguments):
    if len(arguments) < 3:
        sys.exit(__doc__)
    version, commit, output, *named = arguments
    parts = [entry.split('=', 1) for entry in named]
    pathlib.Path(output).write_text(json.dumps(document(version, commit, parts), indent=2) + '\n')


if __name__ == '__main__':
    main(sys.argv[1:])
