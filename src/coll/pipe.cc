// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/coll/pipe.h"

#include <thread>

#include "src/base/log.h"

namespace weft::coll {

void Patience::pause() {
  constexpr int kSpins = 2000;
  if (spins_++ < kSpins)
    std::this_thread::yield();
  else
    std::this_thread::sleep_for(std::chrono::microseconds(100));
}

Staging::~Staging() {
  for (const Use& use : uses_) (void)use.comm->deregisterMemory(use.handle);
}

Result<Staging> Staging::create(size_t bytes) {
  Staging staging;
  staging.bytes_ = std::make_unique<std::byte[]>(bytes);
  staging.size_ = bytes;
  return staging;
}

Result<core::MemoryHandle*> Staging::registerOn(core::Comm& comm) {
  MemoryDesc desc;
  desc.address = bytes_.get();
  desc.length = size_;
  TRY(core::MemoryHandle * handle, comm.registerMemory(desc));
  uses_.push_back({&comm, handle});
  return handle;
}

void Staging::releaseFrom(const core::Comm& comm) {
  std::erase_if(uses_, [&](const Use& use) {
    if (use.comm == &comm) (void)use.comm->deregisterMemory(use.handle);
    return use.comm == &comm;
  });
}

Result<std::unique_ptr<Pipe>> Pipe::create(std::unique_ptr<core::SendComm> send,
                                           std::unique_ptr<core::RecvComm> receive, std::string name) {
  auto pipe = std::make_unique<Pipe>();
  pipe->send_ = std::move(send);
  pipe->receive_ = std::move(receive);
  pipe->name_ = std::move(name);
  TRY(pipe->out_, Staging::create(kControlBytes));
  TRY(pipe->in_, Staging::create(kControlBytes));
  if (pipe->send_) {
    TRY(pipe->outMemory_, pipe->out_.registerOn(*pipe->send_));
  }
  if (pipe->receive_) {
    TRY(pipe->inMemory_, pipe->in_.registerOn(*pipe->receive_));
    pipe->receive_->mayStand();  // for the next operation, and for an alarm that may never come
  }
  return pipe;
}

Result<std::unique_ptr<Pipe>> Pipe::join(std::unique_ptr<Pipe> sends, std::unique_ptr<Pipe> receives) {
  if (!sends) return Error(Code::internal, "collective group", "a rank called that was not called");
  sends->in_ = std::move(receives->in_);
  sends->inMemory_ = receives->inMemory_;
  sends->hearing_ = receives->hearing_;
  sends->receive_ = std::move(receives->receive_);
  return sends;
}

Error Pipe::errorOf(const core::Comm& comm) const {
  const Error error = comm.error();
  return Error(Code::remote, "collective group",
               format("the connection to %s: %s", name_.c_str(), error.message().c_str()));
}

Status Pipe::tell(const Bytes& message, Patience& patience) {
  std::memcpy(out_.data(), message.data(), std::min(message.size(), out_.size()));
  core::Request* request = nullptr;
  while (true) {
    if (!request) {
      const core::Posted posted = send_->isend(out_.data(), message.size(), kControlTag, outMemory_, nullptr);
      if (!posted.ok) return errorOf(*send_);
      request = posted.request;
    }
    if (request) {
      const core::Tested tested = core::test(request, nullptr);
      if (!tested.ok) return errorOf(*send_);
      if (tested.done) return {};
    }
    if (patience.over()) return Error(Code::timeout, "collective group", name_ + " takes no message");
    patience.pause();
  }
}

Status Pipe::post() {
  if (hearing_) return {};
  const core::Posted posted = receive_->irecvOne(in_.data(), in_.size(), kControlTag, inMemory_, nullptr);
  if (!posted.ok) return errorOf(*receive_);
  hearing_ = posted.request;
  return {};
}

Status Pipe::expect(Patience& patience) {
  while (true) {
    TRY(post());
    if (hearing_) return {};
    if (patience.over())
      return Error(Code::timeout, "collective group", "no receive from " + name_ + " starts");
    patience.pause();
  }
}

Result<Bytes> Pipe::hear(Patience& patience) {
  while (true) {
    TRY(post());
    if (hearing_) {
      int size = 0;
      const core::Tested tested = core::test(hearing_, &size);
      if (!tested.ok) return errorOf(*receive_);
      if (tested.done) {
        hearing_ = nullptr;
        return Bytes(in_.data(), in_.data() + size);
      }
    }
    if (patience.over()) return Error(Code::timeout, "collective group", "nothing was heard from " + name_);
    patience.pause();
  }
}

std::optional<Alarm> Pipe::alarm() {
  repeatAlarm();
  if (goodbye_ || (!hearing_ && !post())) return std::nullopt;
  if (!hearing_) return std::nullopt;
  int size = 0;
  const core::Tested tested = core::test(hearing_, &size);
  broken_ = !tested.ok;
  if (!tested.ok || !tested.done) return std::nullopt;
  hearing_ = nullptr;
  auto said = decodeAlarm(std::span(in_.data(), static_cast<size_t>(size)));
  goodbye_ = said && said->reason.empty();
  return said ? said.take() : Alarm{said.error().message()};
}

// Whoever raises it may make no further call on this group, so it is tried a few times: the network's control
// thread has an engine for microseconds at a time, and nothing can be sent then.
void Pipe::raiseAlarm(const Bytes& alarm) {
  constexpr int kTries = 100;
  if (unsaid_.empty()) unsaid_ = alarm;
  for (int tries = 0; tries < kTries && !unsaid_.empty(); tries++) {
    if (tries > 0) std::this_thread::yield();
    repeatAlarm();
  }
}

void Pipe::repeatAlarm() {
  if (unsaid_.empty()) return;
  if (!saying_) {
    std::memcpy(out_.data(), unsaid_.data(), unsaid_.size());
    const core::Posted posted = send_->isend(out_.data(), unsaid_.size(), kControlTag, outMemory_, nullptr);
    if (posted.ok && !posted.request) return;
    saying_ = posted.request;
  }
  const core::Tested tested = saying_ ? core::test(saying_, nullptr) : core::Tested{false, false};
  if (tested.ok && !tested.done) return;
  saying_ = nullptr;
  unsaid_.clear();
}

}  // namespace weft::coll
