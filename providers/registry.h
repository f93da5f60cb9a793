// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "src/base/clock.h"
#include "src/base/config.h"
#include "weft/transport.h"

// Which fabric to use: the only file that knows all providers. Called once per process, off the data path;
// any thread.
namespace weft {

// Makes what WEFT_PROVIDER names: "tcp", "verbs", "local", "ofi", "ofi:NAME", and in programs of the tests
// (registry_tests.h) also "loop", "loop(OPTIONS)", and "fault(RULES):" in front of any of them. Does not look
// for devices yet. All lanes keep their deadlines by `clock`, which outlives what is made.
Result<std::unique_ptr<Transport>> makeTransport(const std::string& spec, const Config& config,
                                                 const Clock& clock = Clock::system());

struct Choice {
  std::string spec;  // the value of WEFT_PROVIDER that names it; transport->name() may be another name
  std::unique_ptr<Transport> transport;
  std::vector<DeviceInfo> devices;  // never empty
  std::vector<Refusal> refused;     // the better ones that were not taken, best first
  std::unique_ptr<Transport>
      local;                // for peers on this host (WEFT_LOCAL); null: they are reached as all others
  std::string whyNotLocal;  // then

  bool lines128InOrder() const;  // every device promises it
};

using TransportMaker =
    std::function<Result<std::unique_ptr<Transport>>(const std::string& spec, const Config& config)>;

// The fabric config.provider names, or nothing; without a name the best one that has devices. A candidate
// whose making or discovery fails with anything but Code::unavailable counts as failed: going on to a lower
// one is then logged as a warning, and forbidden by config.fallback == false. No devices is no failure,
// unless a refusal says that there is one and that it failed.
// Without a maker these are makeTransport for what is named, and makeCandidate.
Result<Choice> chooseTransport(const Config& config, const TransportMaker& make = {},
                               const Clock& clock = Clock::system());

// Like makeTransport, but does not load libfabric for cards that libibverbs would show and does not.
Result<std::unique_ptr<Transport>> makeCandidate(const std::string& spec, const Config& config,
                                                 const Clock& clock = Clock::system());

// Those that this program has, for people: "tcp local ofi verbs".
std::string builtProviders();

// The order tried when none is named.
std::vector<std::string> candidateTransports();

}  // namespace weft
