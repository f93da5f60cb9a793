// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "src/coll/kernels.h"
#include "src/coll/sharp_abi.h"

// A library with libsharp_coll's interface for ranks that are threads of one process: what they hand it is
// reduced once all have. It sets itself up by the ranks' out-of-band calls, as the real one does, and refuses
// what the real one refuses. It fails as it is told to by sharpStandIn….
namespace sharp = weft::coll::sharp;
using weft::coll::ElementType;
using weft::coll::ReduceOp;

namespace {

constexpr int kInvalid = -10, kOutOfBand = -15;
constexpr size_t kAnnouncement = 5000;  // more than one message of the ranks' takes

struct Part {
  std::vector<std::byte> data;
  bool here = false;
};

struct Operation {
  std::vector<Part> parts;  // by rank
  std::vector<std::byte> result;
  size_t arrived = 0;
};

struct Job {
  int ranks = 0;
  std::map<uint64_t, Operation> operations;  // by their number
  std::vector<uint64_t> next;                // of each rank
};

struct Failure {
  std::string what;
  int rank = 0;
  int code = 0;
  int times = 0;
};

struct State {
  std::mutex mutex;
  std::map<uint64_t, std::shared_ptr<Job>> jobs;
  std::set<void*> registrations;
  std::multiset<void*> inUse;  // registrations of requests that are not freed
  int misused = 0;             // registrations that went before their request
  std::vector<Failure> failures;
  uint64_t types = 0xfff & ~(1u << sharp::kU16);
  uint64_t operations = 1u << sharp::kMax | 1u << sharp::kMin | 1u << sharp::kSum;
  bool old = false;  // switches before Quantum-2
  bool canStream = true;
  int contexts = 0;
};

State state;

// The lock is held.
bool streams() {
  const char* enabled = std::getenv("SHARP_COLL_ENABLE_SAT");
  return state.canStream && enabled && std::strcmp(enabled, "1") == 0;
}

bool streamsNow() {
  const std::lock_guard lock(state.mutex);
  return streams();
}

int failing(const char* what, int rank) {
  const std::lock_guard lock(state.mutex);
  for (Failure& one : state.failures) {
    if (one.what != what || one.rank != rank || one.times == 0) continue;
    one.times--;
    return one.code;
  }
  return 0;
}

struct Request {
  std::shared_ptr<Job> job;
  uint64_t number = 0;
  int rank = 0;
  void* registrations[2] = {};
  std::byte* receive = nullptr;
  size_t offset = 0;  // of what this rank gets of the result
  size_t bytes = 0;
};

// By the library's numbers; weft never asks for its 16-bit integers.
constexpr ElementType kTypes[] = {ElementType::u32, ElementType::i32,  ElementType::u64, ElementType::i64,
                                  ElementType::f32, ElementType::f64,  ElementType::u8,  ElementType::u8,
                                  ElementType::f16, ElementType::bf16, ElementType::u8,  ElementType::i8};
constexpr ReduceOp kOperations[] = {ReduceOp::max, ReduceOp::min, ReduceOp::sum};

}  // namespace

struct sharp::Context {
  std::shared_ptr<Job> job;
  int rank = 0;
  sharp::OutOfBandCalls calls{};
  void* callsContext = nullptr;
};

struct sharp::Comm {
  sharp::Context* context = nullptr;
};

