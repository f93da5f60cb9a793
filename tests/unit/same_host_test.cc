// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/core/same_host.h"

#include <array>
#include <new>
#include <utility>

#include "tests/support/catch.h"

// The question whether a peering goes through shared memory, one event at a time, with endpoints that
// connect, refuse, or find no memory.
namespace weft::core {
namespace {

using State = SameHost::State;

class Candidate : public Endpoint {
 public:
  enum class Connects { yes, no, withoutMemory };
  Candidate(Connects how, int* calls, bool* gone) : how_(how), calls_(calls), gone_(gone) {}
  ~Candidate() override { *gone_ = true; }
  std::span<const std::byte> address() const override { return address_; }
  Status connect(std::span<const std::byte>) override {
    ++*calls_;
    if (how_ == Connects::withoutMemory) throw std::bad_alloc();
    if (how_ == Connects::no)
      return Error(Code::invalidArgument, "connecting a lane", "the address is damaged");
    return {};
  }
  Result<RemoteMemory> import(std::span<const std::byte>) override { return RemoteMemory{}; }
  size_t post(std::span<const Work> works) override { return works.size(); }
  void retire() override {}

 private:
  std::array<std::byte, 3> address_{};
  Connects how_;
  int* calls_;
  bool* gone_;
};

struct Asked {
  explicit Asked(Candidate::Connects how) {
    question.offer(std::unique_ptr<Endpoint>(std::make_unique<Candidate>(how, &calls, &gone)));
  }
  int calls = 0;
  bool gone = false;
  Bytes peer = Bytes(3);
  SameHost question;
};

TEST_CASE("an endpoint connects once, and its answer is the question's") {
  Asked a(Candidate::Connects::yes);
  CHECK(a.question.state() == State::offered);
  CHECK(a.question.address().size() == 3);
  a.question.answered(true, "");
  CHECK(a.question.state() == State::offered);
  a.question.ask(a.peer);
  a.question.ask(a.peer);
  CHECK(a.question.state() == State::asked);
  CHECK(a.calls == 1);

  SECTION("yes hands the endpoint out") {
    a.question.answered(true, "");
    a.question.answered(false, "too late");
    CHECK(a.question.state() == State::yes);
    CHECK(a.question.take() != nullptr);
  }
  SECTION("no closes it") {
    a.question.answered(false, "the peer cannot see our memory");
    CHECK(a.question.state() == State::no);
    CHECK(a.question.why() == "the peer cannot see our memory");
    CHECK(a.question.address().empty());
    CHECK(a.gone);
  }
}

TEST_CASE("without an endpoint there is no question") {
  SameHost never;
  CHECK(never.decided());
  CHECK(never.why().empty());
  SameHost question;
  question.offer(Error(Code::resources, "opening an endpoint", "no descriptor is left"));
  CHECK(question.state() == State::no);
  CHECK_FALSE(question.why().empty());
}

TEST_CASE("a peer without an endpoint is not asked") {
  Asked a(Candidate::Connects::yes);
  a.question.ask({});
  CHECK(a.question.state() == State::no);
  CHECK(a.calls == 0);
  CHECK(a.gone);
}

TEST_CASE("an endpoint that does not connect answers no at once, so that the peer sees it gone") {
  const bool hasMemory = GENERATE(true, false);
  Asked a(hasMemory ? Candidate::Connects::no : Candidate::Connects::withoutMemory);
  a.question.ask(a.peer);
  CHECK(a.question.state() == State::no);
  CHECK(a.question.why().find(hasMemory ? "damaged" : "out of memory") != std::string::npos);
  CHECK(a.gone);
}

}  // namespace
}  // namespace weft::core
