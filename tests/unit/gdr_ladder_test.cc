// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "src/mem/ladder.h"
#include "tests/support/catch.h"
#include "tests/support/fake_gpu.h"
#include "tests/support/text.h"

using namespace weft;
using namespace weft::mem;
using weft::test::contains;
using weft::test::FakeCard;
using weft::test::FakeGpu;

namespace {

constexpr int kKernelNotSupported = 524;

struct Ladder {
  FakeGpu gpu;
  std::shared_ptr<FakeCard> card = std::make_shared<FakeCard>();
  int opened = 0;
  bool forceFlush = false;

  GdrVerdict climb(bool off = false) {
    LadderInput input;
    input.device = &card->info();
    input.open = [&]() -> Result<std::shared_ptr<Device>> {
      opened++;
      return std::shared_ptr<Device>(card);
    };
    input.driver = gpu.driver();
    input.whyNoDriver = "no driver here";
    if (input.driver) input.gpu = input.driver->gpuInUse().value_or(-1);
    input.off = off;
    input.forceFlush = forceFlush;
    GdrVerdict verdict = mem::climb(input);
    CHECK(card->live() == 0);
    CHECK(gpu.allocations() == 0);
    CHECK(FakeGpu::captureMode() == 0);  // as it was
    CHECK(verdict.path.works() == verdict.path.why.empty());
    return verdict;
  }
};

}  // namespace

TEST_CASE("a dma-buf that the card takes is the best way") {
  Ladder ladder;
  const GdrVerdict verdict = ladder.climb();
  CHECK(verdict.path.dmabuf);
  CHECK_FALSE(verdict.path.pcie);
  CHECK_FALSE(verdict.path.byAddress);  // not asked
  CHECK(verdict.gpu == 1);              // the one that the thread uses
  CHECK(verdict.taken().name == "dma-buf");
  CHECK(verdict.forceFlush);
  CHECK(ladder.card->registered.size() == 1);
  CHECK(contains(verdict.line(), "on, by dma-buf"));
}

TEST_CASE("a card's second function is the best way, over PCIe where a GPU is reached past it") {
  Ladder ladder;
  ladder.card->change().directPath = "/sys/devices/direct";
  ladder.gpu.coherent = GENERATE(false, true);
  const GdrVerdict verdict = ladder.climb();
  CHECK(verdict.path.dmabuf);
  CHECK(verdict.path.direct);
  CHECK(verdict.path.pcie == ladder.gpu.coherent);
  CHECK(verdict.taken().name == "data direct");
  REQUIRE(ladder.card->registered.size() == 1);
  CHECK(ladder.card->registered.front().direct);
}

TEST_CASE("a second function that takes no memory leaves the card's first one") {
  Ladder ladder;
  ladder.card->change().directPath = "/sys/devices/direct";
  ladder.card->refusesDirect = EOPNOTSUPP;
  const GdrVerdict verdict = ladder.climb();
  CHECK(verdict.path.dmabuf);
  CHECK_FALSE(verdict.path.direct);
  CHECK(verdict.taken().name == "dma-buf");
  CHECK(contains(verdict.line(), "not by data direct: "));
}

TEST_CASE("nothing is opened where nothing can be tried, and the reason is kept") {
  Ladder ladder;
  SECTION("WEFT_GDR=off") {
    CHECK(contains(ladder.climb(true).path.why, "WEFT_GDR is off"));
  }
  SECTION("no GPU") {
    ladder.gpu.gpus = 0;
    CHECK(contains(ladder.climb().path.why, "no driver here"));
  }
  SECTION("no GPU is in use") {
    ladder.gpu.inUse = false;
    CHECK(contains(ladder.climb().path.why, "uses no GPU"));
  }
  SECTION("sockets") {
    ladder.card->change().withoutGpu = "sockets move data by this machine's processors";
    CHECK(contains(ladder.climb().line(), "sockets move"));
  }
  CHECK(ladder.opened == 0);
  CHECK(ladder.climb(true).taken().name == "through host memory");
}

TEST_CASE("each reason to refuse a dma-buf leads on to peer memory") {
  Ladder ladder;
  std::string wanted;
  SECTION("an old driver") {
    ladder.gpu.exports = false;
    ladder.gpu.version = 11040;
    wanted = "CUDA driver 11.4 exports none";
  }
  SECTION("the attribute is missing") {
    ladder.gpu.dmabuf = false;
    wanted = "open kernel modules";
  }
  SECTION("the export is refused") {
    ladder.gpu.exportFails = mem::gpu::kNotSupported;
    wanted = "CUDA_ERROR_NOT_SUPPORTED";
  }
  SECTION("the card's library has no such call") {
    ladder.card->change().dmabufMemory = false;
    wanted = "card0 and its library register none";
  }
  SECTION("coherent, and the driver has no mapping over PCIe") {
    ladder.gpu.coherent = true;
    ladder.gpu.takesPcieFlag = false;
    ladder.card->change().pcieMapping = true;
    wanted = "mapped over PCIe: CUDA_ERROR_NOT_SUPPORTED";
  }
  const GdrVerdict verdict = ladder.climb();
  CHECK_FALSE(verdict.path.dmabuf);
  CHECK(verdict.path.byAddress);
  CHECK(verdict.taken().name == "peer memory");
  CHECK(contains(verdict.rungs.front().why, wanted));
  CHECK(contains(verdict.line(), "not by dma-buf"));
}

