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

// The GPUs of this machine. While it lives the first one is in use, as it is where NCCL asks.
struct Gpus {
  std::shared_ptr<const mem::gpu::Driver> driver;
  std::unique_ptr<mem::gpu::Driver::Piece> inUse;
};

Gpus openGpus(const Config& config, Survey* out) {
  Gpus gpus;
  out->gdrMode = config.gdr;
  auto driver = mem::gpu::Driver::open(config.libcuda, false);
  if (!driver) {
    out->noGpuDriver = driver.error().message();
    return gpus;
  }
  gpus.driver = driver.take();
  out->gpuDriver = gpus.driver->versionText();
  if (auto piece = gpus.driver->allocate(0, 4096)) gpus.inUse = piece.take();
  return gpus;
}

void climbAll(const core::Net& net, const Gpus& gpus, Survey* out) {
  const auto rails = static_cast<int>(net.gpuDirect().size());
  for (int index = 0; index < rails; index++) {
    const DeviceInfo& rail = net.rail(index);
    mem::LadderInput input;
    input.device = &rail;
    input.open = [&] { return net.transport().open(rail); };
    input.driver = gpus.driver;
    input.whyNoDriver = out->noGpuDriver;
    input.off = out->gdrMode == "off";
    input.forceFlush = net.config().forceFlush;
    const bool eachGpu = gpus.driver && !input.off && rail.withoutGpu.empty();
    for (int gpu = 0; gpu < (eachGpu ? gpus.driver->gpuCount() : 1); gpu++) {
      input.gpu = eachGpu ? gpu : -1;
      const mem::GdrVerdict& told = net.gpuDirect()[static_cast<size_t>(index)];  // to NCCL
      out->gpuDirect.push_back(told.gpu == input.gpu ? told : mem::climb(input));
    }
  }
}

// Goes the way the plugin goes, so that what is shown is what NCCL would get.
Status takeAsPluginWould(const Config& config, Survey* out) {
  const Gpus gpus = openGpus(config, out);
  TRY(Choice choice, chooseTransport(config));
  const std::string spec = choice.spec;
  core::NetOptions options;
  options.config = config;
  options.transport = std::move(choice.transport);
  options.devices = std::move(choice.devices);
  options.local = std::move(choice.local);
  options.whyNotLocal = std::move(choice.whyNotLocal);
  TRY(const auto net, core::Net::create(std::move(options)));
  for (int device = 0; device < net->deviceCount(); device++) {
    TRY(core::Properties properties, net->properties(device));
    out->properties.push_back(std::move(properties));
  }
  if (gpus.driver) climbAll(*net, gpus, out);
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
