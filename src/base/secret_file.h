// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <string>

#include "weft/result.h"

// Secrets that a user gives, as a text or in a file of which a program's arguments and environment tell the
// name alone. Any thread.
namespace weft {

// The secret of a setting: the text itself, or for "@FILE" the first line of FILE. A file that other users
// can read is warned of once and used all the same: the job has to go on. A file without a first line is
// an error, as no secret would be none.
Result<std::string> readSecretSetting(const std::string& setting);

}  // namespace weft