TEST_CASE("without a card the one way is memory that the driver shares, and a driver without it says so") {
  Ladder ladder;
  ladder.card->change().sharedGpu = true;
  const GdrVerdict verdict = ladder.climb();
  CHECK_FALSE(verdict.path.works());
  CHECK(ladder.opened == 0);
  CHECK(verdict.rungs.size() == 2);
  CHECK(verdict.rungs.front().name == "CUDA's handles");
  CHECK(contains(verdict.line(), "shares no memory between processes"));
  CHECK(verdict.taken().name == "through host memory");
}

TEST_CASE("a card that refuses the descriptor is asked for the older way") {
  for (const int code : {kKernelNotSupported, EOPNOTSUPP, ENOMEM, EINVAL}) {
    Ladder ladder;
    ladder.card->refusesDmabuf = code;
    const GdrVerdict verdict = ladder.climb();
    CHECK(verdict.path.byAddress);
    CHECK(contains(verdict.rungs.front().why, "the card refuses"));
  }
}

TEST_CASE("where neither works, both reasons are told") {
  Ladder ladder;
  ladder.gpu.dmabuf = false;
  std::string wanted;
  SECTION("no GPUDirect at all") {
    ladder.gpu.directRdma = false;
    wanted = "has no GPUDirect RDMA";
  }
  SECTION("no module") {
    ladder.card->refusesAddress = EFAULT;
    wanted = "the card refuses";
  }
  SECTION("no GPU memory") {
    ladder.gpu.memoryShort = true;
    wanted = "CUDA_ERROR_OUT_OF_MEMORY";
  }
  SECTION("the card takes none by its address") {
    ladder.card->change().cudaMemory = false;
    wanted = "card0 takes no GPU memory by its address";
  }
  const GdrVerdict verdict = ladder.climb();
  CHECK_FALSE(verdict.path.works());
  CHECK_FALSE(verdict.forceFlush);
  CHECK(verdict.taken().name == "through host memory");
  CHECK(contains(verdict.path.why, "dma-buf: "));
  CHECK(contains(verdict.path.why, wanted));
}

TEST_CASE("where a GPU is reached past PCIe too, each card gets the mapping it takes") {
  Ladder ladder;
  ladder.gpu.coherent = true;
  ladder.card->change().pcieMapping = GENERATE(false, true);
  const GdrVerdict verdict = ladder.climb();
  CHECK(verdict.path.dmabuf);
  CHECK(verdict.path.pcie == ladder.card->info().pcieMapping);
  CHECK(ladder.gpu.exported.back().pcie == ladder.card->info().pcieMapping);
}

TEST_CASE("a flush is left out only where the platform orders a card's writes") {
  Ladder ladder;
  ladder.gpu.ordered = true;
  CHECK(ladder.climb().ordersWrites);
  CHECK_FALSE(ladder.climb().forceFlush);
  ladder.gpu.coherent = true;  // C2C: what the attribute says is not enough
  CHECK_FALSE(ladder.climb().ordersWrites);
  CHECK(ladder.climb().forceFlush);
}

TEST_CASE("bytes that take the card's second function are flushed, whatever the platform orders") {
  Ladder ladder;
  ladder.gpu.ordered = true;
  ladder.card->change().directPath = "/sys/devices/direct";
  const GdrVerdict direct = ladder.climb();
  REQUIRE(direct.path.direct);
  CHECK_FALSE(direct.ordersWrites);
  CHECK(direct.forceFlush);
  CHECK(contains(direct.line(), "flushed by a read"));
  ladder.card->refusesDirect = EOPNOTSUPP;  // its first function carries bytes and completions
  CHECK(ladder.climb().ordersWrites);
}

TEST_CASE("a flush that the user forces is done where the platform orders writes, too") {
  Ladder ladder;
  ladder.gpu.ordered = true;
  ladder.forceFlush = true;
  CHECK_FALSE(ladder.climb().ordersWrites);
  CHECK(ladder.climb().forceFlush);
}

TEST_CASE("an IOMMU that translates for the card is named") {
  Ladder ladder;
  std::string folder = (std::filesystem::temp_directory_path() / "weft-iommu-XXXXXX").string();
  REQUIRE(mkdtemp(folder.data()));
  std::filesystem::create_directory(folder + "/iommu_group");
  ladder.card->change().pciPath = folder;
  const auto type = [&](const char* word) { std::ofstream(folder + "/iommu_group/type") << word << '\n'; };
  CHECK(ladder.climb().slow.empty());
  type("identity");
  CHECK(ladder.climb().slow.empty());
  type("DMA-FQ");
  CHECK(contains(ladder.climb().line(), "likely slow: the IOMMU translates"));
  std::filesystem::remove_all(folder);
}

TEST_CASE("cards of one device can what all of them can") {
  GpuPath dmabuf, address, none;
  dmabuf.dmabuf = address.byAddress = true;
  none.why = "no card";
  CHECK(both(dmabuf, dmabuf).dmabuf);
  CHECK_FALSE(both(dmabuf, address).works());
  CHECK(contains(both(dmabuf, address).why, "different ways"));
  CHECK(both(dmabuf, none).why == "no card");
  GpuPath direct = dmabuf;
  direct.direct = true;
  CHECK(both(direct, direct).direct);
  CHECK_FALSE(both(direct, dmabuf).works());
}

TEST_CASE("a driver that is not there is no more than a reason") {
  std::string why;
  CHECK(gpu::Driver::ofProcess("", &why) == nullptr);
  CHECK(contains(why, "has not loaded libcuda.so.1"));
  CHECK(gpu::Driver::ofProcess("/nowhere/libcuda.so.1", &why) == nullptr);
  CHECK(contains(why, "/nowhere/libcuda.so.1"));
  CHECK_FALSE(gpu::Driver::open("libc.so.6", false));
}
