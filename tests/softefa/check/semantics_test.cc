// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
//
// What users of an EFA rely on, one test each; the numbers are those of README.md.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <functional>
#include <numeric>
#include <set>
#include <string>
#include <thread>

#include <infiniband/efadv.h>

#include "tests/softefa/check/node.h"
#include "tests/softefa/efa_abi.h"
#include "tests/support/catch.h"

using namespace softefa;
using namespace softefa::check;
using namespace std::chrono_literals;

namespace {

constexpr size_t kLongest = 8928;

void number(Memory& memory) {
  std::iota(memory.bytes.begin(), memory.bytes.end(), static_cast<unsigned char>(1));
}

uint32_t capsOf(const std::string& generation) {
  Options options;
  options.generation = generation;
  Node node("a", options);
  efadv_device_attr attr{};
  REQUIRE(efadv_query_device(node.context, &attr, sizeof attr) == 0);
  return attr.device_caps;
}

size_t threads() {
  const std::filesystem::directory_iterator all("/proc/self/task");
  return static_cast<size_t>(std::distance(begin(all), end(all)));
}

bool eventually(const std::function<bool()>& condition) {
  const auto end = std::chrono::steady_clock::now() + 20s;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(1ms);
  }
  return true;
}

// A thread that was joined is listed for a moment more.
bool threadsBecome(size_t count) {
  return eventually([&] { return threads() == count; });
}

}  // namespace

TEST_CASE("1: a completion of a destroyed queue pair is consumed and refused") {
  Node a("a"), b("b");
  const Target to = a.meet(b);
  const auto data = a.memory(64);
  REQUIRE(a.send(1, {to.ah, 60000, 0}, data->piece(0, 64)) == 0);  // fails at once, and completes
  a.replaceQueuePair();
  REQUIRE(a.send(2, {to.ah, 60000, 0}, data->piece(0, 64)) == 0);
  Done done{};
  CHECK(a.poll(done) == EINVAL);
  CHECK(a.take().vendor == 9);
  CHECK(a.poll(done) == ENOENT);
}

TEST_CASE("2: reads may have one local piece, and queue pair numbers differ modulo max_qp") {
  Node a("a"), b("a");
  ibv_device_attr attr{};
  REQUIRE(ibv_query_device(a.context, &attr) == 0);
  CHECK(attr.max_sge_rd >= 1);
  CHECK(attr.vendor_part_id != 0xefa0);
  const auto size = static_cast<unsigned>(attr.max_qp);
  std::set<uint32_t> numbers{a.qp->qp_num % size};
  ibv_qp* const first = a.qp;
  std::vector<ibv_qp*> others;
  for (int i = 0; i < 20; ++i) {
    a.createQueuePair();
    others.push_back(a.qp);
    numbers.insert(a.qp->qp_num % size);
  }
  CHECK(numbers.size() == 21);
  CHECK(b.qp->qp_num != first->qp_num);  // two openings of one NIC share its address
  CHECK(b.qp->qp_num < 1U << 16);
  for (ibv_qp* qp : others) ibv_destroy_qp(qp);
  a.qp = first;
}

TEST_CASE("3: a read completes as a send, and completions of own work have no length") {
  Node a("a"), b("b");
  const Target to = a.meet(b);
  b.meet(a);
  const auto here = a.memory(4096), there = b.memory(4096);
  number(*there);
  REQUIRE(a.read(5, to, here->piece(0, 4096), *there) == 0);
  const auto done = a.next();
  REQUIRE(done);
  CHECK(done->status == IBV_WC_SUCCESS);
  CHECK(done->opcode == IBV_WC_SEND);
  CHECK(done->byteLength == 0);
  CHECK(done->wrId == 5);
  CHECK((here->bytes == there->bytes));
}

