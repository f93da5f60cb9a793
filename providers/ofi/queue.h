// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "providers/common/rare_events.h"
#include "providers/ofi/address_book.h"
#include "providers/ofi/device.h"
#include "providers/ofi/endpoint_closer.h"
#include "providers/ofi/operation.h"
#include "src/base/clock.h"
#include "weft/transport.h"

// A completion queue and everything that shares it. An engine owns it; one thread at a time uses it. A poll
// reads the completion queue, which also moves the data on software providers, and moves lanes on that
// connect or retire.
namespace weft::ofi {

class OfiQueue : public Queue {
 public:
  static Result<std::unique_ptr<Queue>> create(OfiDevice& device, const QueueDepths& wanted);
  ~OfiQueue() override;

  size_t poll(std::span<Completion> out) override;
  Result<std::unique_ptr<Endpoint>> openEndpoint() override;
  std::string explain(const Completion& completion) const override;
  QueueDepths depths() const override { return depths_; }

  // For this provider's Endpoints.
  OfiDevice& device() const { return device_; }
  OperationPool& operations() { return operations_; }
  size_t room() const {  // Works that may still be posted
    return operations_.available() > kOwnOperations ? operations_.available() - kOwnOperations : 0;
  }
  AddressBook& book() { return *book_; }
  Gate* gate() const { return gate_; }
  fid_ep* sharedEndpoint() const { return sharedEndpoint_.get(); }  // null for software providers
  // A notification's length travels in the upper half of its data.
  bool lengthInData() const { return lengthInData_; }
  Result<FidPtr<fid_ep>> openFabricEndpoint();
  // Closes the shared endpoint: all lanes on it break at once, and are fenced when it is closed, which takes
  // its time.
  void cutEndpoint(const std::string& why);
  bool endpointClosing() const { return endpointClosing_; }
  size_t wantedLanes() const;
  void holdMemory();  // memory of a lane that could not be fenced stays registered
  void report(const Completion& completion, std::string why = {});  // a later poll hands it out
  // Words for a completion of the running poll.
  void explainNow(const Completion& completion, std::string why);
  void progress(OfiEndpoint* lane);                         // asks for progress() from the next poll on
  void forget(OfiEndpoint* lane, FidPtr<fid_ep> endpoint);  // the lane is being destroyed
  void turnStrangersAway(std::span<const Bytes> names);  // called before endpoints of these names are closed

  // Gives up a lane's operations in flight, after `visit` has seen each. A completion that still comes for
  // one of them is swallowed.
  template <class Visit>
  size_t abandon(const OfiEndpoint* lane, Visit visit) {
    size_t left = 0;
    operations_.forEachOf(lane, [&](Operation& operation) {
      visit(operation);
      operation.lane = nullptr;
      left++;
    });
    orphans_ += left;
    return left;
  }

  OfiQueue(OfiDevice& device, const QueueDepths& wanted);

 private:
  static constexpr size_t kBatch = 32;
  static constexpr uint32_t kReadsPerEventRead = 64;
  static constexpr size_t kOwnOperations = 256;  // hello writes, beside the caller's Works

  Status start();
  Status openBook();
  void keepToTheCard(fid_ep* endpoint) const;
  Status openCompletionQueue();
  Status postReceives();
  void postReceive(Operation* receive);
  void postWaiting();
  void receiveEnded(Operation* receive, int error);
  [[gnu::noinline]] size_t pollWithCare(std::span<Completion> out);
  ssize_t read(size_t room);
  size_t readCompletions(std::span<Completion> out);
  [[gnu::noinline]] size_t translateAll(size_t read, Completion* out);
  [[gnu::noinline]] size_t readNothing(ssize_t code, std::span<Completion> out);
  size_t readErrors(std::span<Completion> out);
  bool readError(Completion* out);
  bool translate(const fi_cq_data_entry& entry, fi_addr_t source, Completion* out);
  bool notified(const fi_cq_data_entry& entry, fi_addr_t source, Completion* out);
  bool finish(Operation* operation, int error, std::string_view why, Completion* out);
  bool helloCame(fi_addr_t by);
  void fillNotified(const fi_cq_data_entry& entry, Completion* out) const;
  void progressLanes();
  void queueFailed(int64_t code);
  void readEvents();
  void endpointClosed();
  Status renewEndpoint();
  void reclaimOperations();
  void releaseMemory();

  OfiDevice& device_;
  QueueDepths depths_;
  const bool lengthInData_;
  const bool knowsSource_;
  bool attention_ = false;  // a poll has more to do than to read: events, words, lanes
  bool drained_ = false;    // the last read found nothing more
  bool failed_ = false;
  std::string failedWhy_;
  bool holdsMemory_ = false;
  bool endpointCut_ = false;      // the shared endpoint is closed until a lane needs another one
  bool endpointClosing_ = false;  // it is being closed: until then libfabric is not touched here
  uint32_t emptyReads_ = 0;

  // Members are destroyed in reverse order: endpoints, completion queue, addresses, memory and domain.
  std::unique_ptr<Domain> ownDomain_;
  Domain* domain_ = nullptr;
  Gate* gate_ = nullptr;  // the domain's
  std::unique_ptr<AddressBook> book_;
  OperationPool operations_;
  std::vector<Operation> receives_;
  std::vector<Operation*> unposted_;              // of those: taken, and not taken back by the card so far
  std::array<fi_cq_data_entry, kBatch> entries_;  // of the running poll
  std::array<fi_addr_t, kBatch> sources_;
  FidPtr<fid_cq> cq_;
  FidPtr<fid_eq> eq_;  // where the provider wants one
  FidPtr<fid_ep> sharedEndpoint_;
  EndpointCloser closer_;  // of sharedEndpoint_, when it is cut
  std::string cutWhy_;

  std::vector<FidPtr<fid_ep>> parked_;  // cannot be closed while their operations are in flight
  size_t orphans_ = 0;                  // operations in flight whose lane is gone

  std::vector<OfiEndpoint*> lanes_;
  std::vector<OfiEndpoint*> pending_;
  RareEvents events_;
};

}  // namespace weft::ofi
