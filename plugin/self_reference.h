// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

// Keeps the library mapped while one of these lives: NCCL's tables before v11 have no finalize, and dlclose
// over a listener that nobody closed must not take the code from under the control thread. The first takes a
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
