// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/core/net.h"

#include <algorithm>

#include "src/base/log.h"
#include "src/base/random.h"
#include "src/control/hub.h"
#include "src/core/checksums.h"

namespace weft::core {

namespace {

constexpr int kMostComms = 1 << 17;  // more than anybody makes; NCCL does not look at it

// NCCL's limit (graph/xml.h, 2.30); rails of one machine differ in their last letters, so the first name and
// the number of them stay.
std::string shortened(std::string name) {
  constexpr size_t kMostName = 254;
  if (name.size() <= kMostName) return name;
  const auto rails = std::count(name.begin(), name.end(), '+') + 1;
  return format("%s+%zd more", name.substr(0, name.find('+')).c_str(), static_cast<ssize_t>(rails - 1));
}

std::string describeGpuDirect(const mem::GpuPath& path, const mem::GdrVerdict& first) {
  if (!path.works()) return "off: " + path.why;
  std::string text = "on, by " + first.taken().name;
  if (path.pcie) text += ", mapped over PCIe";
  return text + (first.ordersWrites ? ", no flush needed" : ", flushed");
}

}  // namespace

// Context:

Context::Context(std::shared_ptr<Net> net, ContextOptions options, int seat)
    : net_(std::move(net)), options_(std::move(options)), seat_(seat) {}

// Devices:

Result<std::shared_ptr<Net>> Net::create(NetOptions options) {
  TRY(checkRandom());
  auto net = std::make_shared<Net>(std::move(options));
  net->rails_ = std::move(net->options_.devices);
  if (net->rails_.empty()) {
    TRY(net->rails_, net->transport().discover());
  }
  if (!parseChecking(net->config().checksum))
    return Error(Code::config, "reading settings",
                 "WEFT_CHECKSUM is \"" + net->config().checksum + "\"; allowed: off, sample or all");
  net->openProfile();
  TRY(net->decideGpuDirect());
  TRY(net->devices_, topo::groupRails(net->rails_, topo::acceleratorPaths(), net->config().mergeNics));
  return net;
}

// A profile is a help, and no reason for a job to fail.
void Net::openProfile() {
  if (config().profile.empty()) return;
  auto made = stats::Profile::create(config().profile, transport().name());
  if (!made) WEFT_LOG(warn, "%s", made.error().message().c_str());
  if (made) profile_ = std::move(*made);
}

void Net::writeProfile() {
  if (!profile_) return;
  if (const Status written = profile_->write(); !written)
    WEFT_LOG(warn, "%s", written.error().message().c_str());
}

// Once, so that what NCCL is told stays true; of the GPU that the calling thread uses, as NCCL's does.
Status Net::decideGpuDirect() {
  const std::string& mode = config().gdr;
  if (mode != "auto" && mode != "require" && mode != "off")
    return Error(Code::config, "reading settings",
                 "WEFT_GDR is \"" + mode + "\"; allowed: auto, require or off");
  mem::LadderInput input;
  input.driver = driver_ = mem::gpu::Driver::ofProcess(config().libcuda, &input.whyNoDriver);
  if (driver_) input.gpu = driver_->gpuInUse().value_or(-1);
  input.off = mode == "off";
  input.forceFlush = config().forceFlush;
  std::string refusals;
  for (DeviceInfo& rail : rails_) {
    input.device = &rail;
    input.open = [&] { return transport().open(rail); };
    gpuDirect_.push_back(mem::climb(input));
    if (rail.sharedGpu) rail.cudaMemory = gpuDirect_.back().path.works();  // it is opened for it, or not
    if (!gpuDirect_.back().path.works())
      refusals += (refusals.empty() ? "" : "; ") + rail.name + ": " + gpuDirect_.back().path.why;
  }
  if (mode == "require" && !refusals.empty())
    return Error(Code::unavailable, "looking for GPUDirect, as WEFT_GDR is require", refusals);
  return {};
}

mem::GpuPath Net::gpuPath(const std::vector<int>& rails) const {
  mem::GpuPath path = gpuDirect_[static_cast<size_t>(rails.front())].path;
  for (const int rail : rails) path = mem::both(path, gpuDirect_[static_cast<size_t>(rail)].path);
  return path;
}

mem::CacheOptions Net::cacheOptions(int device) const {
  mem::CacheOptions options;
  options.driver = driver_;
  options.path = gpuPath(railsOf(device));
  options.ordersWrites = true;
  for (const int rail : railsOf(device))
    options.ordersWrites = options.ordersWrites && gpuDirect_[static_cast<size_t>(rail)].ordersWrites;
  options.mostKept = static_cast<size_t>(config().mrCacheCount);
  options.mostKeptBytes = static_cast<uint64_t>(config().mrCacheMib) << 20;
  return options;
}

// One peering has one kind of lanes, so where a card takes GPU memory shared memory takes it too, or nothing.
std::string Net::whyNotLocal(int device) const {
  if (!options_.local) return options_.whyNotLocal;
  const std::vector<int> rails = railsOf(device);
  if (!gpuPath(rails).works()) return {};
  if (!config().localGpu) return "GPU memory goes by the device, and all else with it (WEFT_LOCAL_GPU is 0)";
  const std::string why = driver_->whyNotShared(gpuDirect_[static_cast<size_t>(rails.front())].gpu);
  return why.empty() ? why : "GPU memory goes by the device, and all else with it: " + why;
}

std::string Net::whyLocalGpuIdle() const {
  if (!config().localGpu || gpuDirect_.empty()) return {};
  const bool any = std::any_of(gpuDirect_.begin(), gpuDirect_.end(),
                               [](const mem::GdrVerdict& verdict) { return verdict.path.works(); });
  if (!any && gpuDirect_.front().gpu >= 0) return {};  // that it was tried and failed has its own line
  if (!any)
    return format("%s takes no GPU memory, so NCCL hands none to it and copies all to host memory first: %s",
                  rails_.front().name.c_str(), gpuDirect_.front().path.why.c_str());
  return options_.local || rails_.front().sharedGpu
             ? ""
             : "peers on this host do not go through shared memory: " + options_.whyNotLocal;
}

Transport* Net::localFor(int device) const {
  return whyNotLocal(device).empty() ? options_.local.get() : nullptr;
}

Error Net::noSuchDevice(int device) const {
  return Error(Code::invalidArgument, "looking up a device",
               format("device %d does not exist; there are %d", device, deviceCount()));
}

int Net::deviceCount() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(devices_.size() + virtuals_.size());
}

