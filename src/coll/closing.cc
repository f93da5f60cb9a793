// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/coll/closing.h"

#include "src/base/reserve.h"

// The handing over of a lost backend.
namespace weft::coll {

void Closing::take(std::shared_ptr<Backend> lost) {
  const MustNotFail closing;
  const auto token = std::make_shared<char>();
  underWay_ = token;
  lost->keep(token);
}

}  // namespace weft::coll
