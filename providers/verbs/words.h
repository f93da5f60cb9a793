// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <string>

#include "providers/verbs/compat.h"
#include "weft/result.h"

// The numbers of libibverbs in words, with the next thing to check. Pure but for the limit on locked memory;
// any thread.
namespace weft::verbs {

// "the peer did not answer (transport retry counter exceeded; vendor code 0x81): check ..."
std::string statusWords(ibv_wc_status status, uint32_t vendorCode);

// The errno-like code that a Completion carries for the status.
int statusErrno(ibv_wc_status status);

// The Error of a call that failed with `code` (an errno). It names what to do about it.
Error verbsError(const char* operation, const std::string& object, int code);

// "port 1 of mlx5_0 went down": the reason of a lane that breaks by the event.
std::string eventWords(ibv_event_type type, const std::string& device, int port);

}  // namespace weft::verbs
