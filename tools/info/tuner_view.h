// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <string>

#include "src/tuner/tuner.h"
#include "tools/json/json.h"

// The advice that the tuner would give NCCL, and why: for people and for programs. Pure functions of their
// arguments.
namespace weft::info {

struct TunerQuestion {
  tuner::Surroundings around;
  tuner::Shape shape;
};

std::string tunerText(const TunerQuestion& question, const tuner::Policy& policy);
Json tunerJson(const TunerQuestion& question, const tuner::Policy& policy);

}  // namespace weft::info
