// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "src/base/random.h"
#include "tests/support/catch.h"
#include "tests/support/engine_pair.h"

// Random traffic of one connection in a World, a step at a time. Checks every byte, that nothing outside a
// receive is touched, and that memory handed back is not written again; what was sent is overwritten once
// its send is done.
namespace weft::test {

// One message. Its bytes are made once, when it is first offered; it may be turned away many times after.
struct Outgoing {
  uint64_t id;
  size_t bytes;
  int tag;
  std::byte* data = nullptr;
  size_t place = 0;
};

// A receive group in flight, and what each member must get.
struct Group {
  core::Request* request = nullptr;
  std::vector<Outgoing> parts;
  std::vector<size_t> offsets;
  size_t row = 0;
};

class Traffic {
 public:
  Traffic(World& world, int from, uint64_t seed)
      : random_(seed),
        world_(world),
        link_(world.connect(from)),
        out_(*link_.send, kArea),
        in_(*link_.recv, kArea) {}

  bool idle() const { return planned_.empty() && groups_.empty() && sending_.empty(); }

  size_t planned() const { return planned_.size(); }

  std::string state() const {
    std::string text = std::to_string(planned_.size()) + " groups to post, " +
                       std::to_string(groups_.size()) + " posted, " + std::to_string(sending_.size()) +
                       " messages in flight, waiting";
    for (const auto& [tag, waiting] : perTag_)
      text += " " + std::to_string(waiting.size()) + " with tag " + std::to_string(tag);
    return text;
  }

