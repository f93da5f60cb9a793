// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/tuner/policy.h"

#include "src/base/log.h"
#include "src/tuner/platforms.h"

// The decision and its reasons.
namespace weft::tuner {

namespace {

// NCCL before 2.30 has to be told that the tuner is in the network plugin's file.
bool namesOurselves(const std::string& plugin) {
  return plugin.find("nccl-net-weft") != std::string::npos;
}

// Why NCCL's choice, or the user's own, stays; empty: the tuner may act.
std::string reasonToStandAside(const Config& config, const Surroundings& around) {
  if (!config.tuner) return "WEFT_TUNER is 0";
  if (around.fabric.empty()) return "weft's network is not in use";
  if (!around.algorithms.empty()) return "NCCL_ALGO is set";
  if (!around.protocols.empty()) return "NCCL_PROTO is set";
  if (!around.plugin.empty() && !namesOurselves(around.plugin)) return "NCCL_TUNER_PLUGIN is set";
  return {};
}

std::string noEntry(const Surroundings& around) {
  return format("no published or measured numbers for %s over %s: NCCL's own costs stay",
                around.machine.empty() ? "this machine" : around.machine.c_str(), around.fabric.c_str());
}

// A table that the user named and that does not fit is no reason to use numbers that the user did not want.
std::string tableComplaint(const Config& config, const Surroundings& around) {
  if (!around.tableFailure.empty()) return "WEFT_TUNER_TABLE is not used: " + around.tableFailure;
  if (around.table->provider == around.fabric) return {};
  return format(
      "WEFT_TUNER_TABLE is not used: %s was measured over %s and this is %s; measure again with weft perf "
      "--fit",
      config.tunerTable.c_str(), around.table->provider.c_str(), around.fabric.c_str());
}

void choosePlatform(const Config& config, const Surroundings& around, Policy* policy) {
  if (around.table || !around.tableFailure.empty()) {
    policy->complaint = tableComplaint(config, around);
    if (policy->complaint.empty()) policy->platform = platformOf(*around.table, config.tunerTable);
  } else {
    policy->platform = findPlatform(around.machine, around.fabric);
  }
  if (policy->platform)
    policy->reasons.push_back(format("costs between nodes are those of %s (sources: weft info --tuner)",
                                     policy->platform->name.c_str()));
  else
    policy->reasons.push_back(policy->complaint.empty() ? noEntry(around)
                                                        : policy->complaint + "; NCCL's own costs stay");
}

}  // namespace

Surroundings lookAround(const std::string& fabric, bool lines128, const std::string& machine,
                        const Config& config, const Lookup& lookup) {
  const auto value = [&](const char* name) {
    const char* text = lookup(name);
    return std::string(text ? text : "");
  };
  Surroundings around{
      fabric, lines128, machine, value("NCCL_ALGO"), value("NCCL_PROTO"), value("NCCL_TUNER_PLUGIN"), {}, {}};
  if (config.tunerTable.empty()) return around;
  auto table = readTable(config.tunerTable);
  if (table)
    around.table = table.take();
  else
    around.tableFailure = table.error().message();
  return around;
}

Policy decide(const Config& config, const Surroundings& around) {
  Policy policy;
  if (const std::string reason = reasonToStandAside(config, around); !reason.empty()) {
    policy.reasons.push_back(reason + ": NCCL's cost table is left alone");
    if (!around.fabric.empty() && !around.lines128)
      policy.reasons.push_back(
          format("%s does not promise 128-byte lines in order, so LL128 between nodes is unsafe",
                 around.fabric.c_str()));
    return policy;
  }
  policy.aside = false;
  choosePlatform(config, around, &policy);
  policy.priceOutLl128 = !around.lines128;
  if (policy.priceOutLl128)
    policy.reasons.push_back(
        format("LL128 between nodes is priced out, as %s does not promise 128-byte lines in order",
               around.fabric.c_str()));
  return policy;
}

std::string Policy::identity() const {
  if (aside) return "aside";
  return (platform ? platform->name : "none") + (priceOutLl128 ? " without LL128" : "");
}

std::string Policy::text() const {
  std::string all;
  for (const std::string& reason : reasons) all += (all.empty() ? "" : "; ") + reason;
  return all;
}

}  // namespace weft::tuner
