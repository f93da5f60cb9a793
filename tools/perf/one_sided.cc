// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <deque>

#include "tools/perf/collective.h"
#include "tools/perf/windows.h"

// Two ranks that reach into each other's memory by the plugin's table of one-sided operations, driven as
// NCCL's proxy drives it: requests are tested and rmaProgress is called all the time, and who waits looks at
// its word.
namespace weft::perf {

namespace {

enum class Reach : uint8_t { put, putSignal, get };

class OneSided final : public Collective {
 public:
  OneSided(Reach reach, Wiring& wiring)
      : reach_(reach), rank_(wiring.rank), channel_(wiring.channel), windows_(std::move(wiring.windows)) {}

  // Only notes what there is to do; progress() makes the calls.
  void start(const Work& work) override {
    work_ = work;
    bytes_ = work.count * work.type->bytes;
    round_++;
    left_ = 0;
    answers_ = waits_ = signalsAlone_ = false;
    if (reach_ == Reach::get) {
      left_ = 1;
      signalsAlone_ = waits_ = true;
    } else if (reach_ == Reach::put) {
      left_ = isFirst() ? kPutWindow : 0;
      waits_ = !isFirst();
    } else {
      left_ = isFirst() ? 1 : 0;
      answers_ = !isFirst();
      waits_ = true;
    }
  }

  Status progress(bool* moved) override {
    const ncclResult_t result = table().progress(windows_->comm().rmaContext());
    if (result != ncclSuccess) return failed("rmaProgress", result);
    if (waits_ && windows_->signal(channel_) >= round_) {
      waits_ = false;
      left_ += answers_ ? 1 : 0;
      messages_++;
      *moved = true;
    }
    for (; left_ > 0; left_--, *moved = true) TRY(begin());
    TRY(finish(moved));
    if (signalsAlone_ && requests_.empty()) {
      signalsAlone_ = false;
      TRY(post("iputSignal", [&](void** request) {
        return table().putSignal(windows_->comm().rmaContext(), to(0), signal(), request);
      }));
    }
    return {};
  }

  bool done() const override { return !waits_ && !signalsAlone_ && left_ == 0 && requests_.empty(); }
  uint64_t messages() const override { return messages_; }

 private:
  bool isFirst() const { return rank_ % 2 == 0; }
  netdriver::RmaTable& table() const { return windows_->comm().table(); }

  static Error failed(const char* call, ncclResult_t result) {
    return Error(Code::remote, "one-sided operations",
                 std::string(call) + " returned " + netdriver::resultName(result));
  }

  // From our input into the same place of the partner's output.
  netdriver::RmaMove to(size_t bytes) const {
    netdriver::RmaMove move;
    move.rank = static_cast<uint32_t>(rank_ ^ 1);
    move.context = channel_;
    move.bytes = bytes;
    if (bytes == 0) return move;
    move.local = windows_->input();
    move.localOffset = windows_->inputOffset(work_.input);
    move.remote = windows_->output();
    move.remoteOffset = windows_->outputOffset(work_.output);
    return move;
  }
  // From the partner's input into the same place of our output.
  netdriver::RmaMove from(size_t bytes) const {
    netdriver::RmaMove move = to(bytes);
    std::swap(move.local, move.remote);
    std::swap(move.localOffset, move.remoteOffset);
    return move;
  }
  netdriver::RmaSignal signal() const {
    netdriver::RmaSignal signal;
    signal.mhandle = windows_->signals();
    signal.offset = Windows::signalOffset(channel_);
    return signal;
  }

  template <class Call>
  Status post(const char* name, Call call) {
    void* request = nullptr;
    const ncclResult_t result = call(&request);
    if (result != ncclSuccess) return failed(name, result);
    if (request == nullptr)
      return Error(Code::remote, "one-sided operations", std::string(name) + " gave no request");
    requests_.push_back(request);
    messages_++;
    return {};
  }

  // Of several puts the last one has the signal.
  Status begin() {
    void* context = windows_->comm().rmaContext();
    if (reach_ == Reach::get)
      return post("iget", [&](void** request) { return table().get(context, from(bytes_), request); });
    netdriver::RmaMove move = to(bytes_);
    move.more = left_ > 1;
    if (move.more) return post("iput", [&](void** request) { return table().put(context, move, request); });
    return post("iputSignal",
                [&](void** request) { return table().putSignal(context, move, signal(), request); });
  }

  // As NCCL does: oldest first, up to the first that is not done.
  Status finish(bool* moved) {
    while (!requests_.empty()) {
      int done = 0;
      const ncclResult_t result = table().test(windows_->comm().collComm(), requests_.front(), &done);
      if (result != ncclSuccess) return failed("test", result);
      if (done == 0) break;
      requests_.pop_front();
      *moved = true;
    }
    return {};
  }

  const Reach reach_;
  const int rank_;
  const int channel_;
  const std::shared_ptr<Windows> windows_;
  Work work_;
  size_t bytes_ = 0;
  uint64_t round_ = 0;  // signals that will have come to this rank when the iteration is over
  int left_ = 0;        // puts or gets to begin
  bool answers_ = false;
  bool waits_ = false;  // for the partner's signal
  bool signalsAlone_ = false;
  std::deque<void*> requests_;
  uint64_t messages_ = 0;
};

Result<std::unique_ptr<Collective>> makeReach(Reach reach, Wiring& wiring) {
  return std::unique_ptr<Collective>(std::make_unique<OneSided>(reach, wiring));
}

}  // namespace

Result<std::unique_ptr<Collective>> makePut(Wiring wiring) {
  return makeReach(Reach::put, wiring);
}

Result<std::unique_ptr<Collective>> makePutSignal(Wiring wiring) {
  return makeReach(Reach::putSignal, wiring);
}

Result<std::unique_ptr<Collective>> makeGet(Wiring wiring) {
  return makeReach(Reach::get, wiring);
}

}  // namespace weft::perf
