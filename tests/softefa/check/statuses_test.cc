// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
//
// Every completion code of the hardware, provoked.
#include <cerrno>
#include <cstring>
#include <string>

#include "tests/softefa/check/node.h"
#include "tests/support/catch.h"

using namespace softefa::check;
using namespace std::chrono_literals;

TEST_CASE("code 1: an error state ends outstanding sends and receives as flushed") {
  Options slow;
  slow.faults = "delay=60s";
  Node a("a"), b("b", slow);
  const auto data = a.memory(8);
  REQUIRE(a.receive(1, data->piece(0, 8)) == 0);
  REQUIRE(a.send(2, a.meet(b), data->piece(0, 8)) == 0);
  CHECK_FALSE(a.next(20ms));
  REQUIRE(a.setState(IBV_QPS_ERR) == 0);
  const Done first = a.take(), second = a.take();
  CHECK(first.vendor == 1);
  CHECK(second.vendor == 1);
  CHECK(first.status == IBV_WC_WR_FLUSH_ERR);
  CHECK(first.wrId + second.wrId == 3);
  REQUIRE(a.send(3, a.meet(b), data->piece(0, 8)) == 0);
  CHECK(a.take().vendor == 1);
}

TEST_CASE("a datagram queue pair does no RDMA") {
  Options datagrams;
  datagrams.datagrams = true;
  Node a("a", datagrams), b("b", datagrams);
  const auto data = a.memory(8);
  ibv_qp_ex* const extended = ibv_qp_to_qp_ex(a.qp);
  CHECK(extended->wr_rdma_write == nullptr);  // not even offered
  ibv_qp_init_attr_ex attr{};
  attr.send_cq = attr.recv_cq = ibv_cq_ex_to_cq(a.cq);
  attr.cap = {8, 8, 1, 1, 0};
  attr.qp_type = IBV_QPT_UD;
  attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  attr.pd = a.pd;
  attr.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE;
  CHECK(ibv_create_qp_ex(a.context, &attr) == nullptr);
  CHECK(errno == EOPNOTSUPP);
}

TEST_CASE("code 4: an address handle that was destroyed is refused") {
  Node a("a"), b("b");
  const auto data = a.memory(8);
  const Target to = a.meet(b);
  a.dropHandle(to.ah);
  REQUIRE(a.send(1, to, data->piece(0, 8)) == 0);
  const Done done = a.take();
  CHECK(done.vendor == 4);
  CHECK(done.status == IBV_WC_LOC_QP_OP_ERR);
}

TEST_CASE("code 5: bad local keys of sends and of receives") {
  Node a("a"), b("b");
  const Target to = a.meet(b);
  const auto data = a.memory(8), in = b.memory(8);
  ibv_sge piece = data->piece(0, 8);
  piece.lkey += 1 << 8;
  REQUIRE(a.send(1, to, piece) == 0);
  CHECK(a.take().vendor == 5);
  REQUIRE(a.send(2, to, data->piece(4, 5)) == 0);  // one byte too many
  const Done done = a.take();
  CHECK(done.vendor == 5);
  CHECK(done.status == IBV_WC_LOC_PROT_ERR);
}

TEST_CASE("codes 5 and 12: a receive in memory without a registration fails on both sides") {
  Node a("a"), b("b");
  const auto data = a.memory(8), in = b.memory(8);
  ibv_sge piece = in->piece(0, 8);
  piece.lkey += 1 << 8;
  REQUIRE(b.receive(1, piece) == 0);
  REQUIRE(a.send(1, a.meet(b), data->piece(0, 8)) == 0);
  CHECK(a.take().vendor == 12);
  CHECK(b.take().vendor == 5);
}

