// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <filesystem>

#include "tools/plan/fields.h"
#include "tools/plan/job.h"

namespace weft::plan {

Result<Job> readJob(const std::string& path) {
  TRY(const std::string text, fileText(path));
  return parseJob(path, text);
}

}  // namespace weft::plan
