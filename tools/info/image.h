// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <string>
#include <vector>

#include "tools/json/json.h"

// `weft info --image`: what will and will not work in the image this runs in, without any hardware. Used by
// one thread.
namespace weft::info {

struct Finding {
  enum class Kind { good, note, bad };  // bad: weft, or what it was installed for, cannot work in this image
  Kind kind = Kind::good;
  std::string what;  // "libfabric"
  std::string says;  // what was found and, unless it is good, what to do
};

std::vector<Finding> lookAtImage();

std::string imageText(const std::vector<Finding>& findings);
Json imageJson(const std::vector<Finding>& findings);

// The exit status for pipelines: 0 when nothing is bad.
int imageStatus(const std::vector<Finding>& findings);

}  // namespace weft::info
