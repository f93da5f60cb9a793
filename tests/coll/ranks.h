// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "src/base/random.h"
#include "src/coll/mesh.h"

// Ranks of one group in this process, each with a network of its own over the loop provider: connected by a
// thread each, as they block, and driven afterwards by whoever likes.
namespace weft::test {

class Ranks {
 public:
  // `makeTransport` gives each rank's network its fabric; empty: the loop provider as it is.
  using MakeTransport = std::function<std::unique_ptr<Transport>(int rank)>;
  explicit Ranks(int count, Config config = {}, const MakeTransport& makeTransport = {});
  ~Ranks();  // all at the same time, as NCCL does

  // On a thread of its own for each rank; all have ended when it returns.
  void each(const std::function<void(int rank)>& work) const;
  coll::MeshOptions meshOptions(int rank, bool full = true) const;
  // Every rank's group, made by `make` of its mesh.
  using Make = std::function<std::unique_ptr<coll::Group>(int rank, std::unique_ptr<coll::Mesh>)>;
  void form(const Make& make, bool full = true);

  int count() const { return static_cast<int>(nodes_.size()); }
  coll::Group& group(int rank) { return *groups_[static_cast<size_t>(rank)]; }
  void put(int rank, std::unique_ptr<coll::Group> group) {
    groups_[static_cast<size_t>(rank)] = std::move(group);
  }
  // Closes the group as NCCL does.
  void drop(int rank) {
    const auto group = std::move(groups_[static_cast<size_t>(rank)]);
    if (group) group->close();
  }
  bool has(int rank) const { return groups_[static_cast<size_t>(rank)] != nullptr; }
  const core::ContextRef& context(int rank) const { return nodes_[static_cast<size_t>(rank)].context; }

 private:
  struct Node {
    core::ContextRef context;
    std::unique_ptr<core::ListenComm> listener;
    coll::HandleBytes handle{};
  };
  std::vector<Node> nodes_;
  std::vector<std::unique_ptr<coll::Group>> groups_;
};

// The vectors that a rank brings into operations and gets out of them, registered with its group.
class Vectors {
 public:
  Vectors(coll::Group& group, size_t bytes, uint64_t seed);
  ~Vectors();
  std::vector<std::byte> send, receive;
  coll::GroupMemory* sendMemory = nullptr;
  coll::GroupMemory* receiveMemory = nullptr;

 private:
  coll::Group& group_;
};

// Small whole numbers, so that every order of adding them gives the same.
void fillNumbers(coll::ElementType type, std::vector<std::byte>& bytes, uint64_t seed);

}  // namespace weft::test
