// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/coll/mesh.h"
#include "tests/world/end.h"
#include "tests/world/plan.h"

// A rank's membership of a collective group (WEFT_COLLNET=peers), as a thread of NCCL has it: it forms the
// group with the others, starts what the plan says with several operations under way, tests, and closes. It
// checks every result against what all ranks bring in, that nothing around one is touched, and that what
// was handed back is not written again. Belongs to one task of one rank.
namespace weft::world {

// What the ranks of a group may know of each other, as a job's bootstrap would tell them.
struct Gathering {
  std::vector<std::optional<coll::HandleBytes>> handles;  // by rank
  int gone = -1;                                          // a rank that the job says is lost; -1: none
  int formed = 0;                                         // ranks that have formed it
  std::function<void()> whenFormed;                       // called when all have
};

struct MemberReport {
  bool opened = false;
  bool failed = false;
  bool left = false;  // it closes in the middle, as the plan says
  TimePoint when{};
  std::string why;
  size_t done = 0;  // operations with a right result
};

class Member {
 public:
  Member(const EndWorld& world, const GroupPlan& plan, Gathering& gathering, std::string name);

  void live();  // until it is closed; waits, as NCCL's calls do
  void leave() { leaving_ = true; }
  void startAnother() { startsAnother_ = true; }
  bool closed() const { return closed_; }
  const GroupPlan& plan() const { return plan_; }
  const MemberReport& report() const { return report_; }
  const std::string& name() const { return name_; }
  const std::string& complaint() const { return complaint_; }
  std::string progress() const;

 private:
  struct Place {
    std::span<std::byte> area;  // margin, what is sent, margin, what is received, margin
    coll::GroupMemory* memory = nullptr;
  };
  struct Running {
    coll::GroupRequest* request;
    size_t place;
    size_t number;  // in the plan
  };

  bool meet();
  bool open();
  bool registerPlaces();
  void move();
  bool start();
  bool test();
  coll::Operation operationAt(size_t place, const OperationPlan& plan);
  void check(const Running& ran);
  void close();
  std::byte* sentAt(size_t place) { return places_[place].area.data() + kMargin; }
  std::byte* receivedAt(size_t place) { return sentAt(place) + room_ + kMargin; }
  void fail(const std::string& why);
  void complain(const std::string& what);
  void note(const std::string& words);

  static constexpr size_t kMargin = 64;

  EndWorld world_;
  const GroupPlan& plan_;
  Gathering& gathering_;
  const std::string name_;
  MemberReport report_;
  std::string complaint_;
  bool leaving_ = false;
  bool startsAnother_ = false;
  bool closed_ = false;
  std::unique_ptr<core::ListenComm> listener_;
  std::unique_ptr<coll::Group> group_;
  size_t room_ = 0;  // of what a place sends, and of what it receives
  std::vector<Place> places_;
  std::vector<size_t> free_;
  std::deque<Running> running_;
  size_t next_ = 0;
};

}  // namespace weft::world
