// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <cerrno>

#include "providers/verbs/memory.h"
#include "tests/support/catch.h"
#include "tests/support/text.h"

// How verbs registers GPU memory: what libibverbs is asked for, and what its refusals are called.
using namespace weft;
using namespace weft::verbs;
using test::contains;

namespace {

constexpr int kKernelNotSupported = 524;

// What the last call was given. The functions of a Library carry no state.
struct Asked {
  int error = 0;  // to fail with
  int calls = 0;
  uint64_t offset = 0, iova = 0;
  size_t length = 0;
  int fd = -1, access = 0;
  bool plain = false;  // by ibv_reg_mr
  int direct = 0;      // of mlx5dv_reg_dmabuf_mr
};
Asked asked;
ibv_mr region;

ibv_mr* answer() {
  asked.calls++;
  errno = asked.error;
  region.lkey = 5;
  region.rkey = 9;
  return asked.error == 0 ? &region : nullptr;
}

ibv_mr* registerDmabuf(ibv_pd*, uint64_t offset, size_t length, uint64_t iova, int fd, int access) {
  asked.offset = offset;
  asked.length = length;
  asked.iova = iova;
  asked.fd = fd;
  asked.access = access;
  return answer();
}

Library library(bool withDmabuf = true) {
  asked = {};
  Library made;
  made.regMr = [](ibv_pd*, void*, size_t, int access) {
    asked.plain = true;
    asked.access = access;
    return answer();
  };
  made.regMrIova2 = [](ibv_pd*, void*, size_t, uint64_t iova, unsigned access) {
    asked.iova = iova;
    asked.access = static_cast<int>(access);
    return answer();
  };
  made.deregMr = [](ibv_mr*) { return 0; };
  if (!withDmabuf) return made;
  made.regDmabufMr = registerDmabuf;
  return made;
}

// What libmlx5 says of the card, and which card is its own.
std::string secondFunction;
ibv_device own, other;

int sayPath(ibv_context*, char* out, size_t bytes) {
  if (secondFunction.empty()) return ENODEV;
  if (secondFunction.size() >= bytes) return ENOSPC;
  out[secondFunction.copy(out, bytes)] = 0;
  return 0;
}

ibv_mr* registerDirect(ibv_pd* pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access,
                       int direct) {
  asked.direct = direct;
  return registerDmabuf(pd, offset, length, iova, fd, access);
}

const DataDirect* dataDirect() {
  static const DataDirect calls{[](ibv_device* device) { return device == &own; }, sayPath, registerDirect};
  return &calls;
}

MemoryDesc descOf(MemoryKind kind) {
  MemoryDesc desc;
  desc.address = reinterpret_cast<void*>(uintptr_t{0x7000000000});
  desc.length = 12288;
  desc.kind = kind;
  desc.fd = 17;
  desc.fdOffset = 4096;
  return desc;
}

std::string refusal(MemoryKind kind, int error) {
  const Library of = library();
  asked.error = error;
  const auto memory = VerbsMemory::create(of, nullptr, descOf(kind));
  REQUIRE_FALSE(memory);
  return memory.error().message();
}

}  // namespace

TEST_CASE("a dma-buf is registered under the GPU's address, with relaxed ordering") {
  const Library of = library();
  const auto memory = VerbsMemory::create(of, nullptr, descOf(MemoryKind::dmabuf));
  REQUIRE(memory);
  CHECK(asked.fd == 17);
  CHECK(asked.offset == 4096);
  CHECK(asked.length == 12288);
  CHECK(asked.iova == 0x7000000000);
  CHECK((asked.access & IBV_ACCESS_RELAXED_ORDERING) != 0);
  CHECK_FALSE(static_cast<VerbsMemory&>(**memory).host());
  const auto remote = decodeMemory((*memory)->blob());
  REQUIRE(remote);
  CHECK(remote->base == 0x7000000000);
  CHECK(remote->key == 9);
}

