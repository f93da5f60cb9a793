// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/registry.h"

#include <map>

#include "providers/fault/transport.h"
#include "providers/loop/transport.h"
#include "providers/verbs/transport.h"
#include "src/base/log.h"
#include "tests/support/catch.h"

using namespace weft;

namespace {

std::string logged;

void keepLog(LogLevel level, const char*, int, const char* message) {
  logged += (level == LogLevel::warn ? "WARN " : "INFO ") + std::string(message) + "\n";
}

// Catches what chooseTransport says.
struct LogCapture {
  LogCapture() : before(setLogSink(keepLog)) {
    logged.clear();
    setLogLevel(LogLevel::info);
  }
  ~LogCapture() {
    setLogSink(before);
    setLogLevel(LogLevel::warn);
  }
  LogSink before;
};

// What was logged from the warning on, of which there is one.
std::string theOnlyWarning() {
  const size_t warning = logged.find("WARN");
  REQUIRE(warning != std::string::npos);
  CHECK(logged.find("WARN", warning + 4) == std::string::npos);
  return logged.substr(warning);
}

enum class Here { no, empty, broken, undiscoverable, forbidden, yes };

// Shows nothing, for a reason that somebody should hear of.
class Forbidden : public Transport {
 public:
  std::string name() const override { return "verbs"; }
  std::string version() const override { return {}; }
  Result<std::vector<DeviceInfo>> discover() override { return std::vector<DeviceInfo>{}; }
  std::vector<Refusal> refusals() const override {
    return {{"verbs mlx5_1", "filtered"}, {"verbs mlx5_0", "no permission: try this", true}};
  }
  Result<std::shared_ptr<Device>> open(const DeviceInfo&) override {
    return Error(Code::unavailable, "opening", "nothing");
  }
};

// Candidates as a machine would have them: those not named are not there.
TransportMaker machine(std::map<std::string, Here> here) {
  return [here](const std::string& spec, const Config&) -> Result<std::unique_ptr<Transport>> {
    const auto at = here.find(spec);
    const Here state = at == here.end() ? Here::no : at->second;
    if (state == Here::no) return Error(Code::unavailable, "opening " + spec, "no such library");
    if (state == Here::broken)
      return Error(Code::system, "opening " + spec, "its memory lock limit is 64 KiB");
    if (state == Here::forbidden) return std::unique_ptr<Transport>(std::make_unique<Forbidden>());
    loop::LoopOptions options;
    options.rails = state == Here::empty ? 0 : 2;
    fault::FaultOptions faults;
    if (state == Here::undiscoverable) faults.rules.push_back({.kind = fault::FaultKind::discover});
    return std::unique_ptr<Transport>(fault::makeTransport(loop::makeTransport(options), faults));
  };
}

}  // namespace

TEST_CASE("where libibverbs shows no card libfabric is not asked for one") {
  const Config config;
  const auto cards = verbs::cardsHere(config);
  for (const char* spec : {"ofi:efa-direct", "ofi:efa", "ofi:verbs;ofi_rxm"}) {
    const auto made = makeCandidate(spec, config);
    const bool spared = !made && made.error().message().find("libibverbs shows none") != std::string::npos;
    CHECK(spared == (cards == 0));
    if (spared) CHECK(made.error().code() == Code::unavailable);
  }
  CHECK(makeCandidate("tcp", config));
}

TEST_CASE("every documented spelling makes its transport") {
  Config config;
  config.loopRails = 2;
  const auto loop = makeTransport("loop", config);
  REQUIRE(loop);
  CHECK((*loop)->name() == "loop");
  CHECK((*loop)->discover()->size() == 2);
  const auto tuned = makeTransport("loop(rails=3,landing=poll)", config);
  REQUIRE(tuned);
  CHECK((*tuned)->discover()->size() == 3);
  const auto wrapped = makeTransport("fault(seed=3,fault=drop,nth=2):loop(rails=4)", config);
  REQUIRE(wrapped);
  CHECK((*wrapped)->name() == "fault:loop");
  CHECK((*wrapped)->discover()->size() == 4);
  const auto twice = makeTransport("fault(fault=drop):fault(fault=delay):loop", config);
  REQUIRE(twice);
  CHECK((*twice)->name() == "fault:fault:loop");
}

TEST_CASE("a name that cannot be made is an error that says what is allowed") {
  const std::string spec = GENERATE("", "lop", "loop(rails=3", "loop(rale=3)", "fault():", "fault(drop)",
                                    "fault(x=1):loop", "ofi:", "fault(fault=drop):nothing");
  const auto made = makeTransport(spec, Config{});
  REQUIRE_FALSE(made);
  CHECK(made.error().code() == Code::config);
  CHECK(made.error().detail().find("allowed: ") != std::string::npos);
}

TEST_CASE("raw verbs that is named and has nothing is not replaced") {
  Config config;
  config.provider = "verbs";
  const auto choice = chooseTransport(config, machine({{"verbs", Here::empty}, {"ofi:net", Here::yes}}));
  REQUIRE_FALSE(choice);
  CHECK(choice.error().message().find("verbs") != std::string::npos);
}

