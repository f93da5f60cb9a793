// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <algorithm>
#include <atomic>
#include <cstring>
#include <netinet/in.h>
#include <sys/socket.h>
#include <thread>

#include "providers/ofi/address.h"
#include "providers/ofi/operation.h"
#include "src/base/fd.h"
#include "tests/support/catch.h"
#include "tests/system/ofi/lanes.h"

// Expectations that hold for every libfabric provider, run over those this machine has.
using namespace weft;
using namespace weft::test;

namespace {

std::string anyProvider() {
  static const std::vector<std::string> found = oneProcessProviders();
  return pick(found);
}

}  // namespace

TEST_CASE("discovery shows cards with sane facts") {
  const std::string provider = anyProvider();
  if (provider.empty()) return;
  CAPTURE(provider);
  auto transport = OfiSide::REQUIRED(ofi::makeTransport(provider, ofiConfig()));
  const auto infos = OfiSide::REQUIRED(transport->discover());
  REQUIRE_FALSE(infos.empty());
  CHECK(transport->name() == "ofi:" + provider);
  CHECK(transport->version().starts_with("libfabric "));
  for (size_t i = 0; i < infos.size(); i++) {
    CHECK(infos[i].provider == "ofi:" + provider);
    CHECK(infos[i].speedMbps > 0);
    CHECK(infos[i].guid != 0);
    for (size_t j = 0; j < i; j++) CHECK(infos[i].name != infos[j].name);
  }
}

// By that a completion is known which the provider reports a second time, or after all were taken back.
TEST_CASE("an operation that is free says so") {
  ofi::OperationPool pool(2);
  const auto taken = [&] {
    ofi::Operation* operation = pool.take();
    REQUIRE(operation != nullptr);
    CHECK(operation->purpose == ofi::Purpose::none);
    operation->purpose = ofi::Purpose::work;
    return operation;
  };
  ofi::Operation* given = taken();
  ofi::Operation* kept = taken();
  CHECK(pool.take() == nullptr);
  pool.give(given);
  CHECK(given->purpose == ofi::Purpose::none);
  CHECK(kept->purpose == ofi::Purpose::work);
  pool.reset();
  CHECK(kept->purpose == ofi::Purpose::none);
  CHECK(pool.available() == 2);
}

TEST_CASE("a write with a notification arrives with its number and length") {
  const std::string provider = anyProvider();
  if (provider.empty()) return;
  CAPTURE(provider);
  OfiSide a(provider), b(provider);
  REQUIRE(connectBoth(a, b));
  std::fill(a.buffer.begin(), a.buffer.end(), static_cast<unsigned char>(0x5a));
  const size_t length = GENERATE(as<size_t>{}, 1, 1000, 65536, 1 << 20);
  Work work = a.work(Opcode::writeNotify, 0, length, 77);
  work.imm = 0xfedcba98;
  REQUIRE(a.post(work));
  REQUIRE(pollUntil({&a, &b}, [&] {
    return a.count(CompletionKind::sent) == 1 && b.count(CompletionKind::notified) == 1;
  }));
  const Completion* notified = b.first(CompletionKind::notified);
  CHECK(notified->imm == 0xfedcba98);
  CHECK(notified->length == length);
  const bool mayNotKnow = provider == "tcp;ofi_rxm" || provider == "shm";
  CHECK((notified->source == b.lane.get() || (mayNotKnow && !notified->source)));
  CHECK(a.first(CompletionKind::sent)->context == 77);
  CHECK(a.first(CompletionKind::sent)->source == a.lane.get());
  CHECK(std::equal(b.buffer.begin(), b.buffer.begin() + static_cast<ptrdiff_t>(length), a.buffer.begin()));
  CHECK((length == b.buffer.size() || b.buffer[length] == 0));
}

TEST_CASE("a write of no bytes needs no memory and still notifies") {
  const std::string provider = anyProvider();
  if (provider.empty()) return;
  CAPTURE(provider);
  OfiSide a(provider), b(provider);
  REQUIRE(connectBoth(a, b));
  Work work;
  work.op = Opcode::writeNotify;
  work.imm = 5;
  work.delivered = true;
  for (int i = 0; i < 3; i++) REQUIRE(pollUntil({&a, &b}, [&] { return a.post(work); }));
  REQUIRE(pollUntil({&a, &b}, [&] {
    return a.count(CompletionKind::sent) == 3 && b.count(CompletionKind::notified) == 3;
  }));
  CHECK(b.first(CompletionKind::notified)->length == 0);
  CHECK(std::all_of(b.buffer.begin(), b.buffer.end(), [](unsigned char c) { return c == 0; }));
}

