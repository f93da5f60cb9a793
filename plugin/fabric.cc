// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "plugin/fabric.h"

#include "providers/registry.h"
#include "src/base/config.h"
#include "src/base/log.h"
#include "src/base/process.h"
#include "src/base/version.h"
#include "src/core/merging.h"
#include "src/topo/machine.h"

// From the environment to devices: settings, provider, tuner, net, properties. The log of a job's first init
// is made here.
namespace weft::plugin {

namespace {

void applyLogLevel(const Config& config) {
  LogLevel level = LogLevel::warn;
  if (parseLogLevel(config.logLevel.c_str(), &level)) setLogLevel(level);
}

// Settings that are misspelt or have no use here.
void warnOfEnvironment() {
  for (const std::string& line : environmentWarnings()) WEFT_LOG(warn, "%s", line.c_str());
}

// The tuner's decision has to be known before the net: it is part of the fingerprint that ranks compare.
tuner::Policy policyFor(const Config& config, const Choice& choice) {
  return tuner::decide(config, tuner::lookAround(choice.transport->name(), choice.lines128InOrder(),
                                                 topo::machineName(), config, environmentValue));
}

}  // namespace

// An empty fabric stands for every failure, whose reason is logged here.
std::unique_ptr<Fabric> Fabric::discover() {
  auto fabric = std::make_unique<Fabric>();
  warnOfEnvironment();
  const Status opened = fabric->open();
  if (opened) return fabric;
  WEFT_LOG(error, "no device: %s", opened.error().message().c_str());
  return std::make_unique<Fabric>();
}

Status Fabric::open() {
  TRY(const Config config, readConfigFromEnvironment());
  applyLogLevel(config);
  if (const std::string raised = raiseDescriptorLimit(); !raised.empty())
    WEFT_LOG(info, "the limit of descriptors (ulimit -n) is raised from %s", raised.c_str());
  TRY(Choice choice, chooseTransport(config));
  tunerPolicy_ = policyFor(config, choice);
  if (!tunerPolicy_.complaint.empty()) WEFT_LOG(warn, "%s", tunerPolicy_.complaint.c_str());
  core::NetOptions options;
  options.config = config;
  options.transport = std::move(choice.transport);
  options.devices = std::move(choice.devices);
  options.local = std::move(choice.local);
  options.whyNotLocal = std::move(choice.whyNotLocal);
  options.tuner = tunerPolicy_.identity();
  TRY(net_, core::Net::create(std::move(options)));
  TRY(readProperties());
  announce();
  return {};
}

// Asks only for devices that are new, so pointers to the properties of the others stay valid.
Status Fabric::readProperties() {
  while (deviceCount() < net_->deviceCount()) {
    TRY(core::Properties properties, net_->properties(deviceCount()));
    properties_.push_back(std::move(properties));
  }
  return {};
}

// The lines that support asks for first: version, fabric, devices.
void Fabric::announce() const {
  const Transport& transport = net_->transport();
  const std::string version = transport.version();
  std::string devices;
  for (const core::Properties& device : properties_)
    devices += format("%s%s at %d Mb/s", devices.empty() ? "" : ", ", device.name.c_str(), device.speedMbps);
  WEFT_LOG(info, "%s over %s%s%s%s, devices: %s", versionText(), transport.name().c_str(),
           version.empty() ? "" : " (", version.c_str(), version.empty() ? "" : ")", devices.c_str());
  if (!properties_.empty())
    WEFT_LOG(info, "peers on this host are reached %s", properties_.front().sameHost.c_str());
  announceGpuDirect();
}

// A card that could do GPUDirect and does not costs a job most of its speed, and nothing else shows it; hence
// the warning.
void Fabric::announceGpuDirect() const {
  if (properties_.empty() || properties_.front().gpuDirect.empty()) return;
  for (const mem::GdrVerdict& verdict : net_->gpuDirect()) {
    const bool tried = verdict.gpu >= 0;
    if (tried && !verdict.path.works()) {
      WEFT_LOG(warn, "%s", verdict.line().c_str());
    } else {
      WEFT_LOG(info, "%s", verdict.line().c_str());
    }
  }
  const std::string idle = net_->whyLocalGpuIdle();
  if (!idle.empty()) WEFT_LOG(warn, "WEFT_LOCAL_GPU=1 does nothing here: %s", idle.c_str());
}

Result<const core::Properties*> Fabric::properties(int device) const {
  if (device >= 0 && device < deviceCount()) return &properties_[static_cast<size_t>(device)];
  return Error(Code::invalidArgument, "looking up a device",
               format("there is no device %d; the devices are 0 to %d", device, deviceCount() - 1));
}

// NCCL's own limits on merging are checked before the device is made.
Result<int> Fabric::makeVirtual(std::span<const int> members) {
  if (!net_) return Error(Code::unavailable, "making a virtual device", "there is no device");
  TRY(core::ncclCanMerge(*net_, members));
  TRY(const int index, net_->makeVirtual(members));
  TRY(readProperties());
  return index;
}

}  // namespace weft::plugin
