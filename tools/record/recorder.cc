// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/record/recorder.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "src/base/advice.h"
#include "src/base/config.h"
#include "src/base/process.h"

namespace weft::record {

namespace {

constexpr uint64_t kFlushNanoseconds = 250'000'000;
constexpr uint64_t kDefaultLimitMiB = 1024;
constexpr int kMostFiles = 1000;

thread_local ThreadLog* threadLog = nullptr;

std::string rankOfEnvironment() {
  for (const char* name :
       {"WEFT_RECORD_RANK", "RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"})
    if (const char* value = environmentValue(name)) return value;
  return {};
}

// As the library that loaded us says, if its name can be found: no table tells.
std::string ncclVersion() {
  void* symbol = dlsym(RTLD_DEFAULT, "ncclGetVersion");
  if (symbol == nullptr) return {};
  int version = 0;
  const auto get = reinterpret_cast<ncclResult_t (*)(int*)>(symbol);
  return get(&version) == ncclSuccess ? std::to_string(version) : std::string();
}

std::string wallClock() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return std::to_string(uint64_t(now.tv_sec) * 1'000'000'000 + uint64_t(now.tv_nsec));
}

}  // namespace

Recorder& Recorder::instance() {
  static Recorder* const recorder =
      std::make_unique<Recorder>().release();  // threads may still call when statics are destroyed
  return *recorder;
}

std::string Recorder::open(const std::string& plugin) {
  const char* folder = environmentValue("WEFT_RECORD_DIR");
  const char* limit = environmentValue("WEFT_RECORD_LIMIT");
  const std::lock_guard lock(fileMutex_);
  limit_ = (limit != nullptr ? std::strtoull(limit, nullptr, 10) : kDefaultLimitMiB) << 20;
  if (limit_ == 0 || limit_ > uint64_t{1} << 50)
    return std::string("WEFT_RECORD_LIMIT is \"") + limit + "\", not a number of MiB from 1";
  pid_ = getpid();
  if (std::string wrong = openFile(folder != nullptr && *folder != '\0' ? folder : "."); !wrong.empty())
    return wrong;
  stopped_.store(false);
  const std::string text = about(plugin);
  write(trace::Encoder::fileHead());
  write(trace::Encoder::blockOf(trace::kAboutThread, 0, std::as_bytes(std::span(text.data(), text.size()))));
  return {};
}

std::string Recorder::openFile(const std::string& folder) {
  const std::string start = folder + "/" + hostName() + "-" + std::to_string(pid_);
  for (int number = 1; number < kMostFiles; ++number) {
    path_ = start + (number > 1 ? "-" + std::to_string(number) : "") + ".trace";
    file_ = Fd(::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644));
    if (file_) return {};
    if (errno != EEXIST) break;
  }
  return path_ + " cannot be made (" + errnoWords(errno) +
         "); set WEFT_RECORD_DIR to a folder that exists and can be written to";
}

std::string Recorder::about(const std::string& plugin) const {
  std::string text = "host=" + hostName() + "\npid=" + std::to_string(pid_) + "\nplugin=" + plugin +
                     "\nstart_unix_ns=" + wallClock() + "\nweft=" WEFT_VERSION "\n";
  if (const std::string rank = rankOfEnvironment(); !rank.empty()) text += "rank=" + rank + "\n";
  if (const std::string nccl = ncclVersion(); !nccl.empty()) text += "nccl=" + nccl + "\n";
  return text;
}

void Recorder::warn(const std::string& text) const {
  if (const auto logger = logger_.load())
    logger(NCCL_LOG_WARN, NCCL_ALL, __FILE__, __LINE__, "NET/Record: %s", text.c_str());
}

void Recorder::inform(const std::string& text) const {
  if (const auto logger = logger_.load())
    logger(NCCL_LOG_INFO, NCCL_INIT | NCCL_NET, __FILE__, __LINE__, "NET/Record: %s", text.c_str());
}

ThreadLog& Recorder::mine() {
  return threadLog != nullptr ? *threadLog : newThread();
}

ThreadLog& Recorder::newThread() {
  auto log = std::make_unique<ThreadLog>();
  char name[16] = {};
  prctl(PR_GET_NAME, name);
  {
    const std::lock_guard lock(threadsMutex_);
    log->number = static_cast<uint32_t>(threads_.size());
    threads_.push_back(std::move(log));
    threadLog = threads_.back().get();
  }
  trace::Event first;
  first.kind = trace::Kind::thread;
  first.time = now();
  first.values[0] = static_cast<uint64_t>(syscall(SYS_gettid));
  first.text = name;
  threadLog->written = first.time;
  threadLog->encoder.add(first);
  return *threadLog;
}

trace::Event& Recorder::begin(trace::Kind kind, uint64_t time, uint64_t duration, ncclResult_t result) {
  trace::Event& event = mine().event;
  event.kind = kind;
  event.time = time;
  event.duration = duration;
  event.result = static_cast<uint32_t>(result);
  event.values = {};
  event.parts.clear();
  event.text = {};
  return event;
}

void Recorder::add() {
  ThreadLog& log = mine();
  if (stopped_.load(std::memory_order_relaxed)) return;
  const std::lock_guard lock(log.lock);
  const trace::Event& event = log.event;
  const bool old = event.time - log.written > kFlushNanoseconds && event.time > log.written;
  if (old || !log.encoder.hasRoom(event.parts.size(), event.text.size())) {
    log.written = event.time;
    flushLog(log);
  }
  log.encoder.add(event);
  // The registrations that messages lie in have to be known also when the process is killed.
  if (event.kind == trace::Kind::regMr || event.kind == trace::Kind::regMrDmaBuf) flushLog(log);
}

void Recorder::addAndFlush() {
  add();
  flush();
}

void Recorder::flush() {
  const std::lock_guard threads(threadsMutex_);
  for (const auto& log : threads_) {
    const std::lock_guard lock(log->lock);
    flushLog(*log);
  }
}

// A forked child has a copy of what its parent will write.
void Recorder::flushLog(ThreadLog& log) {
  if (log.encoder.empty()) return;
  const std::string block = log.encoder.take(log.number);
  const std::lock_guard lock(fileMutex_);
  if (!stopped_.load(std::memory_order_relaxed) && getpid() == pid_) write(block);
}

void Recorder::write(const std::string& bytes) {
  const bool full = bytes_ + bytes.size() > limit_;
  size_t done = 0;
  while (!full && done < bytes.size()) {
    const ssize_t wrote = ::write(file_.get(), bytes.data() + done, bytes.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) break;
    done += static_cast<size_t>(wrote);
  }
  bytes_ += done;
  if (done == bytes.size()) return;
  stopped_.store(true);
  warn("recording stops, the job goes on: " + path_ +
       (full ? " has reached its limit; WEFT_RECORD_LIMIT is in MiB"
             : std::string(" cannot be written (") + errnoWords(errno) + ")"));
}

// The process ends, or the library is unloaded.
__attribute__((destructor)) static void flushAtEnd() {
  Recorder::instance().flush();
}

}  // namespace weft::record