  // Makes up a group of messages; they will be sent in any order that keeps each tag's own.
  void plan() {
    Group group;
    const size_t n = 1 + random_.below(random_.below(3) == 0 ? 8 : 1);
    for (size_t i = 0; i < n; i++) {
      static constexpr size_t kSizes[] = {0, 1, 64, 4000, 8191, 8192, 8193, 65'535, 150'001};
      group.parts.push_back({.id = nextId_++,
                             .bytes = kSizes[random_.below(9)],
                             .tag = static_cast<int>(random_.below(kTags)) * 40'000});
    }
    planned_.push_back(std::move(group));
  }

  void step() {
    switch (random_.below(5)) {
      case 0:
        return postGroup();
      case 1:
        return postSend();
      case 2:
        return testSends();
      case 3:
        return testGroups();
      default:
        return world_.progress(static_cast<int>(random_.below(2)));
    }
  }

  bool untouched() const {
    for (size_t place = 0; place < kPlaces; place++) {
      if (!isUntouched(place)) return false;
    }
    return true;
  }

  core::RecvCommImpl& receiver() { return *link_.recv; }
  core::SendCommImpl& sender() { return *link_.send; }

 private:
  static constexpr size_t kArea = size_t{8} << 20;
  static constexpr size_t kPlaces = 48;  // of 170,000 bytes
  static constexpr size_t kMargin = 128;
  static constexpr std::byte kUntouched{0xc5};
  static constexpr size_t kTags = 3;  // each may keep a place for a message that was turned away

  struct Sending {
    core::Request* request;
    size_t place;
    size_t bytes;
  };

  // The receive that was here last, and around it; it was handed back or never written.
  bool isUntouched(size_t place) const {
    const auto [from, to] = extents_[place];
    const std::byte* at = in_.data() + from;
    return from == to || (*at == kUntouched && std::memcmp(at, at + 1, to - from - 1) == 0);
  }

  // Each group in flight has a row of places of its own.
  size_t freeRow() const {
    for (size_t row = 0;; row++) {
      const auto used = [&](const Group& group) { return group.row == row; };
      if (std::none_of(groups_.begin(), groups_.end(), used)) return row;
    }
  }

  void postGroup() {
    if (planned_.empty() || groups_.size() >= kPlaces / 8) return;
    Group group = planned_.front();
    group.row = freeRow();
    std::vector<core::ReceiveSpec> specs;
    for (size_t i = 0; i < group.parts.size(); i++) {
      const size_t place = group.row * 8 + i;
      REQUIRE(isUntouched(place));
      const size_t offset = place * (kArea / kPlaces) + kMargin + random_.below(64);
      group.offsets.push_back(offset);
      const size_t room = group.parts[i].bytes + random_.below(100);
      specs.push_back({in_.data() + offset, room, group.parts[i].tag, in_.handle(), nullptr});
      extents_[place] = {offset - kMargin, offset + room + kMargin};
      std::fill(in_.data() + extents_[place].first, in_.data() + extents_[place].second, kUntouched);
    }
    const core::Posted posted = link_.recv->irecv(specs);
    REQUIRE(posted.ok);
    if (!posted.request) return;
    group.request = posted.request;
    for (const Outgoing& part : group.parts) perTag_[part.tag].push_back(part);
    groups_.push_back(std::move(group));
    planned_.pop_front();
  }

  void postSend() {
    if (perTag_.empty() || sending_.size() >= kPlaces - kTags) return;
    auto tag = perTag_.begin();
    std::advance(tag, static_cast<ptrdiff_t>(random_.below(perTag_.size())));
    if (tag->second.empty()) return;
    Outgoing& message = tag->second.front();
    if (!message.data) makeBytes(message);
    const core::Posted posted =
        link_.send->isend(message.data, message.bytes, message.tag, out_.handle(), nullptr);
    REQUIRE(posted.ok);
    if (!posted.request) return;
    sending_.push_back({posted.request, message.place, message.bytes});
    tag->second.pop_front();
  }

  void makeBytes(Outgoing& message) {
    message.place = freePlace();
    message.data = out_.data() + message.place * (kArea / kPlaces) + random_.below(64);
    fillPattern(message.data, message.bytes, message.id);
  }

  // Neither being sent nor made and waiting.
  size_t freePlace() const {
    std::array<bool, kPlaces> used{};
    for (const Sending& sending : sending_) used[sending.place] = true;
    for (const auto& [tag, waiting] : perTag_)
      if (!waiting.empty() && waiting.front().data) used[waiting.front().place] = true;
    return static_cast<size_t>(std::find(used.begin(), used.end(), false) - used.begin());
  }

  void testSends() {
    std::erase_if(sending_, [&](const Sending& sending) {
      const core::Tested tested = link_.send->test(sending.request, nullptr);
      if (!tested.ok) FAIL(link_.send->error().message());
      if (tested.done)
        std::fill_n(out_.data() + sending.place * (kArea / kPlaces), sending.bytes + 64, std::byte{0xee});
      return tested.done;
    });
  }

  void testGroups() {
    std::erase_if(groups_, [&](const Group& group) {
      int sizes[8] = {};
      const core::Tested tested = link_.recv->test(group.request, sizes);
      if (!tested.ok) FAIL(link_.recv->error().message());
      for (size_t i = 0; tested.done && i < group.parts.size(); i++) {
        const Outgoing& part = group.parts[i];
        REQUIRE(sizes[i] == static_cast<int>(part.bytes));
        REQUIRE(firstMismatch(in_.data() + group.offsets[i], part.bytes, part.id) == part.bytes);
        std::fill_n(in_.data() + group.offsets[i], part.bytes, kUntouched);
        REQUIRE(isUntouched(group.row * 8 + i));
      }
      return tested.done;
    });
  }

  SeededRandom random_;
  World& world_;
  Connection link_;
  Buffer out_;
  mutable Buffer in_;
  std::array<std::pair<size_t, size_t>, kPlaces> extents_{};  // by place: what was last received into
  uint64_t nextId_ = 1;
  std::deque<Group> planned_;
  std::vector<Group> groups_;
  std::vector<Sending> sending_;
  std::map<int, std::deque<Outgoing>> perTag_;
};

}  // namespace weft::test
