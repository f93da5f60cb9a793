// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <string>

#include "tools/info/survey.h"
#include "tools/json/json.h"

// A survey for people and for programs. Pure functions of their argument.
namespace weft::info {

std::string surveyText(const Survey& survey);
Json surveyJson(const Survey& survey);

}  // namespace weft::info
