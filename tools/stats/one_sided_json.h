// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include "src/stats/layout.h"
#include "tools/json/json.h"

// Counts of one-sided operations, as the tools print them.
namespace weft::counted {

inline Json oneSidedJson(const stats::OneSidedSum& sum) {
  Json json;
  for (const stats::OneSidedField& field : stats::kOneSidedFields) json.set(field.name, sum.*field.sum);
  return json;
}

}  // namespace weft::counted
