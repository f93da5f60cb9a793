// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/perf/communicator.h"

#include <algorithm>

namespace weft::perf {

namespace {

constexpr uint64_t kCommId = 0x77656674;

// NCCL's number of the function that the application called.
uint32_t functionOf(Movement movement) {
  switch (movement) {
    case Movement::broadcast:
      return 0;
    case Movement::allGather:
      return 2;
    case Movement::reduceScatter:
      return 3;
    case Movement::allReduce:
      return 4;
    case Movement::sendRecv:
    case Movement::pingPong:
    case Movement::messageRate:
      return 6;
    case Movement::put:
    case Movement::putSignal:
    case Movement::get:
      break;  // no connection of the network's table
    case Movement::allToAll:
      return 8;
  }
  return 0;
}

// How many peers a rank sends to in an operation.
int peersOf(const Operation& operation, int size) {
  if (operation.movement == Movement::allToAll) return size - 1;
  return operation.ways > 1 ? 3 : 1;  // a parent and two children, or the next one
}

}  // namespace

Result<std::unique_ptr<Communicator>> Communicator::create(const CommunicatorSetup& setup) {
  auto communicator = std::make_unique<Communicator>(Key{});
  communicator->number_ = setup.number;
  communicator->workload_ = setup.workload;
  communicator->channels_ = setup.options->channels;
  TRY(netdriver::Context context,
      netdriver::Context::create(*setup.net, kCommId + static_cast<uint64_t>(setup.number)));
  communicator->context_.emplace(std::move(context));
  if (setup.operation->oneSided()) TRY(communicator->openWindows(setup));
  for (int i = 0; i < setup.options->channels * setup.operation->ways; ++i) {
    TRY(std::unique_ptr<Collective> instance, communicator->connect(setup, i));
    communicator->instances_.push_back(std::move(instance));
  }
  return communicator;
}

Result<std::unique_ptr<Collective>> Communicator::connect(const CommunicatorSetup& setup, int instance) {
  Wiring wiring;
  wiring.rank = setup.bootstrap->rank();
  wiring.size = setup.bootstrap->size();
  wiring.channel = instance;
  wiring.bufferBytes = setup.options->bufferBytes;
  wiring.p2pChunkBytes = setup.options->p2pChunkBytes;
  wiring.group = setup.options->group;
  ConnectRequest request;
  request.bootstrap = setup.bootstrap;
  request.context = &*context_;
  request.device = setup.device;
  request.onThread = setup.onThread;
  request.connects = [&](int from, int to) {
    return setup.operation->connects(from, to, wiring.size, instance);
  };
  TRY(Connections made, connectRanks(request));
  if (setup.operation->offloaded()) {
    TRY(wiring.offload, connectOffload(setup));
  }
  wiring.windows = windows_;
  wiring.to = std::move(made.to);
  wiring.from = std::move(made.from);
  std::unique_ptr<Collective> collective;
  TRY(setup.onThread([&]() -> Status {
    TRY(collective, setup.operation->make(std::move(wiring)));
    return {};
  }));
  return collective;
}

Result<std::shared_ptr<netdriver::CollComm>> Communicator::connectOffload(const CommunicatorSetup& setup) {
  if (setup.offload == nullptr)
    return Error(Code::unavailable, "collective offload", "the plugin exports no ncclCollNetPlugin_v12");
  netdriver::CollComm::Listening listening;
  TRY(setup.onThread([&]() -> Status {
    if (!offload_) {
      TRY(offload_,
          netdriver::CollContext::create(*setup.offload, kCommId + static_cast<uint64_t>(setup.number)));
    }
    TRY(listening, netdriver::CollComm::listen(*offload_, setup.device));
    return {};
  }));
  TRY(auto handles, setup.bootstrap->gatherValues(listening.handle));
  std::shared_ptr<netdriver::CollComm> comm;
  TRY(setup.onThread([&]() -> Status {
    TRY(comm, netdriver::CollComm::connect(*offload_, listening, handles, setup.bootstrap->rank()));
    return {};
  }));
  return comm;
}

Status Communicator::openWindows(const CommunicatorSetup& setup) {
  WindowsRequest request;
  request.bootstrap = setup.bootstrap;
  request.table = setup.oneSided;
  request.commId = kCommId + static_cast<uint64_t>(setup.number);
  request.device = setup.device;
  request.channels = setup.options->channels;
  request.input = setup.workload->inputMemory();
  request.output = setup.workload->outputMemory();
  request.onThread = setup.onThread;
  TRY(windows_, Windows::open(request));
  return {};
}

// Every instance works on a share of each part.
void Communicator::start(const Case& c, size_t slot) {
  announce(c);
  const size_t align = std::max<size_t>(1, kAlignBytes / c.type->bytes);
  const size_t whole = c.operation->inParts ? c.part : c.total;
  const size_t fair = (whole + instances_.size() - 1) / instances_.size();
  const size_t share = (fair + align - 1) / align * align;
  size_t begin = 0;
  for (auto& instance : instances_) {
    const size_t count = std::min(share, whole - begin);
    instance->start(workload_->work(c, slot, begin, count));
    begin += count;
  }
}

void Communicator::announce(const Case& c) {
  if (c.operation->oneSided()) return;
  const uint32_t operations = uint32_t{1} << functionOf(c.operation->movement);
  if (announced_ == operations) return;
  announced_ = operations;
  context_->net().setNetAttr(context_->raw(), peersOf(*c.operation, c.size), channels_, operations);
}

Status Communicator::progress(bool* moved) {
  for (auto& instance : instances_) TRY(instance->progress(moved));
  return {};
}

bool Communicator::done() const {
  return std::all_of(instances_.begin(), instances_.end(), [](const auto& i) { return i->done(); });
}

uint64_t Communicator::messages() const {
  uint64_t sum = 0;
  for (const auto& instance : instances_) sum += instance->messages();
  return sum;
}

}  // namespace weft::perf
