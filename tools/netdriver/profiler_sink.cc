// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/netdriver/profiler_sink.h"

namespace weft::netdriver {

namespace {

// The handle that Start gives out: an address that nothing else can have.
char eventMark;

}  // namespace

ProfilerSink& ProfilerSink::instance() {
  static ProfilerSink sink;
  return sink;
}

void ProfilerSink::reset() {
  starts_ = 0;
  stops_ = 0;
  open_ = 0;
  violations_ = 0;
}

ncclResult_t ProfilerSink::callback(void** eventHandle, int type, void* parentHandle, int64_t, void*) {
  ProfilerSink& sink = instance();
  switch (type) {
    case ncclProfilerNetEventStart:
      return sink.start(eventHandle, parentHandle);
    case ncclProfilerNetEventStop:
      return sink.stop(eventHandle, true);
    case ncclProfilerNetEventUpdate:
      return sink.stop(eventHandle, false);
    case ncclProfilerNetEventUpdateAndStop:
      return sink.stop(eventHandle, true);
    default:
      ++sink.violations_;
      return ncclSuccess;
  }
}

ncclResult_t ProfilerSink::start(void** eventHandle, void* parentHandle) {
  if (!enabled_) return ncclSuccess;  // leaves *eventHandle as it is
  if (eventHandle == nullptr || parentHandle == nullptr) {
    ++violations_;
    return ncclSuccess;
  }
  ++starts_;
  ++open_;
  *eventHandle = &eventMark;
  return ncclSuccess;
}

ncclResult_t ProfilerSink::stop(void** eventHandle, bool last) {
  if (eventHandle == nullptr || *eventHandle != &eventMark) {
    ++violations_;
    return ncclSuccess;
  }
  if (!last) return ncclSuccess;
  ++stops_;
  --open_;
  return ncclSuccess;
}

}  // namespace weft::netdriver
