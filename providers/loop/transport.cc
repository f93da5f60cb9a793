// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/loop/transport.h"

#include <algorithm>

#include "providers/loop/device.h"
#include "src/base/log.h"

namespace weft::loop {

namespace {

DeviceInfo describe(const LoopOptions& options, int rail) {
  DeviceInfo info;
  info.name = "loop" + std::to_string(rail);
  info.provider = "loop";
  info.address = "in process";
  info.guid = 0x100b0000u + static_cast<uint64_t>(rail);
  info.speedMbps = options.speedMbps;
  info.latencyUs = 1;
  info.delivery = options.delivery;
  info.lines128InOrder = options.lines128InOrder;
  info.targetMustKnow = options.targetMustKnow;
  info.postIsCall = options.postIsCall;
  info.messages = options.messages;
  info.dmabufMemory = true;
  info.maxWriteBytes = options.maxWriteBytes;
  return info;
}

}  // namespace

LoopTransport::LoopTransport(LoopOptions options) : options_(std::move(options)) {
  options_.rails = std::clamp(options_.rails, 0, kMaxRails);
  if (!options_.stats) options_.stats = std::make_shared<LoopStats>();
}

Result<std::vector<DeviceInfo>> LoopTransport::discover() {
  std::vector<DeviceInfo> infos;
  for (int rail = 0; rail < options_.rails; rail++) infos.push_back(describe(options_, rail));
  return infos;
}

Result<std::shared_ptr<Device>> LoopTransport::open(const DeviceInfo& info) {
  for (int rail = 0; rail < options_.rails; rail++) {
    DeviceInfo known = describe(options_, rail);
    if (known.name != info.name) continue;
    return std::shared_ptr<Device>(std::make_shared<LoopDevice>(std::move(known), options_, rail));
  }
  return Error(Code::unavailable, "opening a loop device",
               format("there is no \"%s\"; WEFT_LOOP_RAILS is %d", info.name.c_str(), options_.rails));
}

std::unique_ptr<LoopTransport> makeTransport(LoopOptions options) {
  return std::make_unique<LoopTransport>(std::move(options));
}

}  // namespace weft::loop
