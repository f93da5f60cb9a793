// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/info/survey.h"

#include <algorithm>
#include <sys/utsname.h>

#include <gnu/libc-version.h>

#include "providers/registry.h"

namespace weft::info {

namespace {

std::string kernelVersion() {
  utsname names{};
  return uname(&names) == 0 ? std::string(names.sysname) + ' ' + names.release : "unknown";
}

ProviderSurvey ask(const std::string& spec, const Config& config) {
  ProviderSurvey found;
  found.spec = spec;
  auto transport = makeTransport(spec, config);
  if (!transport) {
    found.failure = transport.error().message();
    return found;
  }
  auto devices = (*transport)->discover();
  if (devices)
    found.devices = devices.take();
  else
    found.failure = devices.error().message();
  found.version = (*transport)->version();
  found.refusals = (*transport)->refusals();
  if (found.devices.empty() && found.failure.empty()) found.failure = "no device";
  return found;
}

std::vector<std::string> specsToAsk(const Config& config) {
  std::vector<std::string> specs = candidateTransports();
  if (!config.provider.empty() && std::find(specs.begin(), specs.end(), config.provider) == specs.end())
    specs.insert(specs.begin(), config.provider);
  return specs;
}

// Goes the way the plugin goes, so that what is shown is what NCCL would get.
Status takeAsPluginWould(const Config& config, Survey* out) {
  TRY(Choice choice, chooseTransport(config));
  const std::string spec = choice.spec;
  core::NetOptions options;
  options.config = config;
  options.transport = std::move(choice.transport);
  options.devices = std::move(choice.devices);
  TRY(const auto net, core::Net::create(std::move(options)));
  for (int device = 0; device < net->deviceCount(); device++) {
    TRY(core::Properties properties, net->properties(device));
    out->properties.push_back(std::move(properties));
  }
  out->taken = net->transport().name();
  out->takenSpec = spec;
  return {};
}

}  // namespace

Survey survey(const Config& config) {
  Survey out;
  out.named = !config.provider.empty();
  out.versions = {WEFT_VERSION, {}, kernelVersion(), gnu_get_libc_version()};
  for (const std::string& spec : specsToAsk(config)) {
    out.providers.push_back(ask(spec, config));
    const bool overLibfabric = spec.find("ofi") != std::string::npos;
    if (overLibfabric && out.versions.fabric.empty()) out.versions.fabric = out.providers.back().version;
  }
  const Status taken = takeAsPluginWould(config, &out);
  if (!taken) out.failure = taken.error().message();
  return out;
}

}  // namespace weft::info
