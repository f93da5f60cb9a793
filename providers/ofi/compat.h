// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

// The only door to libfabric's headers, 1.17 to 2.x. The library is opened at run time, so nothing here may
// need a symbol of it: all calls but the few of library.cc go through an object's table.
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#include "providers/ofi/freed_early.h"

namespace weft::ofi {

// The oldest API version that we ask for, and the newest that was read and tried. Newer libraries keep an
// older version's behaviour when they are asked for it: software providers always are. EFA is asked for the
// newest that the library has, as before 1.18 it leaves RDMA off on its first cards (p4d, g4dn).
constexpr uint32_t kApiVersion = FI_VERSION(1, 17);
constexpr uint32_t kNewestApi = FI_VERSION(2, 1);

// struct fi_cq_err_entry has more at its end in newer headers, which a library that is asked for their
// version fills in.
struct CompletionError {
  fi_cq_err_entry entry{};
  std::array<uint64_t, 8> newer{};
};

// FI_OPT_EFA_WRITE_IN_ORDER_ALIGNED_128_BYTES of rdma/fi_ext.h, which older headers lack. A bool; set before
// the endpoint is enabled.
constexpr int kWriteLinesInOrder = -(0xefa << 16) + 6;
constexpr uint32_t kWriteLinesInOrderSince = FI_VERSION(1, 19);

// FI_OPT_EFA_EMULATED_READ and FI_OPT_EFA_EMULATED_WRITE of rdma/fi_ext.h, bools to be read: the library's
// processor does it, not the card.
constexpr int kEmulatedRead = -(0xefa << 16) + 1;
constexpr int kEmulatedWrite = -(0xefa << 16) + 2;

// FI_OPT_SHARED_MEMORY_PERMITTED of newer headers. A bool; set before the endpoint is enabled.
constexpr int kSharedMemoryPermitted = 11;

// FI_OPT_INJECT_RMA_SIZE of newer headers. A size_t: a write up to this size travels with its request, and
// the processor reads its bytes.
constexpr int kInjectedWrite = 18;

// Registering a dma-buf: FI_MR_DMABUF of rdma/fi_domain.h, and its structures, which older headers lack. The
// library reads the new end of the structure only where it was asked for that version.
constexpr uint32_t kDmabufSince = FI_VERSION(1, 20);
constexpr uint64_t kDmabufFlag = uint64_t{1} << 40;
struct DmabufRange {  // struct fi_mr_dmabuf
  int fd;
  uint64_t offset;
  size_t length;
  void* base;  // the first byte as peers and works name it, less the offset
};
struct MemoryAttributes {  // struct fi_mr_attr, as in version 2
  const DmabufRange* dmabuf;
  size_t count;
  uint64_t access;
  uint64_t offset;
  uint64_t requestedKey;
  void* context;
  size_t authKeySize;
  uint8_t* authKey;
  int interface;
  uint64_t device;
  void* deviceData;
  size_t pageSize;
  const fid_mr* baseMemory;
  size_t parts;
};
static_assert(sizeof(MemoryAttributes) >= sizeof(fi_mr_attr));
static_assert(offsetof(MemoryAttributes, device) == offsetof(fi_mr_attr, device));

// Closes any libfabric object. An object has to be closed before the object that it was opened on.
struct CloseFid {
  template <class T>
  void operator()(T* object) const {
    fi_close(&object->fid);
  }
  void operator()(fid_ep* endpoint) const {
    const RoomForFreed room;
    fi_close(&endpoint->fid);
  }
};
template <class T>
using FidPtr = std::unique_ptr<T, CloseFid>;

}  // namespace weft::ofi
