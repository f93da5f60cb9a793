// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

// Which weft this is, for people: in the log, in --version, and found by `strings` in each binary.
namespace weft {

const char* versionText();  // "weft 0.2.0 (commit 0123456789ab)"; any thread

}  // namespace weft
