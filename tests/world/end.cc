// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/world/end.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "src/base/log.h"
#include "src/core/comm.h"
#include "src/core/engine.h"
#include "src/core/engine_entry.h"

namespace weft::world {

namespace {

constexpr size_t kMargin = 64;
constexpr size_t kPlaces = 4;    // of messages in flight
constexpr size_t kTooMuch = 80;  // more than any receive has room beyond its message
constexpr int kWrongTag = 5;
constexpr std::byte kUntouched{0xc5};

// Every word follows from the message's identity and its place, so that any mix-up shows.
uint64_t wordOf(uint64_t message, size_t index) {
  return (message * 0x9e3779b97f4a7c15u) ^ (index * 0xc2b2ae3d27d4eb4fu);
}

void fill(std::byte* data, size_t bytes, uint64_t message) {
  for (size_t at = 0; at < bytes; at += 8) {
    const uint64_t word = wordOf(message, at);
    std::memcpy(data + at, &word, std::min<size_t>(8, bytes - at));
  }
}

bool isWhole(const std::byte* data, size_t bytes, uint64_t message) {
  for (size_t at = 0; at < bytes; at += 8) {
    const uint64_t word = wordOf(message, at);
    if (std::memcmp(data + at, &word, std::min<size_t>(8, bytes - at)) != 0) return false;
  }
  return true;
}

bool isUntouched(const std::byte* data, size_t bytes) {
  return bytes == 0 || (*data == kUntouched && std::memcmp(data, data + 1, bytes - 1) == 0);
}

class Sender final : public End {
 public:
  using End::End;
  std::string progress() const override {
    return format("%zu of %zu sent, %zu in flight", report_.messages, flow_.messages(), sending_.size());
  }

 private:
  struct Sending {
    core::Request* request;
    size_t place;
    MessagePlan message;
    size_t bytes;
  };

  struct Waiting {  // messages of one tag
    std::deque<MessagePlan> messages;
    std::optional<size_t> place;  // of the first one's bytes, once they are made
  };

  bool connect() override {
    if (!handle_ && !meeting_.handle) return meeting_.receiverGone ? (fail(gone("receiver")), true) : false;
    if (!handle_) handle_ = meeting_.handle;
    auto tried = called([&] { return world_.net.connect(world_.context, world_.device, *handle_); });
    if (!tried) return true;
    auto& made = *tried;
    if (!made) return fail(made.error()), true;
    if (!*made) return false;
    comm_ = std::move(*made);
    if (!prepare(kPlaces, flow_.largest() + 2 * kMargin)) return true;
    for (size_t i = 0; i < kPlaces; i++) free_.push_back(i);
    for (const auto& group : flow_.groups)
      for (const MessagePlan& message : group) perTag_[message.tag].messages.push_back(message);
    state_ = EndState::running;
    note("has connected");
    return true;
  }

  static Error gone(const char* which) {
    return Error(Code::remote, "connecting", std::string("the job says that the ") + which + " is gone");
  }

  bool run() override {
    if (perTag_.empty() && sending_.empty()) return finish(), true;
    const bool posts = world_.scheduler.random().below(2) == 0;
    return posts ? post() || test() : test() || post();
  }

  // Once, though the message may be turned away many times.
  bool makeBytes(Waiting* waiting) {
    if (free_.empty()) return false;
    waiting->place = free_.back();
    free_.pop_back();
    const MessagePlan& message = waiting->messages.front();
    fill(place(*waiting->place) + kMargin, message.bytes, message.id);
    return true;
  }