TEST_CASE("unnamed, the first fabric with devices is taken and the absent ones are told quietly") {
  LogCapture capture;
  const auto choice = chooseTransport(Config{}, machine({{"ofi:efa", Here::empty}, {"ofi:net", Here::yes}}));
  REQUIRE(choice);
  CHECK(choice->devices.size() == 2);
  REQUIRE(choice->refused.size() == 6);
  CHECK(choice->refused[0].what == "ofi:efa-direct");
  CHECK(choice->refused[1].why.find("no device") != std::string::npos);
  CHECK(choice->refused[2].what == "verbs");
  CHECK(choice->refused[3].what == "ofi:verbs;ofi_rxm");
  CHECK(logged.find("WARN") == std::string::npos);
  CHECK(logged.find("INFO") != std::string::npos);
}

TEST_CASE("raw verbs comes after EFA and before libfabric's verbs") {
  LogCapture capture;
  const auto here = machine({{"verbs", Here::yes}, {"ofi:verbs;ofi_rxm", Here::yes}, {"ofi:tcp", Here::yes}});
  const auto choice = chooseTransport(Config{}, here);
  REQUIRE(choice);
  REQUIRE(choice->refused.size() == 2);
  CHECK(choice->refused[1].what == "ofi:efa");
  const auto both = chooseTransport(Config{}, machine({{"ofi:efa", Here::yes}, {"verbs", Here::yes}}));
  REQUIRE(both);
  CHECK(both->refused.size() == 1);
}

TEST_CASE("sockets of our own come before libfabric's, and behind every card") {
  LogCapture capture;
  const auto here = machine({{"ofi:net", Here::yes}, {"tcp", Here::yes}, {"ofi:tcp", Here::yes}});
  const auto choice = chooseTransport(Config{}, here);
  REQUIRE(choice);
  CHECK(choice->spec == "tcp");
  const auto card =
      chooseTransport(Config{}, machine({{"ofi:verbs;ofi_rxm", Here::yes}, {"tcp", Here::yes}}));
  REQUIRE(card);
  CHECK(card->spec == "ofi:verbs;ofi_rxm");
}

TEST_CASE("a better fabric that fails is left with one warning, or not at all") {
  const Here how = GENERATE(Here::broken, Here::undiscoverable);
  const auto maker = machine({{"ofi:efa", how}, {"ofi:tcp", Here::yes}});
  LogCapture capture;
  const auto choice = chooseTransport(Config{}, maker);
  REQUIRE(choice);
  (void)theOnlyWarning();
  CHECK(logged.find("ofi:efa") != std::string::npos);
  Config strict;
  strict.fallback = false;
  const auto none = chooseTransport(strict, maker);
  REQUIRE_FALSE(none);
  CHECK(none.error().code() == Code::system);
}

TEST_CASE("cards that are there and cannot be opened are left with one warning that says why") {
  const auto maker = machine({{"verbs", Here::forbidden}, {"ofi:tcp", Here::yes}});
  LogCapture capture;
  const auto choice = chooseTransport(Config{}, maker);
  REQUIRE(choice);
  const std::string warning = theOnlyWarning();
  CHECK(warning.find("mlx5_0: no permission: try this") != std::string::npos);
  Config other;
  other.fallback = false;
  CHECK_FALSE(chooseTransport(other, maker));
  other = {};
  other.provider = "verbs";
  const auto named = chooseTransport(other, maker);
  REQUIRE_FALSE(named);
  CHECK(named.error().message().find("no permission: try this") != std::string::npos);
}

TEST_CASE("without fallback absent fabrics are still passed over") {
  Config strict;
  strict.fallback = false;
  LogCapture capture;
  CHECK(chooseTransport(strict, machine({{"ofi:tcp;ofi_rxm", Here::yes}})));
}

TEST_CASE("a named fabric that fails is never replaced") {
  Config config;
  config.provider = "ofi:efa";
  const auto choice = chooseTransport(config, machine({{"ofi:efa", Here::empty}, {"ofi:net", Here::yes}}));
  REQUIRE_FALSE(choice);
  CHECK(choice.error().message().find("ofi:efa") != std::string::npos);
}

TEST_CASE("with nothing usable each candidate has a line with its reason, and the error is short") {
  LogCapture capture;
  const auto choice = chooseTransport(Config{}, machine({{"ofi:net", Here::empty}}));
  REQUIRE_FALSE(choice);
  CHECK(choice.error().code() == Code::unavailable);
  CHECK(choice.error().detail().starts_with("no fabric can be used: tcp: "));
  for (const std::string& spec : candidateTransports())
    CHECK(logged.find("INFO " + spec + " is not used: ") != std::string::npos);
  CHECK(logged.find("WARN") == std::string::npos);
}

TEST_CASE("the user's own setting is the reason that is told first, whatever else is not here") {
  LogCapture capture;
  Config config;
  config.socketIfname = "nope";
  config.libfabric = "/nonexistent/libfabric.so.1";
  config.libibverbs = "/nonexistent/libibverbs.so.1";
  config.provider = "tcp";
  const auto named = chooseTransport(config);
  REQUIRE_FALSE(named);
  CHECK(named.error().detail().starts_with("no device; tcp "));
  CHECK(named.error().detail().ends_with(
      ": WEFT_SOCKET_IFNAME (or NCCL_SOCKET_IFNAME) is \"nope\" and leaves it out"));
  config.provider.clear();
  CHECK(chooseTransport(config).error().detail().find("/nonexistent/libfabric.so.1") != std::string::npos);
  config.libfabric.clear();
  config.libibverbs.clear();
  const auto choice = chooseTransport(config);
  REQUIRE_FALSE(choice);
  const std::string detail = choice.error().detail();
  CHECK(detail.starts_with("no fabric can be used: "));
  CHECK(detail.find("is \"nope\" and leaves it out") != std::string::npos);
  CHECK(detail.size() < 700);
}
