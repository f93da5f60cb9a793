// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/coll/sharp_job.h"

#include <mutex>
#include <utility>

#include "src/base/log.h"

// Setting libsharp_coll up over the ranks' connections, and the question what the switches can do.
namespace weft::coll {

namespace {

// The library's three calls to its ranks. Each context is the job's OutOfBand.
OutOfBand& callsOf(void* context) {
  return *static_cast<OutOfBand*>(context);
}

int answer(const Status& status) {
  if (!status) WEFT_LOG(info, "libsharp_coll: %s", status.error().message().c_str());
  return status ? 0 : -1;
}

int onBroadcast(void* context, void* buffer, int bytes, int root) {
  return answer(
      callsOf(context).broadcast({static_cast<std::byte*>(buffer), static_cast<size_t>(bytes)}, root));
}

int onBarrier(void* context) {
  return answer(callsOf(context).barrier());
}

// Where this rank is not the root, nothing may be written to `receive` or be assumed of it.
int onGather(void* context, int root, void* send, void* receive, int bytes) {
  OutOfBand& calls = callsOf(context);
  const auto each = static_cast<size_t>(bytes);
  const std::span all(static_cast<std::byte*>(receive), calls.isRank(root) ? each * calls.ranks() : 0);
  return answer(calls.gather({static_cast<const std::byte*>(send), each}, all, root));
}

// What the switches of this process's jobs have in common, for NCCL's question, which names no group.
struct Common {
  std::mutex mutex;
  bool known = false;
  // Every generation of switches has these: no 8-bit types, no bfloat16.
  uint64_t types = 1u << sharp::kU32 | 1u << sharp::kI32 | 1u << sharp::kU64 | 1u << sharp::kI64 |
                   1u << sharp::kF32 | 1u << sharp::kF64 | 1u << sharp::kF16;
  uint64_t operations = 1u << sharp::kSum | 1u << sharp::kMin | 1u << sharp::kMax;

  void add(const sharp::Capabilities& job) {
    const std::lock_guard lock(mutex);
    types = known ? types & job.types : job.types;
    operations = known ? operations & job.operations : job.operations;
    known = true;
  }
};

Common& common() {
  static Common all;
  return all;
}

// The library counts types and operations by bits.
bool has(uint64_t types, uint64_t operations, ElementType type, ReduceOp op) {
  const auto known = sharpType(type);
  const auto how = sharpOperation(op);
  return known && how && (types >> *known & 1) && (operations >> *how & 1);
}

// The cards of the device, as the library names them. A card without a port in its name means port 1.
std::string devicesOf(const Mesh& mesh) {
  core::Net& net = mesh.options().context->net();
  std::string all;
  for (const int rail : net.railsOf(mesh.options().device)) {
    const std::string& name = net.rail(rail).name;
    all += (all.empty() ? "" : ",") + name + (name.find(':') == std::string::npos ? ":1" : "");
  }
  return all;
}

}  // namespace

std::optional<sharp::DataType> sharpType(ElementType type) {
  switch (type) {
    case ElementType::i8:
      return sharp::kI8;
    case ElementType::u8:
      return sharp::kU8;
    case ElementType::i32:
      return sharp::kI32;
    case ElementType::u32:
      return sharp::kU32;
    case ElementType::i64:
      return sharp::kI64;
    case ElementType::u64:
      return sharp::kU64;
    case ElementType::f16:
      return sharp::kF16;
    case ElementType::bf16:
      return sharp::kBf16;
    case ElementType::f32:
      return sharp::kF32;
    case ElementType::f64:
      return sharp::kF64;
  }
  return std::nullopt;
}

std::optional<sharp::ReduceOperation> sharpOperation(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
      return sharp::kSum;
    case ReduceOp::prod:
      return sharp::kProd;
    case ReduceOp::min:
      return sharp::kMin;
    case ReduceOp::max:
      return sharp::kMax;
    case ReduceOp::bor:
      break;
  }
  return std::nullopt;
}

