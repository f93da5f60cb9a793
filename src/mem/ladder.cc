// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/mem/ladder.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>

#include "src/base/log.h"

// The trials, rung by rung, and the words of the verdict.
namespace weft::mem {

namespace {

// Whole pages of any driver: a GPU's large page has 2 MiB.
constexpr size_t kTrialBytes = size_t{2} << 20;  // bytes

constexpr const char* kDirect = "data direct";
constexpr const char* kDmabuf = "dma-buf";
constexpr const char* kPeerMemory = "peer memory";
constexpr const char* kShared = "CUDA's handles";
constexpr const char* kStaging = "through host memory";

// The device and the memory of a trial. Both rungs need them; prepare() makes them for the first rung that
// gets so far.
class Trial {
 public:
  explicit Trial(const LadderInput& input) : input_(input), facts_(input.driver->facts(input.gpu)) {}

  Rung direct(GpuPath* path);
  Rung dmabuf(GpuPath* path);
  Rung peerMemory(GpuPath* path);
  Rung shared(GpuPath* path);
  const gpu::GpuFacts& facts() const { return facts_; }

 private:
  // Why no dma-buf can be exported and registered; empty: it is worth a try.
  std::string cannotExport() const;
  Status prepare();
  Rung dmabufBy(const char* name, bool pcie, bool direct, GpuPath* path);
  Status registerDmabuf(bool pcie, bool direct);
  Status registerWith(const MemoryDesc& desc);
  Status copyThroughHandle() const;

