// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <algorithm>
#include <array>
#include <cstring>

#include "tools/netdriver/coll_net.h"
#include "tools/perf/channels.h"

// Collectives by the plugin's table for offload, as NCCL uses it where it cannot register the application's
// buffers: steps of one buffer, half of it for what is sent and half for what is received, eight at a time.
namespace weft::perf {

namespace {

enum class Kind : uint8_t { allReduce, allGather, reduceScatter };

ncclDataType_t typeOf(const ElementType& type) {
  const std::pair<const char*, ncclDataType_t> kTypes[] = {
      {"float", ncclFloat32}, {"half", ncclFloat16}, {"bfloat16", ncclBfloat16}, {"double", ncclFloat64},
      {"int8", ncclInt8},     {"uint8", ncclUint8},  {"int32", ncclInt32},       {"uint32", ncclUint32},
      {"int64", ncclInt64},   {"uint64", ncclUint64}};
  for (const auto& [name, number] : kTypes)
    if (std::strcmp(type.name, name) == 0) return number;
  return ncclUint8;
}

ncclRedOp_t opOf(RedOp op) {
  switch (op) {
    case RedOp::sum:
      return ncclSum;
    case RedOp::prod:
      return ncclProd;
    case RedOp::max:
      return ncclMax;
    default:
      return ncclMin;
  }
}

class Offloaded final : public Collective {
 public:
  Offloaded(Kind kind, Wiring& wiring) : kind_(kind), rank_(wiring.rank), comm_(std::move(wiring.offload)) {
    step_ = wiring.bufferBytes / kSteps / kAlignBytes * kAlignBytes;
  }
  Status open() { return comm_->registerBuffer(2 * kSteps * step_); }

  void start(const Work& work) override {
    work_ = work;
    ranks_ = static_cast<size_t>(size_);
    partBytes_ = work.count * work.type->bytes;
    total_ = kind_ == Kind::allReduce ? partBytes_ : partBytes_ * ranks_;
    posted_ = taken_ = 0;
    count_ = (total_ + step_ - 1) / step_;
  }

  Status progress(bool* moved) override {
    while (posted_ < count_ && posted_ < taken_ + kSteps) {
      bool started = false;
      TRY(post(posted_, &started));
      if (!started) break;
      posted_++;
      messages_++;
      *moved = true;
    }
    while (taken_ < posted_) {
      int done = 0, size = 0;
      const ncclResult_t result = comm_->table().test(requests_[taken_ % kSteps], &done, &size);
      if (result != ncclSuccess) return failed("test", result);
      if (done == 0) break;
      take(taken_);
      taken_++;
      *moved = true;
    }
    return {};
  }

  bool done() const override { return taken_ == count_; }
  uint64_t messages() const override { return messages_; }
  void setSize(int size) { size_ = size; }

 private:
  struct Window {
    size_t begin;
    size_t bytes;
  };

  static Error failed(const char* call, ncclResult_t result) {
    return Error(Code::remote, "collective offload",
                 std::string(call) + " returned " + netdriver::resultName(result));
  }

  Window windowOf(size_t index) const { return {index * step_, std::min(step_, total_ - index * step_)}; }
  std::byte* sendSlot(size_t index) const { return comm_->data() + index % kSteps * step_; }
  std::byte* receiveSlot(size_t index) const { return comm_->data() + (kSteps + index % kSteps) * step_; }

  // Of our own part what lies in the window: where in the part, and how much.
  Window ownOf(const Window& window) const {
    const size_t first = static_cast<size_t>(rank_) * partBytes_;
    const size_t from = std::clamp(window.begin, first, first + partBytes_);
    const size_t to = std::clamp(window.begin + window.bytes, first, first + partBytes_);
    return {from - first, to - from};
  }

  // Between a window of the parts side by side and the application's memory, where they are a stride apart.
  template <class Copy>
  void eachPiece(const Window& window, Copy copy) const {
    const size_t stride = work_.stride * work_.type->bytes;
    for (size_t at = window.begin; at < window.begin + window.bytes;) {
      const size_t part = at / partBytes_;
      const size_t bytes = std::min((part + 1) * partBytes_, window.begin + window.bytes) - at;
      copy(part * stride + at % partBytes_, at - window.begin, bytes);
      at += bytes;
    }
  }

  Status post(size_t index, bool* started) {
    const Window window = windowOf(index);
    const Window own = ownOf(window);
    std::byte* send = sendSlot(index);
    void*& request = requests_[index % kSteps];
    request = nullptr;
    ncclNetSGE_v12_t piece{comm_->mhandle(), receiveSlot(index), window.bytes};
    ncclResult_t result = ncclSuccess;
    if (kind_ == Kind::allReduce) {
      std::memcpy(send, work_.input + window.begin, window.bytes);
      result = comm_->table().iallreduce(comm_->raw(), send, receiveSlot(index),
                                         window.bytes / work_.type->bytes, typeOf(*work_.type),
                                         opOf(work_.op), comm_->mhandle(), comm_->mhandle(), &request);
    } else if (kind_ == Kind::allGather) {
      std::memcpy(send, work_.input + own.begin, own.bytes);
      result = comm_->table().iallgather(comm_->raw(), send, 1, &piece, partBytes_, window.begin,
                                         window.bytes, comm_->mhandle(), &request);
    } else {
      piece.address = send;
      eachPiece(window, [&](size_t from, size_t to, size_t bytes) {
        std::memcpy(send + to, work_.input + from, bytes);
      });
      result = comm_->table().ireducescatter(comm_->raw(), 1, &piece, receiveSlot(index), partBytes_,
                                             window.begin, window.bytes, typeOf(*work_.type), opOf(work_.op),
                                             comm_->mhandle(), &request);
    }
    if (result != ncclSuccess) return failed("starting an operation", result);
    *started = request != nullptr;
    return {};
  }

  void take(size_t index) {
    const Window window = windowOf(index);
    const std::byte* received = receiveSlot(index);
    if (kind_ == Kind::allReduce) {
      std::memcpy(work_.output + window.begin, received, window.bytes);
    } else if (kind_ == Kind::allGather) {
      eachPiece(window, [&](size_t to, size_t from, size_t bytes) {
        std::memcpy(work_.output + to, received + from, bytes);
      });
    } else {
      const Window own = ownOf(window);
      std::memcpy(work_.output + own.begin, received, own.bytes);
    }
  }

  const Kind kind_;
  const int rank_;
  int size_ = 1;
  std::shared_ptr<netdriver::CollComm> comm_;
  size_t step_ = 0;
  Work work_;
  size_t ranks_ = 1;
  size_t partBytes_ = 0;
  size_t total_ = 0;
  size_t count_ = 0;
  size_t posted_ = 0;
  size_t taken_ = 0;
  uint64_t messages_ = 0;
  std::array<void*, kSteps> requests_{};
};

Result<std::unique_ptr<Collective>> make(Kind kind, Wiring& wiring) {
  auto offloaded = std::make_unique<Offloaded>(kind, wiring);
  offloaded->setSize(wiring.size);
  TRY(offloaded->open());
  return std::unique_ptr<Collective>(std::move(offloaded));
}

}  // namespace

Result<std::unique_ptr<Collective>> makeOffloadedAllReduce(Wiring wiring) {
  return make(Kind::allReduce, wiring);
}

Result<std::unique_ptr<Collective>> makeOffloadedAllGather(Wiring wiring) {
  return make(Kind::allGather, wiring);
}

Result<std::unique_ptr<Collective>> makeOffloadedReduceScatter(Wiring wiring) {
  return make(Kind::reduceScatter, wiring);
}

}  // namespace weft::perf
