// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <string>

// The next step behind an errno: which limit it met and how that is raised, so that a number of the kernel
// never stands alone in a message. Any thread; asks the kernel for limits.
namespace weft {

// The kernel's words: "Too many open files".
std::string errnoText(int errnum);

// Which limit it is, and one command or setting; empty where the words say all that is known.
std::string nextStep(int errnum);

// Both: "Too many open files; this process may have 1024 descriptors: ...".
std::string errnoWords(int errnum);

}  // namespace weft