TEST_CASE("delivered means that the bytes are there") {
  const std::string provider = anyProvider();
  if (provider.empty()) return;
  CAPTURE(provider);
  OfiSide a(provider), b(provider);
  REQUIRE(connectBoth(a, b));
  a.buffer[100] = 1;
  Work work = a.work(Opcode::write, 0, 4096, 1);
  work.delivered = true;
  REQUIRE(a.post(work));
  CHECK_FALSE(pollUntil(
      {&a}, [&] { return a.count(CompletionKind::sent) > 0 && b.buffer[100] != 1; },
      std::chrono::milliseconds(50)));
  REQUIRE(pollUntil({&a, &b}, [&] { return a.count(CompletionKind::sent) == 1; }));
  CHECK(b.buffer[100] == 1);
}

TEST_CASE("a read brings the peer's bytes") {
  const std::string provider = anyProvider();
  if (provider.empty()) return;
  CAPTURE(provider);
  OfiSide a(provider), b(provider);
  REQUIRE(connectBoth(a, b));
  std::fill(b.buffer.begin(), b.buffer.end(), static_cast<unsigned char>(9));
  REQUIRE(a.post(a.work(Opcode::read, 128, 5000, 3)));
  REQUIRE(pollUntil({&a, &b}, [&] { return a.count(CompletionKind::sent) == 1; }));
  CHECK(a.buffer[127] == 0);
  CHECK(a.buffer[128] == 9);
  CHECK(a.buffer[5127] == 9);
  CHECK(a.buffer[5128] == 0);
}

TEST_CASE("a lane to oneself works") {
  const std::string provider = anyProvider();
  if (provider.empty()) return;
  CAPTURE(provider);
  OfiSide a(provider);
  a.connectTo(a);
  REQUIRE(pollUntil({&a}, [&] { return a.count(CompletionKind::connected) == 1; }));
  a.buffer[0] = 42;
  Work work = a.work(Opcode::read, 0, 1, 1);
  work.local = a.buffer.data() + 999;
  REQUIRE(a.post(work));
  REQUIRE(pollUntil({&a}, [&] { return a.count(CompletionKind::sent) == 1; }));
  CHECK(a.buffer[999] == 42);
}

TEST_CASE("strangers who say too little at a lane's port do not hold it up") {
  const std::string provider = anyProvider();
  if (provider.empty() || provider == "shm") return;
  CAPTURE(provider);
  OfiSide a(provider), b(provider);
  REQUIRE(connectBoth(a, b));
  const std::vector<Fd> strangers = connectStrangers(b, 20);
  for (size_t i = 0; i < strangers.size(); i++)
    REQUIRE(::send(strangers[i].get(), "GET / HT", i % 9, MSG_NOSIGNAL) == static_cast<ssize_t>(i % 9));
  Work work = a.work(Opcode::writeNotify, 0, 100, 1);
  for (size_t i = 1; i <= 100; i++) {
    REQUIRE(pollUntil({&a, &b}, [&] { return a.post(work); }));
    REQUIRE(pollUntil({&a, &b}, [&] { return b.count(CompletionKind::notified) == i; }));
  }
}

TEST_CASE("memory comes and goes on another thread while a Queue works") {
  const std::string provider = anyProvider();
  if (provider.empty()) return;
  CAPTURE(provider);
  OfiSide a(provider), b(provider);
  REQUIRE(connectBoth(a, b));
  std::atomic<int> registered{0};
  std::atomic<bool> refused{false};
  std::thread other([&] {
    std::vector<unsigned char> bytes(65536);
    for (int i = 0; i < 200 && !refused; i++) {
      const auto mine = a.device->registerMemory({.address = bytes.data(), .length = bytes.size()});
      const auto theirs = b.device->registerMemory({.address = bytes.data(), .length = bytes.size()});
      refused = !mine || !theirs;
      registered++;
    }
  });
  size_t sent = 0;
  Work work = a.work(Opcode::writeNotify, 0, 1000, 1);
  const bool arrived = pollUntil({&a, &b}, [&] {
    sent += a.post(work);
    return registered == 200 && b.count(CompletionKind::notified) >= 100;
  });
  other.join();
  CHECK(arrived);
  CHECK_FALSE(refused);
  CHECK(pollUntil({&a, &b}, [&] { return b.count(CompletionKind::notified) == sent; }));
}

