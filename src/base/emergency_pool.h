// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

namespace weft {

// The C++ library allocates some 70 KiB when it is loaded, so that exceptions can be thrown when memory has
// run out. Our shared libraries have a C++ library of their own inside, whose pool would be lost each time
// NCCL unloads them. This gives it back, unless the C++ library is the process's. For the very end of a
// library: by then nothing of it throws any more.
void giveBackEmergencyPool();

}  // namespace weft