namespace {

// Every rank says its number to the last one, which announces the job to all.
int setUp(const sharp::JobSpec& spec) {
  const int last = spec.ranks - 1;
  std::vector<int> numbers(static_cast<size_t>(spec.ranks), -1);
  int own = spec.rank;
  if (spec.calls.gather(spec.callsContext, last, &own, numbers.data(), sizeof own) != 0) return kOutOfBand;
  for (int rank = 0; spec.rank == last && rank < spec.ranks; rank++)
    if (numbers[static_cast<size_t>(rank)] != rank) return kOutOfBand;
  std::vector<uint8_t> announcement(kAnnouncement);
  for (size_t i = 0; spec.rank == last && i < announcement.size(); i++)
    announcement[i] = static_cast<uint8_t>(i * 7);
  if (spec.calls.broadcast(spec.callsContext, announcement.data(), kAnnouncement, last) != 0)
    return kOutOfBand;
  for (size_t i = 0; i < announcement.size(); i++)
    if (announcement[i] != static_cast<uint8_t>(i * 7)) return kOutOfBand;
  return spec.calls.barrier(spec.callsContext) == 0 ? 0 : kOutOfBand;
}

bool isKnown(const sharp::Buffer& buffer) {
  const std::lock_guard lock(state.mutex);
  return buffer.kind == 0 && state.registrations.contains(buffer.registration);
}

// A rank's part is complete; the last one of them makes the result.
template <class Finish>
Request* contribute(sharp::Comm* comm, const sharp::Buffer& send, const sharp::Buffer& receive, size_t bytes,
                    Finish finish) {
  auto request = std::make_unique<Request>();
  request->job = comm->context->job;
  request->rank = comm->context->rank;
  Job& job = *request->job;
  request->registrations[0] = send.registration;
  request->registrations[1] = receive.registration;
  request->receive = static_cast<std::byte*>(receive.address);
  const std::lock_guard lock(state.mutex);
  state.inUse.insert(std::begin(request->registrations), std::end(request->registrations));
  request->number = job.next[static_cast<size_t>(request->rank)]++;
  Operation& operation = job.operations[request->number];
  operation.parts.resize(static_cast<size_t>(job.ranks));
  Part& part = operation.parts[static_cast<size_t>(request->rank)];
  const auto* from = static_cast<const std::byte*>(send.address);
  part.data.assign(from, from + bytes);
  part.here = true;
  if (++operation.arrived == operation.parts.size()) finish(&operation);
  return request.release();
}

void fold(Operation* operation, ElementType type, ReduceOp op) {
  std::vector<const void*> inputs;
  for (const Part& part : operation->parts) inputs.push_back(part.data.data());
  operation->result.resize(operation->parts.front().data.size());
  if (!operation->result.empty())
    weft::coll::reduce(type, op, inputs, operation->result.data(), operation->result.size());
}

int startReduction(sharp::Comm* comm, const sharp::Reduction* spec, size_t resultBytes, Request** out) {
  if (const int code = failing("start", comm->context->rank)) return code;
  if (!isKnown(spec->send) || !isKnown(spec->receive) || spec->operation > sharp::kSum) return kInvalid;
  const ElementType type = kTypes[spec->type];
  const size_t bytes = spec->elements * weft::coll::elementBytes(type);
  if (spec->send.bytes != bytes || spec->receive.bytes < resultBytes) return kInvalid;
  *out = contribute(comm, spec->send, spec->receive, bytes,
                    [&](Operation* operation) { fold(operation, type, kOperations[spec->operation]); });
  return 0;
}

// Of a window [offset, offset + bytes) of a vector with `each` bytes a rank: where this rank's part begins
// and ends in it.
void ownPart(size_t offset, size_t bytes, size_t each, int rank, size_t* begin, size_t* end) {
  const size_t first = each * static_cast<size_t>(rank);
  *begin = std::min(std::max(first, offset), offset + bytes) - offset;
  *end = std::min(std::max(first + each, offset), offset + bytes) - offset;
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

extern const sharp::Configuration sharp_coll_default_config;
const sharp::Configuration sharp_coll_default_config = {nullptr, 999, -1, 0, {}};

void sharpStandInFail(const char* what, int rank, int code, int times) {
  const std::lock_guard lock(state.mutex);
  if (times == 0) return state.failures.clear();
  state.failures.push_back({what, rank, code, times});
}

// Switches of that generation. They stream where they can and SHARP_COLL_ENABLE_SAT, which is 0 by default,
// is 1.
void sharpStandInSwitches(bool old, bool canStream) {
  const std::lock_guard lock(state.mutex);
  state.old = old;
  state.canStream = canStream;
}

int sharpStandInContexts() {
  const std::lock_guard lock(state.mutex);
  return state.contexts + static_cast<int>(state.registrations.size()) + state.misused;
}

int sharp_coll_init(sharp::JobSpec* spec, sharp::Context** out) {
  if (const int code = failing("init", spec->rank)) return code;
  if (!spec->configuration.devices || !*spec->configuration.devices) return kInvalid;
  if (const int code = setUp(*spec)) return code;
  const std::lock_guard lock(state.mutex);
  std::shared_ptr<Job>& job = state.jobs[spec->job];
  if (!job) job = std::make_shared<Job>();
  job->ranks = spec->ranks;
  job->next.resize(static_cast<size_t>(spec->ranks));
  *out = std::make_unique<sharp::Context>(sharp::Context{job, spec->rank, spec->calls, spec->callsContext})
             .release();
  state.contexts++;
  return 0;
}

int sharp_coll_finalize(sharp::Context* context) {
  const std::lock_guard lock(state.mutex);
  state.contexts--;
  const std::unique_ptr<sharp::Context> gone(context);
  return 0;
}

int sharp_coll_caps_query(sharp::Context*, sharp::Capabilities* out) {
  const std::lock_guard lock(state.mutex);
  out->types = state.types;
  if (state.old)
    out->types &= ~(1u << sharp::kBf16 | 1u << sharp::kU8 | 1u << sharp::kI8 | 1u << sharp::kI16);
  out->operations = state.operations;
  out->features = streams() ? sharp::kStreaming : 0;
  return 0;
}

int sharp_coll_comm_init(sharp::Context* context, sharp::CommSpec* spec, sharp::Comm** out) {
  if (const int code = failing("comm", spec->rank)) return code;
  *out = std::make_unique<sharp::Comm>(sharp::Comm{context}).release();
  return 0;
}

int sharp_coll_comm_destroy(sharp::Comm* comm) {
  const std::unique_ptr<sharp::Comm> gone(comm);
  return 0;
}

int sharp_coll_reg_mr(sharp::Context* context, void* address, size_t bytes, void** out) {
  if (!address || bytes == 0) return kInvalid;
  if (const int code = failing("memory", context->rank)) return code;
  *out = std::make_unique<char>().release();
  const std::lock_guard lock(state.mutex);
  state.registrations.insert(*out);
  return 0;
}

int sharp_coll_dereg_mr(sharp::Context*, void* registration) {
  const std::lock_guard lock(state.mutex);
  if (state.registrations.erase(registration) == 0) return kInvalid;
  if (state.inUse.contains(registration)) state.misused++;
  const std::unique_ptr<char> gone(static_cast<char*>(registration));
  return 0;
}

int sharp_coll_do_allreduce_nb(sharp::Comm* comm, sharp::Reduction* spec, void** out) {
  Request* request = nullptr;
  if (const int code = startReduction(comm, spec, spec->send.bytes, &request)) return code;
  request->bytes = spec->send.bytes;
  *out = request;
  return 0;
}

int sharp_coll_do_reduce_scatter_nb(sharp::Comm* comm, sharp::Reduction* spec, void** out) {
  if (!streamsNow()) return kInvalid;
  size_t begin = 0, end = 0;
  ownPart(spec->offset, spec->send.bytes, spec->receive.bytes, comm->context->rank, &begin, &end);
  Request* request = nullptr;
  if (const int code = startReduction(comm, spec, end - begin, &request)) return code;
  request->offset = begin;
  request->bytes = end - begin;
  *out = request;
  return 0;
}

int sharp_coll_do_allgather_nb(sharp::Comm* comm, sharp::Gather* spec, void** out) {
  if (!streamsNow() || !isKnown(spec->send) || !isKnown(spec->receive) || spec->receive.bytes < spec->size)
    return kInvalid;
  size_t begin = 0, end = 0;
  ownPart(spec->offset, spec->size, spec->send.bytes, comm->context->rank, &begin, &end);
  Request* request = contribute(comm, spec->send, spec->receive, end - begin, [](Operation* operation) {
    for (const Part& part : operation->parts)
      operation->result.insert(operation->result.end(), part.data.begin(), part.data.end());
  });
  request->bytes = spec->size;
  *out = request;
  return 0;
}

int sharp_coll_req_test(void* handle) {
  auto& request = *static_cast<Request*>(handle);
  const std::lock_guard lock(state.mutex);
  Operation& operation = request.job->operations[request.number];
  if (operation.arrived < operation.parts.size()) return 0;
  if (request.bytes > 0)
    std::memcpy(request.receive, operation.result.data() + request.offset, request.bytes);
  request.bytes = 0;
  return 1;
}

int sharp_coll_req_free(void* handle) {
  const std::unique_ptr<Request> gone(static_cast<Request*>(handle));
  const std::lock_guard lock(state.mutex);
  for (void* registration : gone->registrations) state.inUse.erase(state.inUse.find(registration));
  return 0;
}

const char* sharp_coll_strerror(int code) {
  return code == -20 ? "Resource not available" : code == kOutOfBand ? "Out-of-band error" : "Error";
}

}  // extern "C"
#pragma GCC visibility pop
