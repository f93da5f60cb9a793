// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <sys/mman.h>
#include <type_traits>
#include <unordered_set>
#include <utility>
#include <vector>

#include <infiniband/verbs.h>

#include "tests/softefa/completion_queue.h"
#include "tests/softefa/efa_abi.h"
#include "tests/softefa/event_channel.h"
#include "tests/softefa/nic.h"

// What the verbs API hands out: each begins with the structure of the API, so that a pointer to one is a
// pointer to the other. Created by a call of the API and destroyed by its counterpart.
namespace softefa {

struct Device {
  ibv_device verbs{};
  Settings settings;
  Identity identity;
  unsigned number = 0;
};

struct OpenedDevice {
  verbs_context verbs{};
  std::shared_ptr<Device> device;
  std::unique_ptr<Nic> nic;
  std::mutex handlesMutex;
  std::unordered_set<const ibv_ah*> handles;  // address handles that exist
};

struct ProtectionDomain {
  ibv_pd verbs{};
  std::atomic<int> users{0};
};

// Memory of a dma-buf, mapped where the device alone looks.
class DmabufMapping {
 public:
  DmabufMapping() = default;
  DmabufMapping(void* begin, size_t bytes) : begin_(begin), bytes_(bytes) {}
  DmabufMapping(DmabufMapping&& other) noexcept
      : begin_(std::exchange(other.begin_, nullptr)), bytes_(other.bytes_) {}
  ~DmabufMapping() {
    if (begin_ != nullptr) munmap(begin_, bytes_);
  }
  DmabufMapping(const DmabufMapping&) = delete;
  DmabufMapping& operator=(const DmabufMapping&) = delete;
  DmabufMapping& operator=(DmabufMapping&& other) noexcept {
    std::swap(begin_, other.begin_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }

 private:
  void* begin_ = nullptr;
  size_t bytes_ = 0;
};

struct MemoryRegion {
  ibv_mr verbs{};
  DmabufMapping dmabuf;  // where it is of one
};

struct AddressHandle {
  ibv_ah verbs{};
  uint16_t number = 0;
  Gid gid;
};

struct PolledQueue {
  ibv_cq_ex verbs{};
  EfaCq efa{};
  std::unique_ptr<CompletionQueue> queue;
  Nic* nic = nullptr;
  std::mutex polling;  // from a start_poll that found something to end_poll
  Completion current;
  std::atomic<int> users{0};
};

struct PostedPair {
  ibv_qp_ex verbs{};
  QueuePair* qp = nullptr;
  Nic* nic = nullptr;
  std::mutex posting;  // from wr_start to wr_complete
  std::vector<WorkRequest> work;
  int error = 0;
};

// The object that an API pointer is the first member of.
template <class Object, class Verbs>
Object* objectOf(Verbs* verbs) {
  return reinterpret_cast<Object*>(verbs);
}

inline OpenedDevice* openedOf(ibv_context* context) {
  return objectOf<OpenedDevice>(verbs_get_ctx(context));
}
inline Nic& nicOf(ibv_context* context) {
  return *openedOf(context)->nic;
}

// Hands an object to a caller who gives it back to adopt.
template <class Object>
Object* release(std::unique_ptr<Object> object) {
  return object.release();
}
template <class Object, class Verbs>
std::unique_ptr<Object> adopt(Verbs* verbs) {
  return std::unique_ptr<Object>(objectOf<Object>(verbs));
}

// Fills the calls of a queue pair's extended interface (verbs_work.cc), as far as `operations` asks for them.
void setWorkCalls(ibv_qp_ex& verbs, uint64_t operations);
int postSends(ibv_qp* qp, ibv_send_wr* work, ibv_send_wr** bad);
int postReceives(ibv_qp* qp, ibv_recv_wr* work, ibv_recv_wr** bad);

ibv_cq_ex* createCq(ibv_context* context, ibv_cq_init_attr_ex* attr);
int requestNotify(ibv_cq* cq, int solicitedOnly);
ibv_qp* createQp(ibv_context* context, ibv_qp_init_attr_ex* attr);

// Copies what the caller has room for.
template <class Attr>
void copyKnown(Attr* target, const Attr& source, uint32_t size) {
  const auto* from = reinterpret_cast<const unsigned char*>(&source);
  auto* to = reinterpret_cast<unsigned char*>(target);
  for (uint32_t i = 0; i < size; ++i) to[i] = i < sizeof source ? from[i] : 0;
}

}  // namespace softefa
