// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/verbs/trial.h"

#include <array>
#include <optional>

#include "providers/verbs/device.h"
#include "src/base/pages.h"

// The loopback lane of the trial, and its two writes.
namespace weft::verbs {

namespace {

// A card answers itself within microseconds. SoftRoCE may take a second to resolve its own address.
constexpr Milliseconds kPatience{2000};
constexpr size_t kBytes = 8;

class Loopback {
 public:
  Loopback(const std::shared_ptr<const Library>& library, const Port& port, const Clock& clock)
      : library_(library), port_(port), clock_(clock), until_(clock.now() + kPatience) {}

  Status open();
  // The length that the notification of a write of so many bytes tells. An error: it does not arrive.
  Result<uint64_t> lengthToldOf(size_t bytes);

 private:
  // Nothing: time is up.
  std::optional<Completion> await(CompletionKind kind);

  const std::shared_ptr<const Library>& library_;
  const Port& port_;
  const Clock& clock_;
  const TimePoint until_;
  std::shared_ptr<std::byte[]> page_;
  std::shared_ptr<Device> device_;
  std::unique_ptr<Memory> memory_;
  std::unique_ptr<Queue> queue_;
  std::unique_ptr<Endpoint> lane_;
  RemoteMemory remote_;
};

Status Loopback::open() {
  TRY(page_, mapPages(2 * kBytes));
  TRY(device_, VerbsDevice::open(library_, port_, clock_));
  MemoryDesc desc;
  desc.address = page_.get();
  desc.length = pageBytes();
  desc.ours = true;
  TRY(memory_, device_->registerMemory(desc));
  TRY(queue_, device_->openQueue({.sends = 16, .notifications = 64}));
  TRY(lane_, queue_->openEndpoint());
  TRY(remote_, lane_->import(memory_->blob()));
  TRY(lane_->connect(lane_->address()));
  const auto connected = await(CompletionKind::connected);
  if (connected && connected->ok) return {};
  return Error(Code::system, "trying a card",
               connected ? queue_->explain(*connected) : "it does not connect to itself in time");
}

std::optional<Completion> Loopback::await(CompletionKind kind) {
  while (clock_.now() < until_) {
    std::array<Completion, 8> found;
    const size_t count = queue_->poll(found);
    for (size_t i = 0; i < count; i++)
      if (found[i].kind == kind || !found[i].ok) return found[i];
    if (count == 0) clock_.yield();
  }
  return std::nullopt;
}

Result<uint64_t> Loopback::lengthToldOf(size_t bytes) {
  Work work;
  work.op = Opcode::writeNotify;
  work.unsignaled = true;
  work.local = page_.get();
  work.length = bytes;
  work.memory = memory_.get();
  work.remote = remote_;
  work.remoteOffset = kBytes;
  if (lane_->post({&work, 1}) != 1) return Error(Code::system, "trying a card", "it takes no write");
  const auto arrived = await(CompletionKind::notified);
  if (arrived && arrived->ok) return arrived->length;
  return Error(Code::system, "trying a card",
               arrived ? queue_->explain(*arrived) : "a notification did not arrive in time");
}

}  // namespace

CardHabits tryCard(const std::shared_ptr<const Library>& library, const Port& port, const Clock& clock) {
  CardHabits habits;
  Port plain = port;
  plain.settings.apart = Apart::never;  // each write is to be told of by itself
  plain.settings.queuePairs = 1;
  Loopback lane(library, plain, clock);
  if (const Status opened = lane.open(); !opened) {
    habits.untried = opened.error().message();
    return habits;
  }
  const auto told = lane.lengthToldOf(kBytes);
  if (!told) {
    habits.untried = told.error().message();
    return habits;
  }
  habits.tellsLength = *told == kBytes;
  habits.carriesEmpty = static_cast<bool>(lane.lengthToldOf(0));
  return habits;
}

}  // namespace weft::verbs
