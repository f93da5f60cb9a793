// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/coll/pipe.h"

#include <algorithm>
#include <cstring>

#include "src/base/log.h"
#include "src/base/pages.h"

// Control messages over two comms, one at a time in each direction.
namespace weft::coll {

Milliseconds Patience::left() const {
  return std::chrono::duration_cast<Milliseconds>(std::max(until_ - clock_.now(), Nanoseconds{}));
}

void Patience::pause() {
  constexpr int kSpins = 2000;
  if (spins_++ < kSpins)
    clock_.yield();
  else
    clock_.sleep(std::chrono::microseconds(100));
}

Result<Staging> Staging::create(size_t bytes) {
  Staging staging;
  TRY(staging.bytes_, mapPages(bytes));
  staging.size_ = bytes;
  return staging;
}

Result<core::MemoryHandle*> Staging::registerOn(core::Comm& comm) {
  MemoryDesc desc;
  desc.address = bytes_.get();
  desc.length = size_;
  desc.ours = true;
  comm.keep(bytes_);
  return comm.registerMemory(desc);
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
    pipe->send_->mayStand();
  }
  if (pipe->receive_) {
    TRY(pipe->inMemory_, pipe->in_.registerOn(*pipe->receive_));
    pipe->receive_->mayStand();  // a group may have nothing to do for as long as it likes
  }
  return pipe;
}

std::unique_ptr<Pipe> Pipe::join(std::unique_ptr<Pipe> sends, std::unique_ptr<Pipe> receives) {
  sends->in_ = std::move(receives->in_);
  sends->inMemory_ = receives->inMemory_;
  sends->hearing_ = receives->hearing_;
  sends->receive_ = std::move(receives->receive_);
  return sends;
}

// The receiving end first: senders of the other end may be closed by the same thread after it.
void Pipe::close() {
  if (receive_) receive_->close();
  if (send_) send_->close();
}

Error Pipe::errorOf(const core::Comm& comm) const {
  const Error error = comm.error();
  return Error(Code::remote, "collective group",
               format("the connection to %s: %s", name_.c_str(), error.message().c_str()));
}

Status Pipe::tell(const Bytes& message, Patience& patience) {
  put(message);
  while (true) {
    TRY(const bool left, sent());
    if (left) return {};
    if (patience.over()) return Error(Code::timeout, "collective group", name_ + " takes no message");
    patience.pause();
  }
}

Result<bool> Pipe::sent() {
  TRY(push());
  return unsaid_.empty();
}

// Sends the messages in line as far as the comm takes them now. The bytes in out_ belong to the fabric until
// their send is done, so the next message is copied there only then. After an error the line is emptied.
Status Pipe::push() {
  while (!unsaid_.empty()) {
    if (!saying_) {
      const Bytes& oldest = unsaid_.front();
      std::memcpy(out_.data(), oldest.data(), std::min(oldest.size(), out_.size()));
      const core::Posted posted = send_->isend(out_.data(), oldest.size(), kControlTag, outMemory_, nullptr);
      if (!posted.ok) unsaid_.clear();
      if (!posted.ok) return errorOf(*send_);
      if (!posted.request) return {};
      saying_ = posted.request;
    }
    const core::Tested tested = core::test(saying_, nullptr);
    if (tested.ok && !tested.done) return {};
    saying_ = nullptr;
    unsaid_.pop_front();
    if (!tested.ok) unsaid_.clear();
    if (!tested.ok) return errorOf(*send_);
  }
  return {};
}

Status Pipe::post() {
  if (hearing_) return {};
  const core::Posted posted = receive_->irecvOne(in_.data(), in_.size(), kControlTag, inMemory_, nullptr);
  if (!posted.ok) return errorOf(*receive_);
  hearing_ = posted.request;
  return {};
}

Result<std::optional<Bytes>> Pipe::heard() {
  TRY(post());
  if (!hearing_) return std::optional<Bytes>();
  int size = 0;
  const core::Tested tested = core::test(hearing_, &size);
  if (!tested.ok) return errorOf(*receive_);
  if (!tested.done) return std::optional<Bytes>();
  hearing_ = nullptr;
  return std::optional<Bytes>(Bytes(in_.data(), in_.data() + size));
}

Result<Bytes> Pipe::hear(Patience& patience) {
  while (true) {
    TRY(auto said, heard());
    if (said) return std::move(*said);
    if (patience.over()) return Error(Code::timeout, "collective group", "nothing was heard from " + name_);
    patience.pause();
  }
}

Pipe::State Pipe::look() const {
  if (!alarm().empty()) return State::alarmed;
  if (receive_->isLeft() || send_->isLeft()) return State::left;
  return receive_->hasFailed() || send_->hasFailed() ? State::broken : State::open;
}

std::string Pipe::alarm() const {
  for (const core::Comm* comm :
       {static_cast<core::Comm*>(send_.get()), static_cast<core::Comm*>(receive_.get())}) {
    if (!comm->hasFailed()) continue;
    const Error error = comm->error();
    if (error.detail().starts_with(core::kOwnerSays))
      return error.detail().substr(std::string_view(core::kOwnerSays).size());
  }
  return {};
}

std::string Pipe::fault() const {
  if (receive_->hasFailed()) return errorOf(*receive_).detail();
  return send_->hasFailed() ? errorOf(*send_).detail() : "the connection stands";
}

void Pipe::fail(const std::string& why) const {
  receive_->fail(shortened(why));
  send_->fail(shortened(why));
}

}  // namespace weft::coll
