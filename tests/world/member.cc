// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/world/member.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "src/base/log.h"
#include "src/coll/kernels.h"
#include "src/coll/offload.h"
#include "tests/support/window_part.h"

namespace weft::world {

namespace {

using coll::Operation;
using coll::OperationKind;

constexpr size_t kUnderWay = 4;  // operations
constexpr std::byte kBlank{0xc6};

bool isBlank(std::span<const std::byte> area) {
  return std::all_of(area.begin(), area.end(), [](std::byte one) { return one == kBlank; });
}

bool isAllReduce(const OperationPlan& plan) {
  return plan.kind == OperationKind::allReduce;
}

// What a rank sends, and what it gets: from and to, of the operation's whole vector.
std::pair<size_t, size_t> sentOf(const OperationPlan& plan, int rank) {
  if (isAllReduce(plan)) return {0, plan.bytes};
  return plan.kind == OperationKind::allGather ? test::windowPart(plan, rank)
                                               : std::pair<size_t, size_t>(0, plan.windowBytes);
}
std::pair<size_t, size_t> receivedOf(const OperationPlan& plan, int rank) {
  if (isAllReduce(plan)) return {0, plan.bytes};
  return plan.kind == OperationKind::allGather ? std::pair<size_t, size_t>(0, plan.windowBytes)
                                               : test::windowPart(plan, rank);
}

// What a rank brings in: whole numbers, of which any order of reducing makes the same.
void bringIn(std::byte* data, size_t bytes, uint64_t id, int rank) {
  SeededRandom random(id * 4099 + static_cast<uint64_t>(rank));
  for (size_t at = 0; at < bytes; at += 8) {
    const uint64_t word = random.next();
    std::memcpy(data + at, &word, std::min<size_t>(8, bytes - at));
  }
}

// The whole vector that must come of it, of which a rank gets its part.
std::vector<std::byte> resultOf(const OperationPlan& plan, int ranks) {
  const size_t bytes = isAllReduce(plan) ? plan.bytes : plan.windowBytes;
  std::vector<std::byte> result(bytes);
  std::vector<std::vector<std::byte>> sent;
  std::vector<const void*> inputs;
  for (int rank = 0; rank < ranks; rank++) {
    const auto [from, to] = sentOf(plan, rank);
    sent.emplace_back(to - from);
    bringIn(sent.back().data(), to - from, plan.id, rank);
    inputs.push_back(sent.back().data());
    if (plan.kind == OperationKind::allGather && to > from)
      std::memcpy(&result[from], sent.back().data(), to - from);
  }
  if (plan.kind != OperationKind::allGather) coll::reduce(plan.type, plan.op, inputs, result.data(), bytes);
  return result;
}

}  // namespace

Member::Member(const EndWorld& world, const GroupPlan& plan, Gathering& gathering, std::string name)
    : world_(world), plan_(plan), gathering_(gathering), name_(std::move(name)) {}

void Member::live() {
  if (meet() && open() && registerPlaces()) move();
  close();
}

bool Member::meet() {
  coll::HandleBytes handle{};
  auto made = world_.net.listen(world_.context, world_.device, handle);
  if (!made) return fail(made.error().message()), false;
  listener_ = std::move(*made);
  gathering_.handles[static_cast<size_t>(world_.rank)] = handle;
  const auto all = [&] {
    return std::all_of(gathering_.handles.begin(), gathering_.handles.end(),
                       [](const auto& one) { return one.has_value(); });
  };
  while (!all()) {
    if (leaving_) return report_.left = true, fail("it is aborted by its own rank"), false;
    if (gathering_.gone >= 0)
      return fail(format("the job says that rank %d is gone", gathering_.gone)), false;
    world_.scheduler.sleep(Nanoseconds(1000 + world_.scheduler.random().below(200'000)));
  }
  return true;
}

bool Member::open() {
  note("forms the group");
  coll::MeshOptions options;
  options.context = world_.context;
  options.listener = listener_.get();
  options.device = world_.device;
  options.rank = world_.rank;
  for (const auto& handle : gathering_.handles) options.handles.push_back(*handle);
  auto made = coll::openGroup(std::move(options));
  if (!made) return fail(made.error().message()), false;
  group_ = made.take();
  report_.opened = true;
  if (++gathering_.formed == static_cast<int>(gathering_.handles.size()) && gathering_.whenFormed)
    gathering_.whenFormed();
  note("has formed the group");
  return true;
}

bool Member::registerPlaces() {
  for (const OperationPlan& plan : plan_.operations) room_ = std::max({room_, plan.bytes, plan.windowBytes});
  room_ = (room_ + 7) & ~size_t{7};
  for (size_t i = 0; i < kUnderWay; i++) {
    Place place{world_.ground.take(2 * room_ + 3 * kMargin)};
    std::fill(place.area.begin(), place.area.end(), kBlank);
    MemoryDesc desc;
    desc.address = place.area.data();
    desc.length = place.area.size();
    auto registered = group_->registerMemory(desc);
    if (!registered) return fail(registered.error().message()), false;
    place.memory = *registered;
    places_.push_back(place);
    free_.push_back(i);
  }
  return true;
}

// A thread that finds nothing to do looks less and less often, as a rank's other threads do.
void Member::move() {
  uint64_t idle = 900;
  while (!report_.failed && report_.done < plan_.operations.size()) {
    if (leaving_) {
      report_.left = true;
      return fail("it leaves the group in the middle");
    }
    const bool starts = world_.scheduler.random().below(2) == 0;
    const bool stepped = starts ? start() || test() : test() || start();
    idle = stepped ? 900 : std::min<uint64_t>(idle + idle / 8, 200'000);
    world_.scheduler.sleep(Nanoseconds(50 + world_.scheduler.random().below(idle)));
  }
  if (!report_.failed) note("has all of its results");
  report_.when = world_.scheduler.now();
}

Operation Member::operationAt(size_t place, const OperationPlan& plan) {
  Operation operation;
  operation.kind = plan.kind;
  operation.type = plan.type;
  operation.op = plan.op;
  operation.bytes = plan.bytes;
  operation.bytesPerRank = plan.bytesPerRank;
  operation.windowOffset = plan.windowOffset;
  operation.windowBytes = plan.windowBytes;
  operation.send = sentAt(place);
  operation.receive = plan.inPlace ? sentAt(place) : receivedAt(place);
  operation.sendMemory = operation.receiveMemory = places_[place].memory;
  return operation;
}

bool Member::start() {
  if (next_ == plan_.operations.size() || free_.empty()) return false;
  OperationPlan plan = plan_.operations[next_];
  const size_t place = free_.back();
  const auto [from, to] = sentOf(plan, world_.rank);
  bringIn(sentAt(place), to - from, plan.id, world_.rank);
  const bool another = startsAnother_ && plan.kind == OperationKind::allReduce;
  if (another) plan.bytes = 8;  // of a gather the others might wait for ever, as nothing comes that is wrong
  const coll::Started started = group_->start(operationAt(place, plan));
  if (!started.ok) return fail(group_->error().message()), true;
  if (!started.request) return false;
  startsAnother_ = startsAnother_ && !another;
  note(format("starts operation %d", static_cast<int>(plan.id)));
  free_.pop_back();
  running_.push_back({started.request, place, next_++});
  return true;
}

bool Member::test() {
  if (running_.empty()) return false;
  const auto which = world_.scheduler.random().below(running_.size());
  const Running ran = running_[which];
  const coll::Finished finished = group_->test(ran.request);
  if (!finished.ok) return fail(group_->error().message()), true;
  if (!finished.done) return false;
  running_.erase(running_.begin() + static_cast<ptrdiff_t>(which));
  check(ran);
  free_.push_back(ran.place);
  return true;
}

void Member::check(const Running& ran) {
  const OperationPlan& plan = plan_.operations[ran.number];
  const auto id = static_cast<int>(plan.id);
  const auto [from, to] = receivedOf(plan, world_.rank);
  const auto sent = sentOf(plan, world_.rank);
  std::byte* received = plan.inPlace ? sentAt(ran.place) : receivedAt(ran.place);
  const std::vector<std::byte> result = resultOf(plan, static_cast<int>(gathering_.handles.size()));
  if (to > from && std::memcmp(received, result.data() + from, to - from) != 0)
    complain(
        format("the result of operation %d, %d of %zu bytes%s, type %d, %d, is not what all have brought in",
               id, static_cast<int>(plan.kind), to - from, plan.inPlace ? " in place" : "",
               static_cast<int>(plan.type), static_cast<int>(plan.op)));
  std::fill_n(received, to - from, kBlank);
  std::fill_n(sentAt(ran.place), sent.second - sent.first, kBlank);
  if (!isBlank(places_[ran.place].area)) complain(format("memory around operation %d was touched", id));
  report_.done++;
  note(format("operation %d is done", id));
}

// What was handed back was not written again. Where the group failed, operations may have been under way.
void Member::close() {
  note("closes the group");
  if (group_ && !report_.failed)
    for (Place& place : places_)
      if (const Status given = group_->deregisterMemory(std::exchange(place.memory, nullptr)); !given)
        complain("deregistering: " + given.error().message());
  if (group_) group_->close();
  group_.reset();
  listener_.reset();
  world_.context.reset();
  if (!report_.failed)
    for (const Place& place : places_)
      if (!isBlank(place.area)) complain("memory was written after its operation was done");
  closed_ = true;
  note("has closed the group");
}

std::string Member::progress() const {
  return format("%zu of %zu operations done, %zu under way", report_.done, plan_.operations.size(),
                running_.size());
}

void Member::fail(const std::string& why) {
  report_.failed = true;
  report_.when = world_.scheduler.now();
  report_.why = why;
  note("fails: " + why);
}

void Member::complain(const std::string& what) {
  if (complaint_.empty()) complaint_ = name_ + ": " + what;
  note("COMPLAINS: " + what);
}

void Member::note(const std::string& words) {
  world_.scheduler.journal().note(world_.scheduler.now(), world_.rank, name_ + " " + words);
}

}  // namespace weft::world