TEST_CASE("4: a sender is told by its address handle's number, or by its GID when it has none") {
  Node a("a"), b("b");
  const Target to = a.meet(b);
  const auto out = a.memory(8), in = b.memory(64);
  const auto once = [&] {
    REQUIRE(b.receive(1, in->piece(0, 64)) == 0);
    REQUIRE(a.send(1, to, out->piece(0, 8)) == 0);
    REQUIRE(a.next());
    return b.take();
  };
  Done done = once();
  CHECK(done.slid == 0xffff);
  CHECK(done.sgidKnown);
  CHECK(done.sourceQpn == a.qp->qp_num);

  ibv_ah* const first = b.handleFor(a.gid());
  ibv_ah* const second = b.handleFor(a.gid());
  efadv_ah_attr one{}, two{};
  REQUIRE(efadv_query_ah(first, &one, sizeof one) == 0);
  REQUIRE(efadv_query_ah(second, &two, sizeof two) == 0);
  CHECK(one.ahn == two.ahn);  // one number a GID
  done = once();
  CHECK(done.slid == one.ahn);
  CHECK_FALSE(done.sgidKnown);

  b.dropHandle(first);
  CHECK(once().slid == one.ahn);  // counted
  b.dropHandle(second);
  CHECK(once().slid == 0xffff);
}

TEST_CASE("5: RDMA to a target that has no address handle for us ends as unknown peer") {
  Node a("a"), b("b");
  const Target to = a.meet(b);
  const auto here = a.memory(64), there = b.memory(64);
  REQUIRE(a.write(1, to, here->piece(0, 64), *there) == 0);
  CHECK(a.take().vendor == 14);
  REQUIRE(a.read(2, to, here->piece(0, 64), *there) == 0);
  CHECK(a.take().vendor == 14);
  b.meet(a);
  REQUIRE(a.write(3, to, here->piece(0, 64), *there) == 0);
  CHECK(a.take().vendor == 0);
}

TEST_CASE("6: a write's notification takes no posted receive where it comes unsolicited") {
  Options options;
  options.unsolicited = true;
  Node a("a", options), b("b", options);
  const Target to = a.meet(b);
  b.meet(a);
  const auto here = a.memory(20000), there = b.memory(20000);
  number(*here);
  REQUIRE(a.write(1, to, here->piece(0, 20000), *there, 0, 0xabcd) == 0);
  const auto note = b.next();
  REQUIRE(note);
  CHECK(note->opcode == IBV_WC_RECV_RDMA_WITH_IMM);
  CHECK(note->imm == 0xabcd);
  CHECK((note->flags & IBV_WC_WITH_IMM) != 0);
  CHECK(note->byteLength == 20000);
  CHECK(note->unsolicited);
  CHECK((there->bytes == here->bytes));
  CHECK(a.take().opcode == IBV_WC_RDMA_WRITE);
}

TEST_CASE("6: elsewhere it takes one, and the writer waits while none is posted") {
  Node a("a"), b("b");
  const Target to = a.meet(b);
  b.meet(a);
  const auto here = a.memory(100), there = b.memory(100);
  REQUIRE(a.write(1, to, here->piece(0, 100), *there, 0, 7) == 0);
  CHECK(eventually([&] { return b.counter("notReady") > 0; }));
  CHECK_FALSE(a.next(30ms));
  REQUIRE(b.receive(77, there->piece(0, 0)) == 0);
  const auto note = b.next();
  REQUIRE(note);
  CHECK(note->wrId == 77);
  CHECK_FALSE(note->unsolicited);
  CHECK(a.take().vendor == 0);
}

TEST_CASE("7: a receiver that is not ready is tried again so often, or for ever") {
  Options few;
  few.rnrRetry = 3;
  Node a("a", few), b("b"), c("c");
  const auto data = a.memory(16), patient = c.memory(16), in = b.memory(16);
  REQUIRE(a.send(1, a.meet(b), data->piece(0, 16)) == 0);
  const auto done = a.next();
  REQUIRE(done);
  CHECK(done->vendor == 10);
  CHECK(done->status == IBV_WC_RNR_RETRY_EXC_ERR);
  CHECK(b.counter("notReady") == 4);  // the first attempt and three more

  REQUIRE(c.send(1, c.meet(b), patient->piece(0, 16)) == 0);
  CHECK_FALSE(c.next(50ms));
  REQUIRE(b.receive(1, in->piece(0, 16)) == 0);
  CHECK(c.take().vendor == 0);
}

TEST_CASE("8: a key ends with its registration, for work that is under way too") {
  Node a("a"), b("b");
  const Target to = a.meet(b);
  b.meet(a);
  const auto here = a.memory(64), again = a.memory(64), there = b.memory(64);
  CHECK(there->mr->rkey < 1U << 24);
  b.setFaults("mute=a");  // the write waits at its target
  REQUIRE(a.write(1, to, here->piece(0, 64), *there) == 0);
  const uint32_t old = there->mr->rkey;
  there->deregister();
  b.setFaults("none");
  CHECK(a.take().vendor == 7);

  const auto other = b.memory(64);
  CHECK(other->mr->rkey != old);
  const ibv_sge stale = here->piece(0, 64);
  here->deregister();
  REQUIRE(a.write(2, to, stale, *other) == 0);
  CHECK(a.take().vendor == 5);
}

