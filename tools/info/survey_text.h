// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "tools/info/survey.h"

// A survey for people and for programs. Pure functions of their argument.
namespace weft::info {

std::string surveyText(const Survey& survey);
nlohmann::ordered_json surveyJson(const Survey& survey);

}  // namespace weft::info
