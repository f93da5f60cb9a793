// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "providers/verbs/queue.h"

// One lane: a reliable connected queue pair. Its works finish in the order of posting, so a burst asks for
// one entry of the completion queue, at its end, and that stands for all before it. An entry that reports
// success confirms everything up to its work; one that reports an error condemns everything not yet
// confirmed, because whether works without an entry of their own landed cannot be known. Used by the Queue's
// thread.
namespace weft::verbs {

class VerbsEndpoint : public Endpoint {
 public:
  static Result<std::unique_ptr<Endpoint>> create(VerbsQueue& queue);
  ~VerbsEndpoint() override;

  std::span<const std::byte> address() const override { return address_; }
  Status connect(std::span<const std::byte> peerAddress) override;
  Result<RemoteMemory> import(std::span<const std::byte> blob) override;
  size_t post(std::span<const Work> works) override;
  void retire() override;

  // From the Queue:
  uint64_t number() const { return number_; }
  uint32_t queuePair() const { return pair_->address().queuePair; }
  bool finished(const ibv_wc& entry);  // of a send; true: unfold() has something to hand out, perhaps
  bool unfold(Completion* out);        // false: nothing more
  void dialled(int error, const std::string& why);
  void broke(int error, const std::string& why);  // died with no work to blame
  bool tend(TimePoint now);                       // false: nothing more to do

  explicit VerbsEndpoint(VerbsQueue& queue);

 private:
  enum class State : uint8_t {
    idle,
    connecting,
    ready,
    dead,      // failed; waits to be retired
    fencing,   // retiring: a marker behind everything else waits for its acknowledgement
    draining,  // retiring: the queue pair is in ERR, and what is outstanding comes back flushed
    retired,
  };
  enum class Purpose : uint8_t { work, quiet, marker };
  struct Posted {
    uint64_t context = 0;
    Purpose purpose = Purpose::work;
  };
  static constexpr size_t kBurst = 32;

  Status start();
  size_t postBurst(std::span<const Work> works);
  void fill(const Work& work, ibv_send_wr* request, ibv_sge* piece) const;
  bool wantsEntry(const Work& work, bool last);
  void postMarker();
  void markerBack(bool acknowledged);
  void rejected(const Work& work, int code);
  size_t outstanding() const { return posted_ - unfolded_; }
  size_t slots() const { return depth_ - std::min<size_t>(outstanding(), depth_); }
  Posted& slot(uint32_t sequence) { return ring_[sequence & (ring_.size() - 1)]; }
  void connectFailed(int error, const std::string& why);
  void startDraining();
  bool tendDraining(TimePoint now);
  void condemnOutstanding();
  void reportRetired();
  Completion about(CompletionKind kind, int error = 0);
  std::string named(const char* what, const std::string& why) const;

  VerbsQueue& queue_;
  const uint64_t number_;  // never used again on this Queue
  std::shared_ptr<QueuePair> pair_;
  Bytes address_;
  LaneAddress peer_;
  std::string peerText_;
  State state_ = State::idle;
  bool everReady_ = false;
  bool markerOut_ = false;

  // Works between unfolded_ and posted_ are outstanding; those before judged_ have their verdict.
  std::vector<Posted> ring_;
  uint32_t depth_ = 0;
  uint32_t posted_ = 0;
  uint32_t judged_ = 0;
  uint32_t unfolded_ = 0;
  ibv_wc_status verdict_ = IBV_WC_SUCCESS;
  uint32_t vendorCode_ = 0;
  std::string firstFailure_;

  // Since the last work that asked for an entry.
  uint32_t unsignalled_ = 0;
  bool loudUnsignalled_ = false;
  size_t bytesUnsignalled_ = 0;

  TimePoint deadline_{};
  TimePoint strayUntil_{};
};

}  // namespace weft::verbs