  const LadderInput& input_;
  const gpu::GpuFacts facts_;
  std::shared_ptr<Device> device_;
  std::unique_ptr<gpu::Driver::Piece> memory_;
};

Status Trial::prepare() {
  if (!device_) {
    TRY(device_, input_.open());
  }
  if (!memory_) {
    TRY(memory_, input_.driver->allocate(input_.gpu, kTrialBytes));
  }
  return {};
}

Status Trial::registerWith(const MemoryDesc& desc) {
  TRY(const auto memory, device_->registerMemory(desc));
  return {};
}

std::string Trial::cannotExport() const {
  if (!input_.device->dmabufMemory) return input_.device->name + " and its library register none";
  if (!input_.driver->exportsDmabuf())
    return input_.driver->versionText() + " exports none; 11.7 and later do";
  if (!facts_.dmabuf)
    return "the driver does not offer it for this GPU: it wants the open kernel modules, a kernel with "
           "CONFIG_PCI_P2PDMA, and no GeForce";
  return {};
}

Status Trial::registerDmabuf(bool pcie, bool direct) {
  TRY(prepare());
  TRY(const Fd fd, input_.driver->exportDmabuf(memory_->data(), kTrialBytes, pcie));
  MemoryDesc desc;
  desc.address = memory_->data();
  desc.length = kTrialBytes;
  desc.kind = MemoryKind::dmabuf;
  desc.fd = fd.get();
  desc.gpu = input_.gpu;
  desc.direct = direct;
  return registerWith(desc);
}

Rung Trial::dmabufBy(const char* name, bool pcie, bool direct, GpuPath* path) {
  Rung rung{name, false, cannotExport()};
  if (!rung.why.empty()) return rung;
  const Status tried = registerDmabuf(pcie, direct);
  rung.works = path->dmabuf = static_cast<bool>(tried);
  path->pcie = rung.works && pcie;
  path->direct = rung.works && direct;
  if (!tried) rung.why = tried.error().message();
  if (path->pcie) rung.why = "mapped over PCIe";
  return rung;
}

// Cards of the ConnectX-8 kind have a second PCIe function beside the GPU, past the processor. It takes the
// mapping over PCIe, where the GPU has another one.
Rung Trial::direct(GpuPath* path) {
  return dmabufBy(kDirect, facts_.coherent, true, path);
}

// A coherent GPU (C2C) is reached past PCIe too. A descriptor has one mapping or the other, and each kind of
// card takes just one of them.
Rung Trial::dmabuf(GpuPath* path) {
  return dmabufBy(kDmabuf, facts_.coherent && input_.device->pcieMapping, false, path);
}

// The names of the kernel modules that resolve a GPU address: NVIDIA's, its forerunner's, and Amazon's.
std::string moduleAdvice() {
  const bool loaded = ::access("/sys/module/nvidia_peermem", F_OK) == 0 ||
                      ::access("/sys/module/nv_peer_mem", F_OK) == 0 ||
                      ::access("/sys/module/efa_nv_peermem", F_OK) == 0;
  return loaded ? "a module for it is loaded and did not take the memory"
                : "no module for it is loaded (modprobe nvidia_peermem)";
}

Rung Trial::peerMemory(GpuPath* path) {
  Rung rung{kPeerMemory, false, {}};
  if (!input_.device->cudaMemory) {
    rung.why = input_.device->name + " takes no GPU memory by its address";
  } else if (!facts_.directRdma) {
    rung.why = "the driver says that this GPU has no GPUDirect RDMA";
  } else {
    Status tried = prepare();
    rung.why = tried ? moduleAdvice() + ": " : "";
    if (tried) {
      MemoryDesc desc;
      desc.address = memory_->data();
      desc.length = kTrialBytes;
      desc.kind = MemoryKind::cuda;
      desc.gpu = input_.gpu;
      tried = registerWith(desc);
    }
    rung.works = path->byAddress = static_cast<bool>(tried);
    rung.why = tried ? "" : rung.why + tried.error().message();
  }
  return rung;
}

// Copies out of memory that is mapped a second time by a handle, as another process would map it. The pattern
// carries the device's number, so that a stale pattern is not taken for this one.
Status Trial::copyThroughHandle() const {
  const gpu::Driver& driver = *input_.driver;
  const std::array<uint64_t, 2> wanted = {0x6e65766f77746665, input_.device->guid};
  std::array<uint64_t, 2> seen{};
  TRY(const auto ours, driver.allocateShareable(input_.gpu, kTrialBytes));
  TRY(driver.toGpu(input_.gpu, ours->data(), wanted.data(), sizeof wanted));
  TRY(const Fd handle, driver.exportShared(ours->data()));
  TRY(const auto again, driver.mapShared(input_.gpu, handle, kTrialBytes));
  std::byte* apart = ours->data() + kTrialBytes / 2;
  TRY(driver.within(input_.gpu, apart, again->data(), sizeof wanted));
  TRY(driver.fromGpu(input_.gpu, seen.data(), apart, sizeof seen));
  if (seen == wanted) return {};
  return Error(Code::system, "copying GPU memory", "what was copied is not what is there");
}

Rung Trial::shared(GpuPath* path) {
  Rung rung{kShared, false, input_.driver->whyNotShared(input_.gpu)};
  if (!rung.why.empty()) return rung;
  const Status tried = copyThroughHandle();
  rung.works = path->byAddress = static_cast<bool>(tried);
  if (!tried) rung.why = tried.error().message();
  return rung;
}

// Why nothing is tried; empty: there is something to try.
std::string beforeTrial(const LadderInput& input) {
  if (input.off) return "WEFT_GDR is off";
  if (!input.device->withoutGpu.empty()) return input.device->withoutGpu;
  if (!input.driver) return input.whyNoDriver;
  if (input.gpu < 0) return "this process uses no GPU yet";
  return {};
}

// With an IOMMU that translates for the card, data for a GPU take the way through the root complex. The
// kernel says so in iommu_group/type: "DMA" or "DMA-FQ" translate, "identity" does not.
std::string whySlow(const std::string& pciPath) {
  if (pciPath.empty()) return {};
  const Fd file(::open((pciPath + "/iommu_group/type").c_str(), O_RDONLY | O_CLOEXEC));
  char type[16] = {};
  if (!file || ::read(file.get(), type, sizeof type - 1) <= 0 || std::strncmp(type, "DMA", 3) != 0) return {};
  return "the IOMMU translates for this card (iommu=pt on the kernel's command line, where nothing forbids "
         "it)";
}

// The driver's promise is about one function of a card: its writes come into the GPU's memory in their order.
// A coherent GPU is reached past PCIe too, where that promise is not relied upon (docs/gpudirect.md). By data
// direct the bytes take the card's second function and the completion takes the first one: nothing orders
// these two.
bool cardOrdersWrites(const gpu::GpuFacts& facts, const GpuPath& path) {
  return facts.ordersWrites && !facts.coherent && !path.direct;
}

std::string whyNeither(const std::vector<Rung>& rungs) {
  std::string why;
  for (const Rung& rung : rungs) why += (why.empty() ? "" : "; ") + rung.name + ": " + rung.why;
  return why;
}

}  // namespace

const Rung& GdrVerdict::taken() const {
  return *std::find_if(rungs.begin(), rungs.end(), [](const Rung& rung) { return rung.works; });
}

std::string GdrVerdict::line() const {
  const std::string gpuWords = gpu < 0 ? std::string() : format(" and GPU %d (%s)", gpu, gpuName.c_str());
  std::string text = format("GPUDirect of %s%s: ", device.c_str(), gpuWords.c_str());
  if (!path.works()) return text + "off, GPU buffers go through host memory: " + path.why;
  text += "on, by " + taken().name;
  if (!taken().why.empty()) text += " (" + taken().why + ")";
  for (const Rung& rung : rungs)
    if (!rung.works) text += "; not by " + rung.name + ": " + rung.why;
  if (taken().name == kShared) return text + ", for peers on this host; no flush, the driver copies";
  text += ordersWrites ? "; no flush, the platform orders writes" : "; flushed by a read";
  return slow.empty() ? text : text + "; likely slow: " + slow;
}

GdrVerdict climb(const LadderInput& input) {
  GdrVerdict verdict;
  verdict.device = input.device->name;
  verdict.path.why = beforeTrial(input);
  if (verdict.path.why.empty()) {
    Trial trial(input);
    verdict.gpu = input.gpu;
    verdict.gpuName = trial.facts().name;
    const bool shared = input.device->sharedGpu;
    if (!input.device->directPath.empty()) verdict.rungs.push_back(trial.direct(&verdict.path));
    if (!verdict.path.works())
      verdict.rungs.push_back(shared ? trial.shared(&verdict.path) : trial.dmabuf(&verdict.path));
    // Peer memory is not tried where dma-buf works: its kernel module need not be loaded.
    if (!shared && !verdict.path.dmabuf) verdict.rungs.push_back(trial.peerMemory(&verdict.path));
    if (!verdict.path.works()) verdict.path.why = whyNeither(verdict.rungs);
    // A copy by the driver is visible once the driver says that it is done.
    verdict.ordersWrites = shared || (!input.forceFlush && cardOrdersWrites(trial.facts(), verdict.path));
    verdict.forceFlush = verdict.path.works() && !verdict.ordersWrites;
    if (verdict.path.works())
      verdict.slow = whySlow(verdict.path.direct ? input.device->directPath : input.device->pciPath);
  }
  verdict.rungs.push_back({kStaging, true, {}});
  return verdict;
}

}  // namespace weft::mem
