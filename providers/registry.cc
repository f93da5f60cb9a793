// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/registry.h"

#include <algorithm>
#include <optional>
#include <thread>

#include "providers/local/transport.h"
#include "providers/registry_tests.h"
#include "providers/tcp/transport.h"
#include "src/base/log.h"
#include "src/base/nearest.h"
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

using Made = Result<std::unique_ptr<Transport>>;

Made makeOfi([[maybe_unused]] const std::string& name, [[maybe_unused]] const Config& config,
             [[maybe_unused]] const Clock& clock) {
#if WEFT_OFI_BUILT
  return ofi::makeTransport(name, config, clock);
#else
  return Error(Code::unavailable, "opening libfabric", "weft was built without libfabric's headers");
#endif
}

Made makeVerbs([[maybe_unused]] const Config& config, [[maybe_unused]] const Clock& clock) {
#if WEFT_VERBS_BUILT
  return verbs::makeTransport(config, clock);
#else
  return Error(Code::unavailable, "opening libibverbs", "weft was built without libibverbs' headers");
#endif
}

bool isTestProvider(const std::string& spec) {
  return spec == "loop" || spec.starts_with("loop(") || spec.starts_with("fault(");
}

// libfabric's EFA and verbs stand on libibverbs. Its own look around takes most of a second where all of its
// providers are installed, which every process of a job on plain TCP would wait for.
bool needsCard(const std::string& spec) {
  return spec.starts_with("ofi:efa") || spec.starts_with("ofi:verbs");
}

std::optional<int> cardsHere([[maybe_unused]] const Config& config) {
#if WEFT_VERBS_BUILT
  return verbs::cardsHere(config);
#else
  return std::nullopt;
#endif
}

struct Attempt {
  Result<Choice> choice;
  bool failed;  // more than simply not here
  bool byUser;  // a setting is why there is nothing
};

// "tcp eth0, tcp lo: they reach no other host; tcp eth1: it is down": each reason once.
std::string list(const std::vector<Refusal>& refused) {
  std::string text;
  for (size_t i = 0; i < refused.size(); i++) {
    const auto same = [&](const Refusal& other) { return other.why == refused[i].why; };
    const auto here = refused.begin() + static_cast<std::ptrdiff_t>(i);
    if (std::any_of(refused.begin(), here, same)) continue;
    std::string names;
    for (const Refusal& one : refused)
      if (same(one)) names += (names.empty() ? "" : ", ") + one.what;
    text += (text.empty() ? "" : "; ") + names + ": " + refused[i].why;
  }
  return text;
}

// A setting of the user comes first.
Attempt nothingOf(const std::string& spec, std::vector<Refusal> refusals) {
  std::stable_partition(refusals.begin(), refusals.end(), [](const Refusal& one) { return one.byUser; });
  const bool failed =
      std::any_of(refusals.begin(), refusals.end(), [](const Refusal& one) { return one.failed; });
  const bool byUser = !refusals.empty() && refusals.front().byUser;
  const std::string why = list(refusals);
  return {Error(Code::unavailable, "looking for devices of " + spec,
                "no device" + (why.empty() ? why : "; " + why)),
          failed, byUser};
}

// Of the fabrics only tcp encrypts by itself.
bool encrypts(const std::string& spec) {
  return spec == "tcp" || isTestProvider(spec);
}

Error cannotEncrypt(const std::string& spec) {
  return Error(Code::unavailable, "opening " + spec,
               "WEFT_ENCRYPT=all encrypts messages over tcp alone, and " + spec +
                   " is not it: let the network encrypt (IPsec or PSP in the card) or part tenants "
                   "(partition keys, VLANs) and take WEFT_ENCRYPT=control, or take WEFT_PROVIDER=tcp");
}

Attempt attempt(const std::string& spec, const Config& config, const TransportMaker& make) {
  if (config.encrypt == "all" && !encrypts(spec)) return {cannotEncrypt(spec), false, true};
  const auto failure = [](Error error, bool byUser) {
    const bool failed = error.code() != Code::unavailable;
    return Attempt{std::move(error), failed, byUser};
  };
  auto transport = make(spec, config);
  const bool named =
      spec == "verbs" ? !config.libibverbs.empty() : spec.starts_with("ofi") && !config.libfabric.empty();
  if (!transport) return failure(transport.takeError(), named);
  auto devices = (*transport)->discover();
  if (!devices) return failure(devices.takeError(), false);
  if (devices->empty()) return nothingOf(spec, (*transport)->refusals());
  return {Choice{spec, transport.take(), devices.take(), {}}, false, false};
}

// A ring in shared memory moves on when both its ends have a processor, and stands still when other work
// takes it: sockets, which hold more, then lose less.
constexpr unsigned kProcessorsForLocal = 8;

// Beside the fabric taken, for peers on this host. A provider that is named is meant for all peers.
Result<Choice> withLocal(Result<Choice> choice, const Config& config, const Clock& clock) {
  if (!choice) return choice;
  if (config.local != "auto" && config.local != "on" && config.local != "off")
    return Error(Code::config, "choosing the fabric",
                 "WEFT_LOCAL is \"" + config.local + "\"; allowed: auto, on or off");
  if (config.local == "off") {
    choice->whyNotLocal = "WEFT_LOCAL is off";
  } else if (config.encrypt == "all" && config.local == "on") {
    return Error(Code::config, "choosing the fabric",
                 "WEFT_LOCAL is on and WEFT_ENCRYPT is all, but shared memory is not encrypted: take "
                 "WEFT_LOCAL=off, or WEFT_ENCRYPT=control");
  } else if (config.encrypt == "all") {
    choice->whyNotLocal = "WEFT_ENCRYPT is all, and shared memory is not encrypted";
  } else if (choice->transport->name() == "local") {
    choice->whyNotLocal = "the network is shared memory itself";
  } else if (config.local == "auto" && !config.provider.empty()) {
    choice->whyNotLocal = "WEFT_PROVIDER names one for all, and WEFT_LOCAL is not on";
  } else if (config.local == "auto" && std::thread::hardware_concurrency() < kProcessorsForLocal) {
    choice->whyNotLocal = "this machine has fewer than 8 processors, and WEFT_LOCAL is not on";
  } else {
    auto local = local::makeTransport(config, clock);
    if (local->refusals().empty())
      choice->local = std::move(local);
    else
      choice->whyNotLocal = local->refusals().front().why;
  }
  return choice;
}

