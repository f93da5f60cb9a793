// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <string>

#include "tests/world/end.h"
#include "tests/world/member.h"
#include "tests/world/plan.h"

// The judgement of what an end of a connection or a member of a collective group came to, after what was done
// to the world. Pure.
namespace weft::world {

// Empty: that was as it must be.
std::string judge(const WorldPlan& plan, const End& end, int rank);
std::string judge(const WorldPlan& plan, const Member& member, int rank);
// Of both ends of a connection together.
std::string judgePair(const WorldPlan& plan, const End& sender, const End& receiver);

// A process that nobody may wait for: it was killed, or stopped for ever.
bool losesRank(const HurtPlan& hurt);
bool isLost(const WorldPlan& plan, int rank);

}  // namespace weft::world
