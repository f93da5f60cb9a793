// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "plugin/profiler.h"

// Message events in the shapes of two network families.
namespace weft::plugin {

namespace {

constexpr int kVerbsWriteWithImm = 1;       // IBV_WR_RDMA_WRITE_WITH_IMM
constexpr int kVerbsReceivedWithImm = 129;  // IBV_WC_RECV_RDMA_WITH_IMM
constexpr int kSocketSend = 0;              // the values that NCCL's own socket transport reports
constexpr int kSocketReceive = 1;

// InfiniBand's descriptor: a message in the place of a work request.
struct VerbsFamily {
  using Descriptor = ncclProfilerNetIbDescr_v1_t;
  static constexpr int64_t kId = NCCL_PROFILER_NET_TYPE_IB | NCCL_PROFILER_NET_IB_VER;

  static Descriptor describe(const core::MessageEvent& event) {
    Descriptor out{};
    out.type = ncclProfileQp;
    out.qp.device = event.device;
    out.qp.wr_id = event.sequence;
    out.qp.opcode = event.send ? kVerbsWriteWithImm : kVerbsReceivedWithImm;
    out.qp.qpNum = event.tag;  // a message has no queue pair of its own; the tag tells the flows apart
    out.qp.length = event.bytes;
    return out;
  }
};

// The socket transport's descriptor: a message in the place of a call on a socket.
struct SocketFamily {
  using Descriptor = ncclProfilerNetSockDescr_v1_t;
  static constexpr int64_t kId = NCCL_PROFILER_NET_TYPE_SOCK | NCCL_PROFILER_NET_SOCKET_VER;

  static Descriptor describe(const core::MessageEvent& event) {
    Descriptor out{};
    out.type = ncclProfileSocket;
    out.sock.fd = -1;
    out.sock.op = event.send ? kSocketSend : kSocketReceive;
    out.sock.length = event.bytes;
    return out;
  }
};

template <class Family>
class Profiler : public core::ProfilerSink {
 public:
  explicit Profiler(ncclProfilerCallback_t callback) : callback_(callback) {}

  // The callback writes the handle only if a profiler wants network events. Without a parent it must not be
  // called at all.
  void* begin(void* parent, const core::MessageEvent& event) override {
    if (!parent) return nullptr;
    void* handle = nullptr;
    auto descriptor = Family::describe(event);
    (void)callback_(&handle, ncclProfilerNetEventStart, parent, Family::kId, &descriptor);
    return handle;
  }

  void end(void* handle, const core::MessageEvent& event) override {
    if (!handle) return;
    auto descriptor = Family::describe(event);
    (void)callback_(&handle, ncclProfilerNetEventStop, nullptr, Family::kId, &descriptor);
  }

 private:
  ncclProfilerCallback_t callback_;
};

}  // namespace

std::shared_ptr<core::ProfilerSink> makeProfiler(ncclProfilerCallback_t callback,
                                                 const std::string& provider) {
  if (!callback) return nullptr;
  if (provider.find("verbs") != std::string::npos) return std::make_shared<Profiler<VerbsFamily>>(callback);
  return std::make_shared<Profiler<SocketFamily>>(callback);
}

}  // namespace weft::plugin
