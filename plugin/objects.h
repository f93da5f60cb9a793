// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <memory>
#include <utility>

#include "plugin/self_reference.h"
#include "src/core/net.h"
#include "src/rma/team.h"
#include "weft/collective.h"

// The objects that NCCL holds pointers to. The plugin's registry owns each of them, from the call that made
// it to the call that closes it; so a context can close its leftovers. The kind is checked whenever NCCL
// hands a pointer back. The library stays mapped until the last object is gone with everything that it holds.
// Immutable; any thread.
namespace weft::plugin {

// Marks that other memory is unlikely to hold by chance.
enum class Kind : uint64_t {
  context = 0x7765'6674'0000'c0deu,
  listener = 0x7765'6674'0000'1157u,
  send = 0x7765'6674'0000'5e2du,
  receive = 0x7765'6674'0000'2ecfu,
  group = 0x7765'6674'0000'9709u,
  team = 0x7765'6674'0000'7ea3u,
  rmaContext = 0x7765'6674'0000'c07eu,
};

class HeldContext;

class Held {
 public:
  virtual ~Held() = default;
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

  // For the calls that close something, and a context's leftovers: waits until nothing of it is under way.
  // The destructor never waits: what was not closed is handed to its engine, or cut off.
  virtual void close() {}

  Kind kind() const { return kind_; }
  const HeldContext* owner() const { return owner_; }  // null: the process-wide context of v6 to v10

 protected:
  Held(Kind kind, const HeldContext* owner) : kind_(kind), owner_(owner) {}

 private:
  const SelfReference library_;  // destroyed last: members of derived classes may have threads
  const Kind kind_;
  const HeldContext* const owner_;
};

// The context of an init of v11 and later. Without a usable fabric there is no core context behind it.
class HeldContext : public Held {
 public:
  explicit HeldContext(core::ContextRef context)
      : Held(Kind::context, nullptr), context_(std::move(context)) {}
  void close() override {
    if (context_) context_->close();
  }
  const core::ContextRef& context() const { return context_; }

 private:
  const core::ContextRef context_;
};

// A listener; it keeps its context alive.
class HeldListener : public Held {
 public:
  HeldListener(const HeldContext* owner, core::ContextRef context, std::unique_ptr<core::ListenComm> listener)
      : Held(Kind::listener, owner), context_(std::move(context)), listener_(std::move(listener)) {}
  core::Net& net() { return context_->net(); }
  const core::ContextRef& context() const { return context_; }
  core::ListenComm& listener() { return *listener_; }

 private:
  const core::ContextRef context_;
  const std::unique_ptr<core::ListenComm> listener_;
};

// A sending or receiving comm.
class HeldComm : public Held {
 public:
  HeldComm(const HeldContext* owner, std::unique_ptr<core::SendComm> comm)
      : Held(Kind::send, owner), send_(std::move(comm)) {}
  HeldComm(const HeldContext* owner, std::unique_ptr<core::RecvComm> comm)
      : Held(Kind::receive, owner), receive_(std::move(comm)) {}

  void close() override { comm().close(); }
  core::Comm& comm() { return send_ ? static_cast<core::Comm&>(*send_) : *receive_; }
  core::SendComm& send() { return *send_; }
  core::RecvComm& receive() { return *receive_; }

 private:
  const std::unique_ptr<core::SendComm> send_;
  const std::unique_ptr<core::RecvComm> receive_;
};

// A rank's membership of a collective group.
class HeldGroup : public Held {
 public:
  HeldGroup(const HeldContext* owner, core::ContextRef context, std::unique_ptr<coll::Group> group)
      : Held(Kind::group, owner), context_(std::move(context)), group_(std::move(group)) {}
  void close() override { group_->close(); }
  coll::Group& group() { return *group_; }

 private:
  const core::ContextRef context_;  // destroyed after the group
  const std::unique_ptr<coll::Group> group_;
};

// The ranks of one-sided operations.
class HeldTeam : public Held {
 public:
  HeldTeam(const HeldContext* owner, std::shared_ptr<rma::Team> team)
      : Held(Kind::team, owner), team_(std::move(team)) {}
  void close() override { team_->close(); }
  rma::Team& team() { return *team_; }
  const std::shared_ptr<rma::Team>& shared() const { return team_; }

 private:
  const std::shared_ptr<rma::Team> team_;
};

// A context that createContext made of a team. NCCL may close the team first: the calls fail then.
class HeldRmaContext : public Held {
 public:
  HeldRmaContext(const HeldContext* owner, std::shared_ptr<rma::Team> team, int contexts)
      : Held(Kind::rmaContext, owner), team_(std::move(team)), contexts_(contexts) {}
  rma::Team& team() const { return *team_; }
  int contexts() const { return contexts_; }

 private:
  const std::shared_ptr<rma::Team> team_;
  const int contexts_;
};

// From NCCL's pointer to the object, without a lock: NCCL uses a pointer only between the object's making and
// its closing. Null for null, and for an object of another kind.
inline Held* heldOf(void* pointer, Kind kind) {
  auto* held = static_cast<Held*>(pointer);
  return held && held->kind() == kind ? held : nullptr;
}

inline HeldComm* commOf(void* pointer, Kind kind) {
  return static_cast<HeldComm*>(heldOf(pointer, kind));
}

// Of either kind.
inline HeldComm* commOf(void* pointer) {
  HeldComm* comm = commOf(pointer, Kind::send);
  return comm ? comm : commOf(pointer, Kind::receive);
}

}  // namespace weft::plugin