  bool post() {
    if (perTag_.empty() || !mayPost()) return false;
    auto tag = perTag_.begin();
    std::advance(tag, static_cast<ptrdiff_t>(world_.scheduler.random().below(perTag_.size())));
    Waiting& waiting = tag->second;
    const MessagePlan message = waiting.messages.front();
    if (!waiting.place && !makeBytes(&waiting)) return false;
    const size_t where = *waiting.place;
    std::byte* data = place(where) + kMargin;
    const size_t bytes = message.bytes + (misusing_ ? kTooMuch : 0);
    const int tagOf = message.tag + (wrongTag_ ? kWrongTag : 0);
    const auto tried = called([&] { return comm_->isend(data, bytes, tagOf, memoryOf(where), nullptr); });
    if (!tried) return true;
    const core::Posted posted = *tried;
    if (!posted.ok) return fail(comm_->error()), true;
    if (!posted.request) return false;
    hasPosted();
    report_.misused = report_.misused || misusing_;
    misusing_ = false;
    note(format("sends message %d of %zu bytes, tag %d", static_cast<int>(message.id), message.bytes,
                message.tag));
    sending_.push_back({posted.request, where, message, bytes});
    waiting.messages.pop_front();
    waiting.place.reset();
    if (waiting.messages.empty()) perTag_.erase(tag);
    return true;
  }

  bool test() {
    if (sending_.empty()) return false;
    const auto which = world_.scheduler.random().below(sending_.size());
    const Sending sending = sending_[which];
    int size = -1;
    const auto tried = called([&] { return core::test(sending.request, &size); });
    if (!tried) return true;
    const core::Tested tested = *tried;
    if (!tested.ok) return fail(comm_->error()), true;
    if (!tested.done) return false;
    if (size != static_cast<int>(sending.bytes))
      complain(format("message %d is said to be %d bytes", static_cast<int>(sending.message.id), size));
    sending_.erase(sending_.begin() + static_cast<ptrdiff_t>(which));
    std::memset(place(sending.place) + kMargin, 0xee, sending.message.bytes);  // it is ours again
    free_.push_back(sending.place);
    report_.messages++;
    note(format("message %d is sent", static_cast<int>(sending.message.id)));
    return true;
  }

  // Slots are told of when half of them are free, so some are.
  void checkRested() override {
    auto* base = dynamic_cast<core::CommBase*>(comm_.get());
    if (!base || report_.failed) return;
    const core::EngineEntry in(base->engine(), core::EngineEntry::wait);
    core::Peering& peering = base->peering();
    if (!peering.halted() && peering.eagerOut().sends(0) && !peering.eagerOut().hasSlot())
      complain("all is quiet, and no slot for a small message is free again");
  }

  void drop() override {
    if (comm_) comm_->close();
    comm_.reset();
  }
  core::Comm* comm() override { return comm_.get(); }
  void sayGone() override { meeting_.senderGone = true; }

  std::optional<std::array<std::byte, control::kHandleBytes>> handle_;
  std::unique_ptr<core::SendComm> comm_;
  std::vector<size_t> free_;
  std::map<int, Waiting> perTag_;
  std::vector<Sending> sending_;
};

class Receiver final : public End {
 public:
  using End::End;
  std::string progress() const override {
    return format("%zu of %zu received, %zu groups posted", report_.messages, flow_.messages(),
                  posted_.size());
  }

 private:
  static constexpr size_t kGroups = 3;  // in flight

  struct Group {
    core::Request* request;
    size_t row;
    const std::vector<MessagePlan>* messages;
    std::vector<std::byte*> data;  // of each message
  };

  static size_t roomFor(const MessagePlan& message) { return (message.bytes + 3 * kMargin) & ~size_t{7}; }

  size_t largestGroup() const {
    size_t most = 0;
    for (const auto& group : flow_.groups) {
      size_t all = 0;
      for (const MessagePlan& message : group) all += roomFor(message);
      most = std::max(most, all);
    }
    return most;
  }

  bool connect() override {
    if (!listener_) return listen();
    auto tried = called([&] { return world_.net.accept(*listener_); });
    if (!tried) return true;
    auto& made = *tried;
    if (!made) return fail(made.error()), true;
    if (!*made)
      return meeting_.senderGone ? (fail(Error(Code::remote, "accepting", "the sender is gone")), true)
                                 : false;
    comm_ = std::move(*made);
    if (!prepare(kGroups, largestGroup())) return true;
    for (size_t i = 0; i < kGroups; i++) rows_.push_back(i);
    state_ = EndState::running;
    note("has accepted");
    return true;
  }

