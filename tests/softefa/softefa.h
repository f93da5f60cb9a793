// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <stdint.h>

#include <infiniband/verbs.h>

// What the stand-in libibverbs.so.1 has besides the verbs API, for programs that know they run on it. Any
// thread.

// Applies fault assignments (README.md) to every opened device of this process, or to `context` alone when it
// is given. 0, or EINVAL with a word on stderr; then none of them holds.
extern "C" int softefa_set_faults(ibv_context* context, const char* assignments);

// A context of the n-th device that this process has opened, in the order of their names; null beyond the
// last.
extern "C" ibv_context* softefa_opened(unsigned n);

// Reads a counter of an opened device by its name in counters.h; EINVAL when there is none of that name.
extern "C" int softefa_counter(ibv_context* context, const char* name, uint64_t* value);
