// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "src/tuner/tuner.h"

// What the tuner would advise NCCL, and why: for people and for programs. Pure functions of their arguments.
namespace weft::info {

struct TunerQuestion {
  tuner::Surroundings around;
  tuner::Shape shape;
};

std::string tunerText(const TunerQuestion& question, const tuner::Policy& policy);
nlohmann::ordered_json tunerJson(const TunerQuestion& question, const tuner::Policy& policy);

}  // namespace weft::info
