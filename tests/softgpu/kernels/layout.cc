// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/softgpu/kernels/layout.h"

namespace softgpu {

namespace {

// clang-format off
constexpr Layout kLayouts[] = {
  // versions     comm                profiler  channel                     ring        connection
  //              collective work                p2p work
  {22203, 22299,  0,4,16,28,48,64,    -1,-1,    368,8,32,52,352,32,         0,4,8,16,   152,0,48,56,64,72,96,104,
                  64,256,4,8,16,24,24,56,        48,0,8,16,24,32,36,40,44},
  {22304, 22499,  0,4,16,28,56,80,    -1,-1,    368,8,32,52,352,32,         0,4,8,16,   152,0,48,56,64,72,96,104,
                  96,288,4,8,16,56,56,88,        48,0,8,16,24,32,36,40,44},
  {22501, 22599,  0,4,16,28,56,80,    -1,-1,    352,8,32,52,344,64,         0,4,8,16,   152,0,48,56,64,72,96,104,
                  96,288,4,8,16,56,56,88,        48,0,8,16,24,32,36,40,44},
  {22602, 22699,  0,4,16,28,56,96,    80,88,    368,8,32,52,352,64,         0,4,8,16,   152,0,48,56,64,72,96,104,
                  96,288,4,8,16,56,56,88,        48,0,8,16,24,32,36,40,44},
  {22703, 22899,  0,4,16,28,48,96,    72,80,    368,8,32,52,352,64,         0,4,8,16,   152,0,48,56,64,72,96,104,
                  96,288,4,8,16,56,56,88,        48,0,8,16,24,32,36,40,44},
  {22902, 22999,  0,4,16,28,48,96,    72,80,    368,8,40,60,360,64,         0,4,8,24,   152,0,48,56,64,72,96,104,
                  96,288,4,8,16,56,56,88,        48,0,8,16,24,32,36,40,44},
  {23003, 23007,  0,4,16,28,48,96,    72,80,    368,8,40,60,360,64,         0,4,8,24,   152,0,48,56,64,72,96,104,
                  128,320,4,24,32,80,80,112,     48,0,8,16,24,32,36,40,44},
};
// clang-format on

}  // namespace

const Layout* findLayout(int version) {
  for (const auto& layout : kLayouts) {
    if (version >= layout.fromVersion && version <= layout.toVersion) return &layout;
  }
  return nullptr;
}

std::string layoutRefusal(int version) {
  if (findLayout(version) != nullptr) return "";
  return "NCCL " + std::to_string(version) +
         " has structures that are not known here; known are those of 2.22.3 to 2.30.7, and "
         "kernels/layout.cc is where "
         "others belong";
}

}  // namespace softgpu
