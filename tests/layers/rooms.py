# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""Which room may include what. The picture behind it is in docs/design.md, "The house".

System headers are always within reach of the compiler, so the build alone cannot keep fabric headers out of the
protocol; this table does.
"""
import dataclasses
import re

CXX_HEADERS = set('''
algorithm array atomic bit bitset charconv chrono climits cmath compare concepts condition_variable cstdarg cstddef
cstdint cstdio cstdlib cstring deque functional initializer_list iterator limits list map memory mutex new numeric
optional queue ratio set shared_mutex span stdexcept string string_view system_error thread tuple type_traits
typeindex unordered_map unordered_set utility variant vector
'''.split())
C_HEADERS = {'stddef.h', 'stdint.h', 'stdbool.h'}

# Headers of fabrics, GPUs and helper libraries, by their first path part or whole name.
FABRIC = re.compile(r'^rdma/')
VERBS = re.compile(r'^infiniband/')
CUDA = re.compile(r'^(cuda|nvml|nvtx|driver_types)')
NCCL = re.compile(r'^nccl')
TOOL_LIBRARIES = re.compile(r'^(CLI|fmt)/')
JSON = re.compile(r'^nlohmann/')
CATCH = re.compile(r'^catch2/')
SPECIAL = [FABRIC, VERBS, CUDA, NCCL, TOOL_LIBRARIES, JSON, CATCH]

# The C++ streams and what drags locales in live badly inside other people's processes.
STREAMS = re.compile(r'^(iostream|fstream|sstream|ostream|istream|iomanip|locale|regex|random|strstream|syncstream)$')


@dataclasses.dataclass
class Room:
    path: str             # prefix of the files in it
    may: tuple            # prefixes of our own files they may include, besides those of the room itself
    special: tuple = ()   # members of SPECIAL they may include
    only: set = None      # the only system headers they may include
    library: bool = True  # part of the plugin: runs inside other people's processes


BASE = ('include/weft/', 'src/base/')
CORE_MAY = BASE + ('src/stats/', 'src/mem/', 'src/topo/', 'src/control/')
# A fabric's network cards are described in sysfs, whoever drives them, hence topo.
PROVIDER_MAY = BASE + ('src/mem/', 'src/topo/', 'providers/common/')
EVERYTHING = ('include/', 'src/', 'providers/', 'plugin/', 'tools/', 'tests/')

# The longest path that fits decides.
ROOMS = [
    Room('include/weft/', (), only=CXX_HEADERS),
    Room('include/nccl/', (), only=C_HEADERS),
    Room('src/base/', ('include/weft/',)),
    Room('src/stats/', BASE),
    Room('src/mem/', BASE, (CUDA,)),
    Room('src/topo/', BASE),
    Room('src/tuner/', BASE),
    Room('src/control/', BASE),
    Room('src/core/', CORE_MAY),
    Room('src/coll/', CORE_MAY + ('src/core/',)),
    Room('src/rma/', CORE_MAY + ('src/core/', 'src/coll/')),
    Room('src/agg/', CORE_MAY + ('src/core/', 'src/coll/')),
    Room('providers/registry', BASE + ('providers/',)),
    Room('providers/common/', BASE),
    Room('providers/loop/', PROVIDER_MAY),
    Room('providers/fault/', PROVIDER_MAY),
    Room('providers/ofi/', PROVIDER_MAY, (FABRIC,)),
    Room('providers/verbs/', PROVIDER_MAY, (VERBS,)),
    Room('providers/tcp/', PROVIDER_MAY),
    Room('providers/local/', PROVIDER_MAY),
    Room('plugin/', BASE + ('src/core/', 'src/coll/', 'src/rma/', 'src/control/handle.h', 'src/topo/machine.h', 'src/tuner/', 'providers/registry', 'include/nccl/')),
    Room('tools/', ('include/', 'src/', 'providers/'), (FABRIC, VERBS, CUDA, TOOL_LIBRARIES), library=False),
    Room('tools/json/', BASE, (JSON,), library=False),
    Room('tests/', EVERYTHING, (FABRIC, VERBS, CUDA, TOOL_LIBRARIES), library=False),
    Room('tests/support/', EVERYTHING, (FABRIC, VERBS, CUDA, TOOL_LIBRARIES, CATCH), library=False),
]


def room_of(path):
    fitting = [room for room in ROOMS if path.startswith(room.path)]
    return max(fitting, key=lambda room: len(room.path)) if fitting else None


def own_path(included):
    """Where "weft/x.h" lies; include/ is on the compiler's path."""
    return 'include/' + included if included.startswith(('weft/', 'nccl/')) else included


def check_system(room, header):
    """Why the room may not include <header>, or None."""
    if room.only is not None:
        return None if header in room.only else 'only standard headers belong here'
    for family in SPECIAL:
        if family.match(header) and family not in room.special:
            return 'this room does not know that library'
    if room.library and STREAMS.match(header):
        return 'no streams, locales or regular expressions inside the plugin'
    return None


def check_own(room, target):
    """Why the room may not include our file `target`, or None."""
    if target.startswith(room.path) or target.startswith(room.may):
        return None
    return f'{room.path} may include only {", ".join(room.may) or "itself"}'