  bool listen() {
    std::array<std::byte, control::kHandleBytes> handle{};
    auto tried = called([&] { return world_.net.listen(world_.context, world_.device, handle); });
    if (!tried) return true;
    auto& made = *tried;
    if (!made) return fail(made.error()), true;
    listener_ = std::move(*made);
    meeting_.handle = handle;
    return true;
  }

  bool run() override {
    if (next_ == flow_.groups.size() && posted_.empty()) return finish(), true;
    if (withdrawing_ && !posted_.empty()) return withdrawOldest(), true;
    const bool posts = world_.scheduler.random().below(2) == 0;
    return posts ? post() || test() : test() || post();
  }

  bool post() {
    if (next_ == flow_.groups.size() || rows_.empty() || !mayPost()) return false;
    Group group{nullptr, rows_.back(), &flow_.groups[next_], {}};
    std::vector<core::ReceiveSpec> specs;
    std::byte* next = place(group.row);
    for (const MessagePlan& message : *group.messages) {
      size_t room = message.bytes + world_.scheduler.random().below(kMargin);
      if (std::exchange(misusing_, false)) room = message.bytes / 2;
      group.data.push_back(next + kMargin);
      specs.push_back(
          {next + kMargin, room, message.tag + (wrongTag_ ? kWrongTag : 0), memoryOf(group.row), nullptr});
      next += roomFor(message);
    }
    const auto tried = called([&] { return comm_->irecv(specs); });
    if (!tried) return true;
    const core::Posted posted = *tried;
    if (!posted.ok) return fail(comm_->error()), true;
    if (!posted.request) return false;
    hasPosted();
    group.request = posted.request;
    note(format("posts group %zu of %zu receives", next_, specs.size()));
    rows_.pop_back();
    posted_.push_back(std::move(group));
    next_++;
    return true;
  }

  // Its row is of no use any more, and the comm is not either, though what was sent comes.
  void withdrawOldest() {
    withdrawing_ = false;
    withdrawn_ = posted_.front().row;
    note(format("takes row %zu away", withdrawn_));
    release(withdrawn_);
  }

  bool test() {
    if (posted_.empty()) return false;
    const auto which = world_.scheduler.random().below(posted_.size());
    const Group& group = posted_[which];
    int sizes[core::kMaxRecvs] = {};
    const auto tried = called([&] { return core::test(group.request, sizes); });
    if (!tried) return true;
    const core::Tested tested = *tried;
    if (!tested.ok) return fail(comm_->error()), true;
    if (!tested.done) return false;
    for (size_t i = 0; i < group.messages->size(); i++) check((*group.messages)[i], group.data[i], sizes[i]);
    if (group.row != withdrawn_) rows_.push_back(group.row);
    posted_.erase(posted_.begin() + static_cast<ptrdiff_t>(which));
    return true;
  }

  void check(const MessagePlan& message, std::byte* data, int size) {
    const auto id = static_cast<int>(message.id);
    if (size != static_cast<int>(message.bytes))
      complain(format("message %d came with %d bytes in place of %zu", id, size, message.bytes));
    else if (!isWhole(data, message.bytes, message.id))
      complain(format("message %d of %zu bytes is not what was sent", id, message.bytes));
    std::fill_n(data, message.bytes, kUntouched);
    if (!isUntouched(data - kMargin, roomFor(message)))
      complain(format("memory around message %d was touched", id));
    report_.messages++;
    note(format("message %d is received", id));
  }

  // What was handed back was not written again. Of an end that failed, receives may have been under way.
  void checkRest() override {
    if (!comm_ || report_.failed || aborting_) return;
    if (!isUntouched(area_.data(), area_.size())) complain("memory was written after its receive was done");
  }

  void drop() override {
    if (comm_) comm_->close();
    comm_.reset();
    listener_.reset();
  }
  core::Comm* comm() override { return comm_.get(); }
  void sayGone() override { meeting_.receiverGone = true; }