TEST_CASE("GPU memory goes by its address where a module resolves it, and rings stay strictly ordered") {
  const Library of = library();
  REQUIRE(VerbsMemory::create(of, nullptr, descOf(MemoryKind::cuda)));
  CHECK(asked.iova == 0x7000000000);
  CHECK((asked.access & IBV_ACCESS_RELAXED_ORDERING) != 0);
  MemoryDesc ring = descOf(MemoryKind::host);
  ring.strictOrder = true;
  const auto memory = VerbsMemory::create(of, nullptr, ring);
  REQUIRE(memory);
  CHECK(asked.plain);
  CHECK((asked.access & IBV_ACCESS_RELAXED_ORDERING) == 0);
  CHECK(static_cast<VerbsMemory&>(**memory).host());
}

TEST_CASE("what a kernel means by refusing GPU memory is said") {
  CHECK(contains(refusal(MemoryKind::dmabuf, kKernelNotSupported), "PCIe or C2C, wrongly paired"));
  CHECK(contains(refusal(MemoryKind::dmabuf, EOPNOTSUPP), "its kernel driver registers no dma-buf"));
  CHECK(contains(refusal(MemoryKind::dmabuf, ENOMEM), "the GPU's BAR or the card's table is full"));
  CHECK(contains(refusal(MemoryKind::dmabuf, EINVAL), "the descriptor is no dma-buf"));
  CHECK(contains(refusal(MemoryKind::cuda, EFAULT), "no kernel module here knows GPU addresses"));
  CHECK(contains(refusal(MemoryKind::cuda, EFAULT), "12288 bytes of GPU memory at 0x7000000000"));
}

TEST_CASE("a full table is a limit, so that it is emptied and asked again") {
  const Library of = library();
  asked.error = ENOMEM;
  const auto memory = VerbsMemory::create(of, nullptr, descOf(MemoryKind::dmabuf));
  REQUIRE_FALSE(memory);
  CHECK(memory.error().code() == Code::resources);
}

TEST_CASE("an old libibverbs registers no dma-buf, and is not asked") {
  const Library of = library(false);
  const auto memory = VerbsMemory::create(of, nullptr, descOf(MemoryKind::dmabuf));
  REQUIRE_FALSE(memory);
  CHECK(contains(memory.error().message(), "rdma-core 34"));
  CHECK(asked.calls == 0);
}

TEST_CASE("a dma-buf goes through the card's second function where that is asked for") {
  Library of = library();
  of.dataDirect = dataDirect;
  MemoryDesc desc = descOf(MemoryKind::dmabuf);
  desc.direct = true;
  REQUIRE(VerbsMemory::create(of, nullptr, desc));
  CHECK(asked.direct == 1);
  CHECK(asked.fd == 17);
  CHECK(asked.offset == 4096);
  CHECK(asked.iova == 0x7000000000);
  CHECK((asked.access & IBV_ACCESS_RELAXED_ORDERING) != 0);
  asked.error = EOPNOTSUPP;
  const auto refused = VerbsMemory::create(of, nullptr, desc);
  REQUIRE_FALSE(refused);
  CHECK(contains(refused.error().message(), "registers no dma-buf"));
}

TEST_CASE("a libmlx5 without that function is not asked") {
  Library of = library();
  MemoryDesc desc = descOf(MemoryKind::dmabuf);
  desc.direct = true;
  const auto memory = VerbsMemory::create(of, nullptr, desc);
  REQUIRE_FALSE(memory);
  CHECK(contains(memory.error().message(), "rdma-core 54"));
  CHECK(asked.calls == 0);
}

TEST_CASE("the directory of a second function is asked of libmlx5, for its own cards") {
  Library of = library();
  secondFunction = "devices/pci0009:00/0009:01:00.0";
  CHECK(of.directPath(&own, nullptr).empty());  // no libmlx5
  of.dataDirect = dataDirect;
  CHECK(of.directPath(&own, nullptr) == "/sys/devices/pci0009:00/0009:01:00.0");
  CHECK(of.directPath(&other, nullptr).empty());
  secondFunction = "/devices/pci0009:00/0009:01:00.0";
  CHECK(of.directPath(&own, nullptr) == "/sys/devices/pci0009:00/0009:01:00.0");
  secondFunction.clear();
  CHECK(of.directPath(&own, nullptr).empty());
}
