// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "src/coll/mesh.h"
#include "src/core/runtime.h"
#include "src/rma/exchange.h"
#include "src/rma/link.h"
#include "src/rma/signal.h"

// Ranks that reach into each other's windows: what NCCL calls a collective comm of its one-sided tables. A
// put travels as a message of the network below and is placed by the rank that owns the window, which also
// adds the signal behind it; so every fabric carries them alike.
//
// Threads: puts, gets, tests and progress() come from one thread, registrations and closing from another;
// a lock keeps them apart, and no call holds it while it waits. error() may come from any thread. Nothing
// moves but in calls: NCCL's proxy calls progress() all the time.
//
// Order: signals from one rank to another are added in the order of the calls, each after all bytes of its
// own put and of all earlier ones, whatever their context.
namespace weft::rma {

struct Put {
  uint32_t rank = 0;  // the target
  uint32_t context = 0;
  uint64_t bytes = 0;  // 0: no bytes, and both windows may be null
  Window* source = nullptr;
  uint64_t sourceOffset = 0;
  Window* target = nullptr;
  uint64_t targetOffset = 0;
  bool signals = false;
  Window* signal = nullptr;
  uint64_t signalOffset = 0;  // a multiple of 8
  uint64_t addend = 0;
};

struct Get {
  uint32_t rank = 0;
  uint32_t context = 0;
  uint64_t bytes = 0;
  Window* remote = nullptr;
  uint64_t remoteOffset = 0;
  Window* local = nullptr;
  uint64_t localOffset = 0;
};

struct TeamCounters {
  uint64_t puts = 0;
  uint64_t placed = 0;  // of them, those whose bytes the fabric writes into the window at once
  uint64_t gets = 0;
  uint64_t signals = 0;    // added on this rank
  uint64_t exchanged = 0;  // bytes of descriptors that this rank sent
};

class Team final : private Desk {
 public:
  // Blocks until this rank is connected with all others, with a deadline. Errors name the rank at fault.
  static Result<std::unique_ptr<Team>> open(coll::MeshOptions options);
  explicit Team(std::unique_ptr<coll::Mesh> mesh);
  ~Team() override;  // waits for nothing: where close() was not called the other ranks lose this one
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  uint32_t ranks() const { return static_cast<uint32_t>(mesh_->ranks()); }
  uint32_t rank() const { return static_cast<uint32_t>(mesh_->rank()); }

  // Every rank calls it in the same order; blocks until all have. All ranks get a window or none does; the
  // error names the rank that could not. A rank whose memory cannot be described takes part with the reason.
  Result<Window*> registerMemory(const Result<MemoryDesc>& desc, bool neverReset);
  // Not together with others. Waits, with a deadline, until nothing here moves from or to the memory. Ranks
  // that still move something then lose this one, and are told why.
  Status deregisterMemory(Window* window);

  // An error: the arguments cannot be, or the team is broken; nothing was begun then. Never null.
  Result<Request*> put(const Put& put);
  Result<Request*> get(const Get& get);
  // `done` ends the request. An error is the link's, or says that there is no such request.
  Status test(Request* request, bool* done);
  Status progress();
  bool failed() const { return failed_.load(std::memory_order_acquire); }
  Error error() const;  // the first one; only where failed()
  TeamCounters counters() const;
  // What the connection with another rank has counted; nothing where counting is off.
  stats::OneSidedSum sentTo(uint32_t rank) const;
  stats::OneSidedSum receivedFrom(uint32_t rank) const;
  // Windows, and what waits for which rank: for the state of the process. Any thread.
  std::string stateText() const;

  // After the last data call, and after the other ranks' windows are no longer reached from here: says
  // goodbye, and waits a deadline at most until every other rank has done so.
  void close();

 private:
  Status connect();
  void closeComms();
  // The next four with the lock held.
  void advance(Link& link);
  void advanceSome();
  void noteLost(const Link& link);
  Result<Request*> begin(uint32_t rank, Window* window, uint64_t bytes);
  static Sender::Body bodyOf(const Window& window, uint64_t offset, uint64_t bytes, uint32_t to,
                             uint32_t piece);
  Result<Request*> putHere(const Put& put);
  Result<Request*> getHere(const Get& get);
  Status mayReach(uint32_t rank) const;
  Status checkOwned(const Window* window, const char* what) const;
  Status checkRange(const Window* window, uint32_t rank, uint64_t offset, uint64_t bytes,
                    const char* what) const;
  Status checkPut(const Put& put) const;
  // Desk.
  Window* window(uint32_t number, bool* known) override;
  Status add(Window& window, uint64_t offset, uint64_t addend, uint64_t signals) override;
  Status heard(uint32_t from, const Head& head, std::span<const std::byte> behind) override;
  Status heardGet(uint32_t from, const Head& head);
  Status heardExchange(uint32_t from, const Head& head, std::span<const std::byte> behind);
  // Registration.
  Result<Descriptor> registerHere(Window& window, const MemoryDesc& desc);
  Status registerOnLinks(Window& window);
  void releaseHere(Window& window);
  void shut(Window& window);
  bool isShutTo(const Link& link, const Window& window) const;
  bool isAtRest(const Link& link, const Window& window) const;
  static Error stillUsed(const Link& link, const Window& window);
  void giveUp(Window* window);
  // A head that was posted: to which rank, and its number there.
  using Posted = std::pair<uint32_t, uint64_t>;
  void sendRounds(uint32_t number, Exchange& exchange, std::vector<Posted>* posted);
  bool haveLeft(const std::vector<Posted>& posted) const;
  const Link* firstLost() const;
  Exchange& exchangeOf(uint32_t number);
  Result<std::vector<Descriptor>> exchange(uint32_t number, const Descriptor& own);

  Link* link(uint32_t rank) const { return links_[rank].get(); }  // null: this rank
  const Config& config() const { return mesh_->options().context->net().config(); }

  const std::unique_ptr<coll::Mesh> mesh_;
  const OwnMemory memory_;
  std::mutex registering_;                    // one registration at a time; taken before mutex_
  mutable std::mutex mutex_;                  // everything below, but for failed_
  std::vector<std::unique_ptr<Link>> links_;  // by rank
  uint32_t nextLink_ = 0;                     // of advanceSome()
  std::map<uint32_t, std::unique_ptr<Window>> windows_;
  uint32_t registered_ = 0;  // windows that there were
  std::map<uint32_t, Exchange> exchanges_;
  std::deque<Request> requests_;  // a deque, since its growth moves nothing
  std::vector<Request*> freeRequests_;
  std::optional<Error> error_;
  std::atomic<bool> failed_{false};
  TeamCounters counters_;
  bool closed_ = false;
  std::unique_ptr<core::Runtime::Told> told_;  // the first to go
};

}  // namespace weft::rma
