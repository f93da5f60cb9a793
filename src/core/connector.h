// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include "src/core/recv_comm.h"
#include "src/core/runtime.h"
#include "src/core/send_comm.h"

// Making a connection, as seen from either end. NCCL calls connect and accept again and again until they
// return a comm; each call takes the next step that can be taken and never waits. The call has deadlines of
// its own, every later state ends by the one deadline. An end that cannot go on tells the other why: the
// connector in its request or by `failed`, the acceptor by refusing or by `failed`.
//
//   connector                          acceptor
//   calling   -- request, proven -->   listening
//             <-- reply: its half --   opening      (its RecvComm exists)
//   opening   -- open: my half, ring ->             (the SendComm exists)
//             lanes come up on both sides
//   done                               done
namespace weft::core {

class Connector {
 public:
  Connector(Runtime& runtime, const Context* context, int device);
  ~Connector();
  Connector(const Connector&) = delete;
  Connector& operator=(const Connector&) = delete;

  Status start(const ContextRef& context, const control::Handle& handle);
  // A null comm: not yet. The comm handed out keeps runtime and context alive; until then the connector must
  // not, or a connection that is never finished would keep both for ever.
  Result<std::unique_ptr<SendComm>> step(const std::shared_ptr<Runtime>& runtime, const ContextRef& context);
  void called(TimePoint now);  // by NCCL; under the runtime's lock, as expired()
  bool expired(TimePoint now) const { return now > giveUpAt_; }
  bool madeIn(const Context* context) const { return context_ == context; }
  bool belongsTo(const Context* context, int device, uint32_t listener) const;

 private:
  void hold(std::shared_ptr<Engine> engine);
  void startWaiting();
  Result<std::unique_ptr<SendComm>> tellRefusal() const;
  bool isUp(bool last) const;
  void poll(bool last) const;
  Status onReply();
  Status open(const ConnectReply& reply);
  Error late() const;
  bool connected() const;  // inside the engine
  bool isLate() const;

  Runtime& runtime_;        // owns us
  const Context* context_;  // drops us when it closes
  int device_;
  uint32_t listener_ = 0;
  std::string target_;
  TimePoint deadline_;
  TimePoint giveUpAt_;
  std::shared_ptr<Engine> engine_;
  std::unique_ptr<Error> refusal_;  // of this side: it is told, and then returned
  std::unique_ptr<control::Call> call_;
  bool answered_ = false;
  std::unique_ptr<SendCommImpl> comm_;
};

class ListenCommImpl final : public ListenComm {
 public:
  ListenCommImpl(std::shared_ptr<Runtime> runtime, ContextRef context, int device,
                 std::unique_ptr<control::Listener> listener)
      : runtime_(std::move(runtime)),
        context_(std::move(context)),
        device_(device),
        listener_(std::move(listener)) {}

  int device() const override { return device_; }
  Result<std::unique_ptr<RecvComm>> step();

 private:
  Status onRequest(const control::Request& request);
  Error late() const;

  std::shared_ptr<Runtime> runtime_;
  ContextRef context_;
  int device_;
  std::unique_ptr<control::Listener> listener_;
  std::shared_ptr<Engine> engine_;
  std::unique_ptr<RecvCommImpl> comm_;
  TimePoint deadline_{};
};

}  // namespace weft::core
