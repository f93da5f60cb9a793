// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/plan/report.h"

namespace weft::plan {

std::string htmlOf(const Report& report) {
  return "<!doctype html><pre>" + textOf(report) + "</pre>";
}

}  // namespace weft::plan
