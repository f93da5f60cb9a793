// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "src/core/recv_comm.h"
#include "src/core/runtime.h"
#include "src/core/send_comm.h"

// How the two ends of one connection find each other. NCCL calls connect and accept again and again until
// they return a comm; each call is one `step` of a Meeting, which takes what can be taken and never waits.
// Two states have a deadline of their own; whatever comes after them ends by it. An end that cannot go on
// tells the other why: the asking end in its request or by `failed`, the answering one by refusing or by
// `failed`.
//
//   the end that asks                    the end that answers
//   calling    -- request, proven -->    listening
//   looking    <-- reply: its half --    joining      (its RecvComm exists)
//   joining    -- open: my half, ring -> joining      (the SendComm exists)
//              lanes come up on both sides
//   met                                  met
//
// While an end is `looking` the two find out whether they share memory. That is asked once for a peering
// (same_host.h), which any number of Meetings may use at the same time, from either end.
namespace weft::core {

class Meeting final : public Pending {
 public:
  enum class Role : uint8_t { asks, answers };
  enum class State : uint8_t {
    listening,  // no request has been taken (answers)
    refusing,   // this end cannot, and its reason is on its way to the other one (asks)
    calling,    // the request is on its way, or nobody has answered it (asks)
    looking,    // the reply is here, and not yet known is whether the two share memory (asks)
    joining,    // the comm exists: the other half, or lanes, are awaited
    met,        // the comm is the caller's
    failed,     // every further step gives the same reason
  };

  // The asking end, whose request leaves at once. Owned by the Runtime, which it must not keep alive until
  // there is a comm, or a connection that is never finished would keep both for ever.
  static std::shared_ptr<Meeting> ask(Runtime& runtime, const ContextRef& context, int device,
                                      const control::Handle& handle);
  // The answering end is made by its listener (Listening), which keeps runtime and context alive.
  Meeting(Runtime& runtime, const Context* context, int device, Role role);
  ~Meeting() override;
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;

  // A call of NCCL's each. A null comm: not yet. The comm handed out keeps runtime and context alive.
  Result<std::unique_ptr<SendComm>> stepAsking(const std::shared_ptr<Runtime>& runtime,
                                               const ContextRef& context);
  Result<std::unique_ptr<RecvComm>> stepAnswering(const std::shared_ptr<Runtime>& runtime,
                                                  const ContextRef& context, control::Listener& listener);

  bool isListening() const { return state_ == State::listening; }
  bool hasFailed() const { return state_ == State::failed; }
  // Nothing of it is left. One whose comm failed on the way stays, as the other end may have its comm
  // already.
  bool isOver() const { return state_ == State::met || (state_ == State::failed && !receiving_); }
  // Pending:
  void called(TimePoint now) override;
  bool expired(TimePoint now) const override { return now > giveUpAt_; }
  bool madeIn(const Context* context) const override { return context_ == context; }
  bool belongsTo(const Context* context, int device, uint32_t listener) const;

 private:
  enum class Event : uint8_t { cannot, replied, commMade, cameUp, failed };
  struct Change {
    State from;
    Event event;
    State to;
  };
  static const Change kChanges[];

  void apply(Event event);  // the only writer of state_
  void startWaiting();
  bool isLate() const;
  Error late() const;
  void call(const ContextRef& context, const control::Handle& handle);
  void hold(std::shared_ptr<Engine> engine);
  Result<std::unique_ptr<SendComm>> refuse() const;
  Result<std::unique_ptr<SendComm>> advance(const std::shared_ptr<Runtime>& runtime,
                                            const ContextRef& context);
  Status readReply();
  Status open(const ConnectReply& reply);
  bool knowsSharing(Peering& peering, const PeeringInfo& half) const;
  void poll(bool last) const;
  bool isUp(bool last) const;
  bool connected() const;  // inside the engine
  Status answer(const std::shared_ptr<Runtime>& runtime, const ContextRef& context,
                const control::Request& request);
  Result<std::unique_ptr<RecvComm>> join();

  Runtime& runtime_;
  const Context* context_;  // drops us when it closes
  int device_;
  Role role_;
  State state_;
  uint32_t listener_ = 0;
  std::string target_;  // where the listener is, for messages
  TimePoint deadline_{};
  TimePoint giveUpAt_{};
  std::shared_ptr<Engine> engine_;  // from the request on
  std::unique_ptr<Error> reason_;   // of `refusing` and of `failed`
  std::unique_ptr<control::Call> call_;
  std::unique_ptr<SendCommImpl> sending_;    // of the end that asks, while it is joining
  std::unique_ptr<RecvCommImpl> receiving_;  // of the end that answers, likewise
};

// A listener of NCCL's: it answers connectors in the order in which their requests come, and does not wait
// for one of them before it answers the next: that one may have been lost on the way. An error is of one
// connector, and is told once.
class Listening final : public ListenComm {
 public:
  Listening(std::shared_ptr<Runtime> runtime, ContextRef context, int device,
            std::unique_ptr<control::Listener> listener);

  int device() const override { return device_; }
  Result<std::unique_ptr<RecvComm>> step();

 private:
  std::shared_ptr<Runtime> runtime_;
  ContextRef context_;
  int device_;
  std::unique_ptr<control::Listener> listener_;
  std::vector<std::unique_ptr<Meeting>> meetings_;  // with those being accepted, and last who comes next
};

}  // namespace weft::core
