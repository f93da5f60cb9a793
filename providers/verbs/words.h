// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <string>

#include "providers/verbs/compat.h"
#include "weft/result.h"

// The numbers of libibverbs in words, with the next thing to check. Any thread.
namespace weft::verbs {

// "the peer did not answer (transport retry counter exceeded; vendor code 0x81): check ..."
std::string statusWords(ibv_wc_status status, uint32_t vendorCode);

// The errno-like code a Completion carries for it.
int statusErrno(ibv_wc_status status);

// A call that failed with `code` (an errno), as an Error that names what to do about it.
Error verbsError(const char* operation, const std::string& object, int code);

// "port 1 of mlx5_0 went down"; what a lane that breaks of it says.
std::string eventWords(ibv_event_type type, const std::string& device, int port);

}  // namespace weft::verbs