SharpJob::SharpJob(Mesh& mesh, std::shared_ptr<const SharpLibrary> library)
    : library_(std::move(library)), outOfBand_(mesh, mesh.timeout()), devices_(devicesOf(mesh)) {}

Result<std::unique_ptr<SharpJob>> SharpJob::open(Mesh& mesh, std::shared_ptr<const SharpLibrary> library) {
  auto job = std::make_unique<SharpJob>(mesh, std::move(library));
  if (Status started = job->start(mesh); !started) {
    job->outOfBand_.giveUp();
    job->close();
    return started.takeError();
  }
  return job;
}

Status SharpJob::start(Mesh& mesh) {
  const auto done = [&](int code, const char* what) -> Status {
    if (code == 0) return {};
    if (outOfBand_.isOver()) return Error(Code::unavailable, what, kAnotherGaveUp);
    return Error(
        Code::unavailable, what,
        library_->words(code) + "; cards " + devices_ +
            ". SHARP_COLL_LOG_LEVEL=4 shows what the library did; the aggregation manager (sharp_am) "
            "must run beside the subnet manager");
  };
  sharp::JobSpec spec{};
  spec.job = mesh.group();
  spec.rank = mesh.rank();
  spec.ranks = mesh.ranks();
  spec.configuration = *library_->defaults;
  spec.configuration.devices = devices_.c_str();
  spec.calls = {onBroadcast, onBarrier, onGather};
  spec.threads = 1;
  spec.callsContext = &outOfBand_;
  TRY(done(library_->init(&spec, &context_), "creating a SHARP job"));
  TRY(done(library_->queryCapabilities(context_, &capabilities_), "asking what the switches can do"));
  sharp::CommSpec comm{};
  comm.rank = mesh.rank();
  comm.ranks = mesh.ranks();
  comm.callsContext = &outOfBand_;
  TRY(done(library_->openComm(context_, &comm, &comm_), "creating a SHARP group"));
  // No rank goes on where another rank could not.
  Status all = outOfBand_.barrier();
  if (!all && outOfBand_.isOver()) return Error(Code::unavailable, "creating a SHARP group", kAnotherGaveUp);
  if (all) common().add(capabilities_);
  return all;
}

SharpJob::~SharpJob() {
  end(Milliseconds(0));
}

void SharpJob::closeComm() {
  outOfBand_.setTimeout(Milliseconds(500));
  if (comm_) (void)library_->closeComm(std::exchange(comm_, nullptr));
}

void SharpJob::close() {
  end(Milliseconds(500));
}

// The library asks the other ranks while it ends, with our messages: `patience` bounds each of them.
void SharpJob::end(Milliseconds patience) {
  outOfBand_.setTimeout(patience);
  if (comm_) (void)library_->closeComm(std::exchange(comm_, nullptr));
  if (context_) (void)library_->finalize(std::exchange(context_, nullptr));
}

bool SharpJob::streams() const {
  return (capabilities_.features & sharp::kStreaming) != 0 && library_->allGather && library_->reduceScatter;
}

bool SharpJob::does(const Operation& operation) const {
  if (operation.kind != OperationKind::allReduce && !streams()) return false;
  return operation.kind == OperationKind::allGather ||
         has(capabilities_.types, capabilities_.operations, operation.type, operation.op);
}

bool SharpJob::reduces(ElementType type, ReduceOp op) {
  Common& all = common();
  const std::lock_guard lock(all.mutex);
  return has(all.types, all.operations, type, op);
}

std::string SharpJob::describe() const {
  return format("SHARP types %llx operations %llx features %llx gathers %d scatters %d",
                static_cast<unsigned long long>(capabilities_.types),
                static_cast<unsigned long long>(capabilities_.operations),
                static_cast<unsigned long long>(capabilities_.features), library_->allGather != nullptr,
                library_->reduceScatter != nullptr);
}

}  // namespace weft::coll