std::vector<int> Net::membersOf(int device) const {
  const std::lock_guard lock(mutex_);
  const auto physical = static_cast<int>(devices_.size());
  if (device < physical) return {device};
  return virtuals_[static_cast<size_t>(device - physical)];
}

std::vector<int> Net::railsOf(int device) const {
  std::vector<int> rails;
  for (const int member : membersOf(device)) {
    const std::vector<int>& those = devices_[static_cast<size_t>(member)].rails;
    rails.insert(rails.end(), those.begin(), those.end());
  }
  return rails;
}

namespace {

// Completes "peers on this host are reached".
std::string sameHostText(bool isLocal, const std::string& whyNot, bool gpuMemory) {
  if (isLocal) return "through shared memory, which is all that this provider is";
  if (!whyNot.empty()) return "over the network, as all others: " + whyNot;
  return gpuMemory ? "through shared memory, GPU memory by CUDA's handles, where both work"
                   : "through shared memory, where both processes see it";
}

}  // namespace

Result<Properties> Net::properties(int device) const {
  if (device < 0 || device >= deviceCount()) return noSuchDevice(device);
  Properties out;
  out.members = membersOf(device);
  out.grouping = out.members.front() == device ? devices_[static_cast<size_t>(device)].reason
                                               : "NCCL asked for it, by its merge settings";
  const std::vector<int> rails = railsOf(device);
  const DeviceInfo& first = rail(rails.front());
  out.guid = first.guid;
  out.port = first.port;
  out.maxComms = kMostComms;
  const mem::GpuPath path = gpuPath(rails);
  // NCCL measures by it how far the card is from each GPU.
  out.pciPath = path.direct ? first.directPath : first.pciPath;
  out.cudaMemory = path.works();
  out.dmabufMemory = path.dmabuf;
  out.lines128InOrder = true;
  for (const int index : rails) {
    const DeviceInfo& info = rail(index);
    out.rails.push_back(info.name);
    out.name += (out.name.empty() ? "" : "+") + info.name;
    out.speedMbps += info.speedMbps;
    out.latencyUs = std::max(out.latencyUs, info.latencyUs);
    out.lines128InOrder = out.lines128InOrder && info.lines128InOrder;
    out.maxP2pBytes = std::min(out.maxP2pBytes, info.maxWriteBytes);
  }
  out.sameHost = sameHostText(transport().name() == "local", whyNotLocal(device), path.works());
  if (driver_) out.gpuDirect = describeGpuDirect(path, gpuDirect_[static_cast<size_t>(rails.front())]);
  for (const int index : rails) {
    if (path.works() && gpuDirect_[static_cast<size_t>(index)].forceFlush) out.forceFlush = true;
  }
  out.name = shortened(std::move(out.name));
  out.maxCollBytes = out.maxP2pBytes;
  return out;
}

Result<int> Net::makeVirtual(std::span<const int> members) {
  const std::lock_guard lock(mutex_);
  const auto physical = static_cast<int>(devices_.size());
  if (members.empty() || members.size() > static_cast<size_t>(options_.maxMembers)) {
    return Error(Code::invalidArgument, "merging devices",
                 format("%zu members; 1 to %d can be merged", members.size(), options_.maxMembers));
  }
  for (size_t i = 0; i < members.size(); i++) {
    if (members[i] < 0 || members[i] >= physical)
      return Error(Code::invalidArgument, "merging devices",
                   format("device %d does not exist; there are %d", members[i], physical));
    if (std::count(members.begin(), members.end(), members[i]) > 1) {
      return Error(Code::invalidArgument, "merging devices", format("device %d is named twice", members[i]));
    }
  }
  // NCCL asks once for its network and once for its offload.
  std::vector<int> wanted(members.begin(), members.end());
  const auto known = std::find(virtuals_.begin(), virtuals_.end(), wanted);
  if (known != virtuals_.end()) return physical + static_cast<int>(known - virtuals_.begin());
  virtuals_.push_back(std::move(wanted));
  return physical + static_cast<int>(virtuals_.size()) - 1;
}

ContextRef Net::openContext(ContextOptions options) {
  ContextRef context;  // before the lock: where memory runs out it goes after it
  const std::lock_guard lock(mutex_);
  int seat = 0;
  while (options.perCommunicator && seats_.count({options.communicator, seat}) > 0) seat++;
  context = std::make_shared<Context>(shared_from_this(), std::move(options), seat);
  const ContextOptions& of = context->options();
  if (of.perCommunicator) seats_.emplace(of.communicator, seat);
  return context;
}

// Connections:

Result<std::shared_ptr<control::Hub>> Net::makeHub(control::HubOptions options) const {
  return options_.makeHub ? options_.makeHub(std::move(options)) : control::Hub::create(std::move(options));
}

}  // namespace weft::core
