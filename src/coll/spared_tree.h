// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <array>
#include <memory>
#include <mutex>

#include "src/coll/closing.h"
#include "src/coll/peers.h"
#include "src/coll/tree.h"

// A tree with the ranks themselves as its spare. When a daemon or the way to it fails, the ranks agree over
// their own connections on what each of them has. Where no rank has a result that others lack, and all still
// hold what they sent, they begin the unfinished operations again among themselves, and go on without the
// tree; otherwise the group is broken, as it is without a spare.
namespace weft::coll {

class SparedTree final : public Group {
 public:
  static constexpr size_t kSlots = 64;  // operations outstanding at a time

  // `spare` connects all ranks. Every rank of the group has one. `patience`: how long the ranks may take to
  // agree; one that has nothing to do does not take part.
  SparedTree(std::unique_ptr<TreeGroup> tree, std::unique_ptr<PeersGroup> spare, Milliseconds patience);

  Result<GroupMemory*> registerMemory(const MemoryDesc& desc) override;
  Status deregisterMemory(GroupMemory* memory) override;
  Started start(const Operation& operation) override;
  Started flush(const void* data, size_t bytes, GroupMemory* memory) override;
  Finished test(GroupRequest* request) override;
  Error error() const override;
  GroupCounters counters() const override;

 private:
  enum class State : uint8_t { tree, agreeing, spare, broken };
  struct BothMemory final : GroupMemory {
    GroupMemory* tree = nullptr;   // null: not registered with it, or it is gone
    GroupMemory* spare = nullptr;  // null: a GPU's, which the ranks do not reduce
  };
  struct Slot : GroupRequest {
    bool used = false;
    Operation operation;            // with BothMemory
    GroupRequest* inner = nullptr;  // of the tree or of the spare; null: not begun with the latter yet
  };

  Slot& slotOf(uint64_t sequence) { return slots_[sequence % kSlots]; }
  Operation forTree(Operation operation) const;
  Operation forSpare(Operation operation) const;
  bool holdsSource(const Operation& operation) const;
  bool treeKnows(const Operation& operation) const;
  const Clock& clock() const { return spare_->mesh().clock(); }
  void loseTree();
  void handOver();
  void agree();
  void decide();
  void beginAgain();
  Started startWith(Group& group, const Operation& translated, const Operation& operation);
  Finished finish(Slot& slot, size_t bytes);
  Finished testFlush(Flush& flush);
  void breakDown(std::string why);

  std::unique_ptr<PeersGroup> spare_;  // goes after the tree
  std::unique_ptr<TreeGroup> tree_;    // null once it is lost and closing
  Closing closing_;                    // of the tree
  const Milliseconds patience_;
  State state_ = State::tree;
  TimePoint until_{};  // while the ranks agree
  std::array<Slot, kSlots> slots_;
  FlushTable flushes_{this};
  uint64_t next_ = 0;    // sequence number of the next operation
  uint64_t oldest_ = 0;  // that is not done
  uint64_t after_ = 0;   // behind the youngest that is done
  uint64_t posted_ = 0;  // once on the spare: those before are begun with it
  GroupCounters ofTree_;
  std::string why_;  // the tree is lost, or the group broken

  // The agreement: the greatest `after_` of all ranks, and the greatest complement of `oldest_`.
  std::array<uint64_t, 2> mine_{}, all_{};
  GroupMemory* mineMemory_ = nullptr;
  GroupMemory* allMemory_ = nullptr;
  GroupRequest* agreement_ = nullptr;

  std::mutex mutex_;  // tree_ while another thread registers; the data calls never wait for it
  MemoryList<BothMemory> memories_;
};

}  // namespace weft::coll