// A line for each: NCCL's logger cuts what is long.
void tellOthers(const std::vector<Refusal>& refused) {
  for (const Refusal& one : refused) WEFT_LOG(info, "%s is not used: %s", one.what.c_str(), one.why.c_str());
}

void announce(const Choice& choice) {
  std::vector<Refusal> failed;
  std::vector<Refusal> absent;
  for (const Refusal& one : choice.refused) (one.failed ? failed : absent).push_back(one);
  if (!failed.empty())
    WEFT_LOG(warn, "using %s, although a better fabric is here and failed (WEFT_FALLBACK=0 forbids this): %s",
             choice.transport->name().c_str(), list(failed).c_str());
  tellOthers(absent);
}

// The reason that helps most: the user's own setting, then what is here and failed, then why not even sockets
// work.
Error noneCanBeUsed(const std::vector<Refusal>& refused) {
  const auto tells = [&](auto property) { return std::find_if(refused.begin(), refused.end(), property); };
  auto first = tells([](const Refusal& one) { return one.byUser; });
  if (first == refused.end()) first = tells([](const Refusal& one) { return one.failed; });
  if (first == refused.end()) first = tells([](const Refusal& one) { return one.what == "tcp"; });
  const std::string why = first == refused.end() ? "there is none" : first->what + ": " + first->why;
  return Error(
      Code::unavailable, "choosing the fabric",
      "no fabric can be used: " + why + "; why each other one cannot: weft info, or NCCL_DEBUG=INFO");
}

}  // namespace

Error badProvider(const std::string& spec, const std::string& why) {
  std::string allowed = "tcp, verbs, ofi, ofi:NAME (efa, verbs, tcp, net, shm, ...) or local";
  if (*testProviders() != '\0') allowed += ", for tests loop, with fault(RULES): in front if wanted";
  return Error(
      Code::config, "choosing the fabric",
      format("WEFT_PROVIDER is \"%s\": %s; allowed: %s", spec.c_str(), why.c_str(), allowed.c_str()));
}

// EFA cards are verbs devices too, but have no reliable connections: they come first and are refused there.
std::vector<std::string> candidateTransports() {
  return {"ofi:efa-direct", "ofi:efa", "verbs",          "ofi:verbs;ofi_rxm", "tcp",
          "ofi:tcp",        "ofi:net", "ofi:tcp;ofi_rxm"};
}

Made makeTransport(const std::string& spec, const Config& config, const Clock& clock) {
  if (isTestProvider(spec)) return makeTestProvider(spec, config, clock);
  if (spec == "ofi") return makeOfi("", config, clock);
  if (spec.starts_with("ofi:") && spec.size() > 4) return makeOfi(spec.substr(4), config, clock);
  if (spec == "verbs") return makeVerbs(config, clock);
  if (spec == "tcp") return tcp::makeTransport(config, clock);
  if (spec == "local") return local::makeTransport(config, clock);
  const std::vector<std::string> kSpecs = {"tcp",       "verbs",   "local",   "ofi",     "ofi:efa",
                                           "ofi:verbs", "ofi:tcp", "ofi:net", "ofi:shm", "ofi:efa-direct"};
  return badProvider(spec, "there is no such provider" + nearestHint(spec, kSpecs));
}

std::string builtProviders() {
  return std::string("tcp local") + testProviders() + (WEFT_OFI_BUILT ? " ofi" : "") +
         (WEFT_VERBS_BUILT ? " verbs" : "");
}

Made makeCandidate(const std::string& spec, const Config& config, const Clock& clock) {
  if (needsCard(spec) && cardsHere(config) == 0)
    return Error(Code::unavailable, "looking for RDMA cards",
                 "libibverbs shows none, so libfabric is not asked for " + spec.substr(4));
  return makeTransport(spec, config, clock);
}

bool Choice::lines128InOrder() const {
  return std::all_of(devices.begin(), devices.end(),
                     [](const DeviceInfo& device) { return device.lines128InOrder; });
}

Result<Choice> chooseTransport(const Config& config, const TransportMaker& make, const Clock& clock) {
  const auto by = [&clock](Made (*maker)(const std::string&, const Config&, const Clock&)) {
    return [maker, &clock](const std::string& spec, const Config& of) { return maker(spec, of, clock); };
  };
  if (!config.provider.empty())
    return withLocal(attempt(config.provider, config, make ? make : by(makeTransport)).choice, config, clock);
  std::vector<Refusal> refused;
  for (const std::string& spec : candidateTransports()) {
    auto [choice, failed, byUser] = attempt(spec, config, make ? make : by(makeCandidate));
    if (choice) {
      choice->refused = std::move(refused);
      announce(*choice);
      return withLocal(std::move(choice), config, clock);
    }
    if (failed && !config.fallback) return choice.takeError();
    refused.push_back({spec, choice.error().message(), failed, byUser});
  }
  tellOthers(refused);
  return noneCanBeUsed(refused);
}

}  // namespace weft
