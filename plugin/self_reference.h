// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

// Keeps the library mapped as long as one of these objects lives. NCCL's tables before v11 have no finalize,
// and a dlclose with an open listener must not unmap the code of the control thread. The first object takes a
// reference to the library, the last gives it back. Any thread.
namespace weft::plugin {

class SelfReference {
 public:
  SelfReference();
  ~SelfReference();
  SelfReference(const SelfReference&) = delete;
  SelfReference& operator=(const SelfReference&) = delete;
};

}  // namespace weft::plugin
