// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

// The version of weft, for people: in the log, in --version, and for `strings` on each binary.
namespace weft {

const char* versionText();  // "weft 0.2.0 (commit 0123456789ab)"; any thread

}  // namespace weft