TEST_CASE("9: a wrong queue key, a queue pair that is not ready or gone: bad destination") {
  Node a("a"), b("b");
  const Target to = a.meet(b);
  const auto data = a.memory(8), in = b.memory(8);
  REQUIRE(b.receive(1, in->piece(0, 8)) == 0);
  const auto vendorOf = [&](const Target& target) {
    REQUIRE(a.send(1, target, data->piece(0, 8)) == 0);
    return a.take().vendor;
  };
  CHECK(vendorOf({to.ah, to.qpn, to.qkey + 1}) == 9);
  CHECK(vendorOf({to.ah, to.qpn + 1, to.qkey}) == 9);
  b.replaceQueuePair();
  REQUIRE(b.qp->qp_num == to.qpn);  // the number is used again
  CHECK(vendorOf(to) == 9);
  REQUIRE(b.receive(2, in->piece(0, 8)) == 0);
  CHECK(vendorOf({to.ah, to.qpn, b.qkey}) == 0);
}

TEST_CASE("10: a send is done when its receiver has it, a datagram when it has left") {
  Options slow;
  slow.faults = "delay=50ms";
  Node a("a"), b("b", slow);
  const auto data = a.memory(8), in = b.memory(8);
  REQUIRE(b.receive(1, in->piece(0, 8)) == 0);
  const auto begin = std::chrono::steady_clock::now();
  REQUIRE(a.send(1, a.meet(b), data->piece(0, 8)) == 0);
  CHECK(a.take().vendor == 0);
  CHECK(std::chrono::steady_clock::now() - begin >= 50ms);

  Options datagrams = slow;
  datagrams.datagrams = true;
  Node c("c", datagrams), d("d", datagrams);
  const auto out = c.memory(100), room = d.memory(200);
  number(*out);
  std::fill(room->bytes.begin(), room->bytes.end(), static_cast<unsigned char>(0xee));
  REQUIRE(d.receive(9, room->piece(0, 200)) == 0);
  REQUIRE(c.send(1, c.meet(d), out->piece(0, 100), 3) == 0);
  Done done{};
  CHECK(c.poll(done) == 0);  // at once
  const auto got = d.next();
  REQUIRE(got);
  CHECK(got->byteLength == 140);  // with the 40 bytes before it
  CHECK((got->flags & IBV_WC_GRH) != 0);
  CHECK(got->imm == 3);
  CHECK(room->bytes[39] == 0xee);
  CHECK(std::equal(out->bytes.begin(), out->bytes.end(), room->bytes.begin() + 40));
}

TEST_CASE("10: what fits: one packet a send, 32 bytes inline, two pieces") {
  Node a("a"), b("b");
  const Target to = a.meet(b);
  const auto data = a.memory(10000), in = b.memory(10000);
  REQUIRE(b.receive(1, in->piece(0, 10000)) == 0);
  REQUIRE(a.send(1, to, data->piece(0, kLongest + 1)) == 0);
  CHECK(a.take().vendor == 6);
  REQUIRE(a.send(2, to, data->piece(0, kLongest)) == 0);
  CHECK(a.take().vendor == 0);
  CHECK(b.take().byteLength == kLongest);

  REQUIRE(b.receive(2, in->piece(0, 64)) == 0);
  CHECK(a.sendInline(3, to, std::string(33, 'x')) == EINVAL);
  REQUIRE(a.sendInline(4, to, "inline text") == 0);
  CHECK(a.take().vendor == 0);
  CHECK(std::memcmp(in->bytes.data(), "inline text", 11) == 0);

  const ibv_sge three[3] = {data->piece(0, 1), data->piece(1, 1), data->piece(2, 1)};
  ibv_qp_ex* const extended = ibv_qp_to_qp_ex(a.qp);
  ibv_wr_start(extended);
  ibv_wr_send(extended);
  ibv_wr_set_sge_list(extended, 3, three);
  CHECK(ibv_wr_complete(extended) == EINVAL);
}