TEST_CASE("code 7: remote keys, ranges and rights are checked") {
  Node a("a"), b("b");
  const Target to = a.meet(b);
  b.meet(a);
  const auto here = a.memory(30000), there = b.memory(30000);
  const auto readable = b.memory(64, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
  REQUIRE(a.write(1, to, here->piece(0, 30000), *there, 1) == 0);  // ends one byte behind
  Done done = a.take();
  CHECK(done.vendor == 7);
  CHECK(done.status == IBV_WC_REM_ACCESS_ERR);
  CHECK(b.counter("bytesWritten") == 0);  // nothing of it landed
  REQUIRE(a.read(2, to, here->piece(0, 64), *there, 29990) == 0);
  CHECK(a.take().vendor == 7);
  REQUIRE(a.write(3, to, here->piece(0, 64), *readable) == 0);
  CHECK(a.take().vendor == 7);
  REQUIRE(a.read(4, to, here->piece(0, 64), *readable) == 0);
  CHECK(a.take().vendor == 0);
}

TEST_CASE("code 8: a write whose target goes away in the middle is aborted") {
  Options slow;
  slow.faults = "rate=1";  // a packet takes 9 ms
  Node a("a"), b("b", slow);
  const Target to = a.meet(b);
  b.meet(a);
  const auto here = a.memory(8 << 20), there = b.memory(8 << 20);
  REQUIRE(a.write(1, to, here->piece(0, 8 << 20), *there) == 0);
  const auto end = std::chrono::steady_clock::now() + 20s;
  while (b.counter("bytesWritten") == 0 && std::chrono::steady_clock::now() < end) a.next(1ms);
  const bool destroyed = GENERATE(false, true);
  if (destroyed)
    b.replaceQueuePair();
  else
    REQUIRE(b.setState(IBV_QPS_ERR) == 0);
  const Done done = a.take();
  CHECK(done.vendor == 8);
  CHECK(done.status == IBV_WC_REM_ABORT_ERR);
}

TEST_CASE("code 11: a message longer than its receive fails on both sides") {
  Node a("a"), b("b");
  const auto data = a.memory(64), in = b.memory(64);
  REQUIRE(b.receive(1, in->piece(0, 63)) == 0);
  REQUIRE(a.send(1, a.meet(b), data->piece(0, 64)) == 0);
  CHECK(a.take().vendor == 11);
  CHECK(b.take().vendor == 6);
}

TEST_CASE("code 13: a host that falls silent is given up") {
  Options impatient;
  impatient.extra = "SOFTEFA_UNRESPONSIVE=50ms";
  Node a("a", impatient), b("b");
  const Target to = a.meet(b);
  const auto data = a.memory(8), in = b.memory(8);
  REQUIRE(b.receive(1, in->piece(0, 8)) == 0);
  b.setFaults("dead=1");
  REQUIRE(a.send(1, to, data->piece(0, 8)) == 0);
  const Done done = a.take();
  CHECK(done.vendor == 13);
  CHECK(done.status == IBV_WC_RESP_TIMEOUT_ERR);
}

TEST_CASE("code 15: a host that never was cannot be reached") {
  Options impatient;
  impatient.extra = "SOFTEFA_UNRESPONSIVE=50ms";
  Node a("a", impatient);
  ibv_gid nobody = a.gid();
  nobody.raw[9] ^= 0xff;
  const auto data = a.memory(8);
  REQUIRE(a.send(1, {a.handleFor(nobody), 0, 0}, data->piece(0, 8)) == 0);
  CHECK(a.take().vendor == 15);
}

TEST_CASE("any code can be planned for the n-th request") {
  Node a("a"), b("b");
  const Target to = a.meet(b);
  b.meet(a);
  const auto here = a.memory(8), there = b.memory(8);
  for (const unsigned code : {2U, 3U, 8U, 12U, 13U, 14U}) {
    a.setFaults("status=" + std::to_string(code) + "@2");
    for (uint64_t i = 0; i < 3; ++i) {
      REQUIRE(a.write(i, to, here->piece(0, 8), *there) == 0);
      const Done done = a.take();
      CHECK(done.wrId == i);
      CHECK(done.vendor == (i == 1 ? code : 0));
    }
  }
}