  std::unique_ptr<core::ListenComm> listener_;
  std::unique_ptr<core::RecvComm> comm_;
  std::vector<size_t> rows_;
  size_t withdrawn_ = SIZE_MAX;
  size_t next_ = 0;
  std::vector<Group> posted_;
};

}  // namespace

End::End(const EndWorld& world, const FlowPlan& flow, Meeting& meeting, std::string name)
    : world_(world), flow_(flow), meeting_(meeting), name_(std::move(name)), made_(world.scheduler.now()) {}

bool End::step() {
  if (over() || closed()) return false;
  if (aborting_) {
    report_.aborted = true;
    fail(Error(Code::remote, "using the comm", "it is aborted by its own rank"));
    return true;
  }
  if (world_.scheduler.now() - made_ < flow_.begins) return false;
  return state_ == EndState::connecting ? connect() : run();
}

void End::note(const std::string& words) {
  world_.scheduler.journal().note(world_.scheduler.now(), world_.rank, name_ + " " + words);
}

void End::complain(const std::string& what) {
  if (complaint_.empty()) complaint_ = name_ + ": " + what;
  note("COMPLAINS: " + what);
}

void End::fail(const Error& why) {
  state_ = EndState::failed;
  report_.failed = true;
  report_.when = world_.scheduler.now();
  report_.why = why.message();
  note("fails: " + report_.why);
}

// Half of the pace to one and a half. Worlds without one draw nothing.
void End::hasPosted() {
  posts_++;
  const auto pace = static_cast<uint64_t>(flow_.pace.count());
  if (pace > 0)
    postsFrom_ = world_.scheduler.now() + Nanoseconds(pace / 2 + world_.scheduler.random().below(pace));
}

void End::finish() {
  state_ = EndState::done;
  report_.when = world_.scheduler.now();
  note("has all of its messages");
}

bool End::prepare(size_t places, size_t bytes) {
  stride_ = (bytes + kMargin) & ~size_t{7};
  area_ = world_.ground.take(places * stride_);
  std::fill(area_.begin(), area_.end(), kUntouched);
  const size_t pieces = world_.apart ? places : 1;
  for (size_t i = 0; i < pieces; i++) {
    MemoryDesc desc;
    desc.address = place(i);
    desc.length = area_.size() / pieces;
    auto tried = called([&] { return comm()->registerMemory(desc); });
    if (!tried) return false;
    auto& registered = *tried;
    if (!registered) return fail(registered.error()), false;
    handles_.push_back(*registered);
  }
  return true;
}

void End::release(size_t index) {
  if (!handles_[index]) return;
  const Status given = comm()->deregisterMemory(std::exchange(handles_[index], nullptr));
  if (!given) complain("deregistering: " + given.error().message());
}

// Whatever the order of things, nobody is told of what is not his, or twice. What is late for an end that has
// closed is neither.
void End::checkCounters() {
  const auto* base = dynamic_cast<const core::CommBase*>(comm());
  if (!base || !world_.calm) return;
  const core::EngineCounters& counters = base->engine().counters();
  if (counters.foreignNotes + counters.duplicateNotes > 0)
    complain(format("its engine has counted notifications that are nobody's (%d) or doubled (%d)",
                    static_cast<int>(counters.foreignNotes), static_cast<int>(counters.duplicateNotes)));
}

void End::close() {
  if (closed()) return;
  note("closes");
  const TimePoint began = world_.scheduler.now();
  for (size_t i = 0; i < handles_.size(); i++) release(i);
  checkRest();
  checkCounters();
  drop();
  if (report_.failed) sayGone();
  world_.context.reset();
  state_ = EndState::closed;
  report_.closing = world_.scheduler.now() - began;
  const auto took = std::chrono::duration_cast<Milliseconds>(report_.closing);
  note(format("is closed after %d ms", static_cast<int>(took.count())));
}

std::unique_ptr<End> makeSender(const EndWorld& world, const FlowPlan& flow, Meeting& meeting) {
  return std::make_unique<Sender>(world, flow, meeting, format("%d>%d's sender", flow.from, flow.to));
}

std::unique_ptr<End> makeReceiver(const EndWorld& world, const FlowPlan& flow, Meeting& meeting) {
  return std::make_unique<Receiver>(world, flow, meeting, format("%d>%d's receiver", flow.from, flow.to));
}

}  // namespace weft::world
