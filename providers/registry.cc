// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/registry.h"

#include <algorithm>

#include "providers/fault/transport.h"
#include "providers/loop/transport.h"
#include "providers/tcp/transport.h"
#include "src/base/log.h"
#if defined(WEFT_HAVE_OFI) && __has_include("providers/ofi/transport.h")
#include "providers/ofi/transport.h"
#define WEFT_OFI_BUILT 1
#else
#define WEFT_OFI_BUILT 0
#endif
#if defined(WEFT_HAVE_VERBS) && __has_include("providers/verbs/transport.h")
#include "providers/verbs/transport.h"
#define WEFT_VERBS_BUILT 1
#else
#define WEFT_VERBS_BUILT 0
#endif

namespace weft {

namespace {

constexpr const char* kAllowed =
    "tcp, verbs, ofi, ofi:NAME (efa, verbs, tcp, net, shm, ...) or loop, with fault(RULES): in front if "
    "wanted";

Error bad(const std::string& spec, const std::string& why) {
  return Error(Code::config, "choosing the fabric",
               format("WEFT_PROVIDER is \"%s\": %s; allowed: %s", spec.c_str(), why.c_str(), kAllowed));
}

using Made = Result<std::unique_ptr<Transport>>;

Made makeOfi([[maybe_unused]] const std::string& name, [[maybe_unused]] const Config& config) {
#if WEFT_OFI_BUILT
  return ofi::makeTransport(name, config);
#else
  return Error(Code::unavailable, "opening libfabric", "weft was built without libfabric's headers");
#endif
}

Made makeVerbs([[maybe_unused]] const Config& config) {
#if WEFT_VERBS_BUILT
  return verbs::makeTransport(config);
#else
  return Error(Code::unavailable, "opening libibverbs", "weft was built without libibverbs' headers");
#endif
}

// "loop" or "loop(OPTIONS)"
Made makeLoop(const std::string& spec, const Config& config) {
  std::string text;
  if (spec != "loop") {
    if (spec.back() != ')') return bad(spec, "the parenthesis is not closed");
    text = spec.substr(5, spec.size() - 6);
  }
  TRY(auto options, loop::parseOptions(text, config));
  return std::unique_ptr<Transport>(loop::makeTransport(std::move(options)));
}

// "fault(RULES):INNER"
Made makeFault(const std::string& spec, const Config& config) {
  const size_t end = spec.find("):");
  if (end == std::string::npos) return bad(spec, "write fault(RULES):PROVIDER");
  TRY(auto options, fault::parseOptions(spec.substr(6, end - 6)));
  TRY(auto inner, makeTransport(spec.substr(end + 2), config));
  return std::unique_ptr<Transport>(fault::makeTransport(std::move(inner), std::move(options)));
}

struct Attempt {
  Result<Choice> choice;
  bool failed;  // more than simply not here
};

Attempt attempt(const std::string& spec, const Config& config, const TransportMaker& make) {
  const auto failure = [](Error error) {
    const bool failed = error.code() != Code::unavailable;
    return Attempt{std::move(error), failed};
  };
  auto transport = make(spec, config);
  if (!transport) return failure(transport.takeError());
  auto devices = (*transport)->discover();
  if (!devices) return failure(devices.takeError());
  if (!devices->empty()) return {Choice{spec, transport.take(), devices.take(), {}}, false};
  std::string why = "no device";
  bool failed = false;
  for (const Refusal& refusal : (*transport)->refusals()) {
    why += "; " + refusal.what + ": " + refusal.why;
    failed |= refusal.failed;
  }
  return {Error(Code::unavailable, "looking for devices of " + spec, why), failed};
}

std::string list(const std::vector<Refusal>& refused) {
  std::string text;
  for (const Refusal& refusal : refused)
    text += (text.empty() ? "" : "; ") + refusal.what + ": " + refusal.why;
  return text;
}

void announce(const Choice& choice, bool failed) {
  const std::string name = choice.transport->name();
  const std::string refused = list(choice.refused);
  if (failed)
    WEFT_LOG(warn, "using %s, although a better fabric is here and failed (WEFT_FALLBACK=0 forbids this): %s",
             name.c_str(), refused.c_str());
  else if (!refused.empty())
    WEFT_LOG(info, "using %s; not here: %s", name.c_str(), refused.c_str());
}

}  // namespace

// EFA cards are verbs devices too, but have no reliable connections: they come first and are refused there.
std::vector<std::string> candidateTransports() {
  return {"ofi:efa-direct", "ofi:efa", "verbs",          "ofi:verbs;ofi_rxm", "tcp",
          "ofi:tcp",        "ofi:net", "ofi:tcp;ofi_rxm"};
}

Made makeTransport(const std::string& spec, const Config& config) {
  if (spec == "loop" || spec.starts_with("loop(")) return makeLoop(spec, config);
  if (spec.starts_with("fault(")) return makeFault(spec, config);
  if (spec == "ofi") return makeOfi("", config);
  if (spec.starts_with("ofi:") && spec.size() > 4) return makeOfi(spec.substr(4), config);
  if (spec == "verbs") return makeVerbs(config);
  if (spec == "tcp") return tcp::makeTransport(config);
  return bad(spec, "there is no such provider");
}

bool Choice::lines128InOrder() const {
  return std::all_of(devices.begin(), devices.end(),
                     [](const DeviceInfo& device) { return device.lines128InOrder; });
}

Result<Choice> chooseTransport(const Config& config, const TransportMaker& make) {
  if (!config.provider.empty()) return attempt(config.provider, config, make).choice;
  std::vector<Refusal> refused;
  bool anyFailed = false;
  for (const std::string& spec : candidateTransports()) {
    auto [choice, failed] = attempt(spec, config, make);
    if (choice) {
      choice->refused = std::move(refused);
      announce(*choice, anyFailed);
      return std::move(choice);
    }
    if (failed && !config.fallback) return choice.takeError();
    anyFailed |= failed;
    refused.push_back({spec, choice.error().message()});
  }
  return Error(Code::unavailable, "choosing the fabric", "no fabric can be used: " + list(refused));
}

}  // namespace weft
