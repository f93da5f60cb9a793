// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include "tools/record/data.h"

// The common part of all recorded service calls: the time is taken, and the event begun. Any thread.
namespace weft::record {

inline Recorder& recorder() {
  return Recorder::instance();
}

template <class Call>
Timed timed(Call&& call) {
  Timed result{recorder().now(), 0, ncclSuccess};
  result.result = call();
  result.took = recorder().now() - result.began;
  return result;
}

inline trace::Event& eventOf(trace::Kind kind, const Timed& call) {
  return recorder().begin(kind, call.began, call.took, call.result);
}

}  // namespace weft::record