TEST_CASE("11: several requests go with one wr_complete, which refuses what does not fit") {
  Options options;
  options.sendDepth = 4;
  options.receiveDepth = 2;
  options.faults = "delay=20ms";
  Node a("a", options), b("b");
  const Target to = a.meet(b);
  const auto data = a.memory(8), in = b.memory(64);
  ibv_qp_ex* const extended = ibv_qp_to_qp_ex(a.qp);
  const auto post = [&](unsigned count) {
    ibv_wr_start(extended);
    for (unsigned i = 0; i < count; ++i) {
      const ibv_sge piece = data->piece(0, 8);
      extended->wr_id = i;
      ibv_wr_send(extended);
      ibv_wr_set_sge_list(extended, 1, &piece);
      ibv_wr_set_ud_addr(extended, to.ah, to.qpn, to.qkey);
    }
    return ibv_wr_complete(extended);
  };
  for (uint64_t i = 0; i < 4; ++i) REQUIRE(b.receive(i, in->piece(0, 8)) == 0);
  CHECK(post(5) == ENOMEM);
  CHECK(post(3) == 0);
  CHECK(post(2) == ENOMEM);
  CHECK(post(1) == 0);
  for (int i = 0; i < 4; ++i) CHECK(a.take().vendor == 0);
  CHECK(post(4) == 0);  // taken completions make room
  CHECK(a.receive(1, data->piece(0, 8)) == 0);
  CHECK(a.receive(2, data->piece(0, 8)) == 0);
  CHECK(a.receive(3, data->piece(0, 8)) == ENOMEM);
}

TEST_CASE("12: each generation says what it can do, and refuses the rest") {
  CHECK(capsOf("send") == (kCapRnrRetry | kCapCqWithSgid));
  CHECK(capsOf("read") == (kCapRnrRetry | kCapCqWithSgid | kCapRdmaRead));
  CHECK(capsOf("write") == (kCapRnrRetry | kCapCqWithSgid | kCapRdmaRead | kCapRdmaWrite));
  CHECK(capsOf("unsolicited") == 31);
  CHECK(capsOf("inorder") == 31);

  Options options, wanted;
  options.generation = "send";
  Node old("a", options), fresh("b");
  CHECK_FALSE(old.newQueuePair(wanted));  // that can read and write
  CHECK(errno == EOPNOTSUPP);
  options.generation = wanted.generation = "write";
  wanted.unsolicited = true;
  Node middle("c", options);
  CHECK_FALSE(middle.newQueuePair(wanted));
  CHECK_THROWS(old.memory(8));  // remote write access
  const auto data = old.memory(8, IBV_ACCESS_LOCAL_WRITE);
  CHECK(data->mr);
  CHECK(ibv_query_qp_data_in_order(old.qp, IBV_WR_RDMA_WRITE, 1) == 0);
  CHECK(ibv_query_qp_data_in_order(fresh.qp, IBV_WR_RDMA_WRITE, 1) == 2);  // within 128 bytes
  CHECK(ibv_query_qp_data_in_order(fresh.qp, IBV_WR_RDMA_WRITE, 0) == 0);  // not over a whole message
}

TEST_CASE("13: hosts have addresses of their own, processes of a host share theirs") {
  Node a("a"), same("a"), b("b");
  CHECK(std::memcmp(a.gid().raw, same.gid().raw, 16) == 0);
  CHECK(std::memcmp(a.gid().raw, b.gid().raw, 16) != 0);
}

TEST_CASE("14: data moves while its target does not poll") {
  Node a("a"), b("b");
  const Target to = a.meet(b);
  b.meet(a);
  const auto here = a.memory(300000), there = b.memory(300000);
  number(*here);
  REQUIRE(a.write(1, to, here->piece(0, 300000), *there) == 0);
  CHECK(a.take().vendor == 0);
  CHECK((there->bytes == here->bytes));
  std::fill(here->bytes.begin(), here->bytes.end(), static_cast<unsigned char>(0));
  REQUIRE(a.read(2, to, here->piece(0, 300000), *there) == 0);
  CHECK(a.take().vendor == 0);
  CHECK((there->bytes == here->bytes));
}

TEST_CASE("15: closing a device ends its thread and frees its place") {
  const size_t before = threads();
  for (int i = 0; i < 100; ++i) {  // more than there are places
    Node a("a");
    CHECK(threadsBecome(before + 1));
  }
  CHECK(threadsBecome(before));
}