TEST_CASE("unsignaled works are silent and others keep their order of contexts") {
  const std::string provider = anyProvider();
  if (provider.empty()) return;
  CAPTURE(provider);
  OfiSide a(provider), b(provider);
  REQUIRE(connectBoth(a, b));
  size_t loud = 0;
  for (size_t i = 0; i < 3000;) {
    Work work = a.work(Opcode::write, i, 64, i);
    work.unsignaled = i % 3 != 0;
    if (a.post(work)) {
      loud += !work.unsignaled;
      i++;
    }
    a.poll();
    b.poll();
  }
  REQUIRE(pollUntil({&a, &b}, [&] { return a.count(CompletionKind::sent) == loud; }));
  for (const Completion& completion : a.seen)
    if (completion.kind == CompletionKind::sent) CHECK(completion.context % 3 == 0);
}

// Some providers are left alone with small unsignaled writes, and then say the same of a connection that is
// full and of one that is lost.
TEST_CASE("small unsignaled works into a full connection wait, and all of them arrive") {
  const std::string provider = anyProvider();
  if (provider.empty()) return;
  CAPTURE(provider);
  OfiSide a(provider), b(provider);
  REQUIRE(connectBoth(a, b));
  constexpr uint32_t kWorks = 200'000;
  uint32_t posted = 0, refused = 0;
  const auto postMore = [&] {
    Work work = a.work(Opcode::writeNotify, 0, 40, 0);
    work.imm = posted;
    work.unsignaled = true;
    if (!a.post(work)) return false;
    posted++;
    return true;
  };
  uint32_t arrived = 0;
  uint64_t sum = 0;
  const auto take = [&] {
    b.poll();
    for (const Completion& completion : b.seen) {
      if (completion.kind != CompletionKind::notified) continue;
      sum += completion.imm;
      arrived++;
    }
    b.seen.clear();
  };
  while (posted < kWorks) {
    uint32_t inRow = 0;
    while (posted < kWorks && inRow < 20'000 && postMore()) inRow++;
    refused += inRow < 20'000 && posted < kWorks;
    a.poll();
    take();
  }
  CHECK(pollUntil({&a}, [&] { return take(), arrived == posted; }));
  CHECK(sum == uint64_t{kWorks} * (kWorks - 1) / 2);
  CHECK(refused > 0);
  CHECK(a.count(CompletionKind::sent) + a.count(CompletionKind::broken, false) == 0);
  REQUIRE(a.post(a.work(Opcode::write, 0, 64, 1)));
  CHECK(pollUntil({&a, &b}, [&] { return a.count(CompletionKind::sent) == 1; }));
}

TEST_CASE("retiring a lane with works in flight accounts for all of them") {
  const std::string provider = anyProvider();
  if (provider.empty()) return;
  CAPTURE(provider);
  OfiSide a(provider), b(provider);
  REQUIRE(connectBoth(a, b));
  const bool peerPolls = GENERATE(true, false);
  size_t posted = 0;
  for (size_t i = 0; i < 50; i++) {
    Work work = a.work(i % 2 ? Opcode::read : Opcode::write, i * 100, 100, i);
    work.delivered = true;
    posted += a.post(work);
  }
  REQUIRE(posted > 0);
  a.lane->retire();
  CHECK_FALSE(a.post(a.work(Opcode::write, 0, 1, 0)));
  const auto retired = [&] {
    return a.count(CompletionKind::retired) + a.count(CompletionKind::retired, false) == 1;
  };
  REQUIRE(pollUntil(peerPolls ? std::vector<OfiSide*>{&a, &b} : std::vector<OfiSide*>{&a}, retired));
  CHECK(a.seen.back().kind == CompletionKind::retired);
  CHECK(a.count(CompletionKind::sent) + a.count(CompletionKind::sent, false) == posted);
  CHECK(a.seen.back().ok == peerPolls);
  std::fill(b.buffer.begin(), b.buffer.end(), static_cast<unsigned char>(1));
  if (peerPolls) {
    CHECK_FALSE(pollUntil(
        {&a, &b}, [&] { return b.buffer[0] != 1; }, std::chrono::milliseconds(20)));
  }
}
