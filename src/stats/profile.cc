// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/stats/profile.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "src/base/advice.h"
#include "src/base/fd.h"
#include "src/base/presence.h"
#include "src/base/process.h"

namespace weft::stats {

namespace {

constexpr int kMostProfiles = 16;  // of one process number and host

Error noProfile(const std::string& where, int error) {
  return Error(Code::system, "writing a profile",
               where + ": " + errnoWords(error) +
                   "; the job goes on without, or give WEFT_PROFILE a folder that this process may write to");
}

template <size_t N>
std::string textOf(const Text<N>& text) {
  return {text.data(), std::find(text.begin(), text.end(), '\0')};
}

// Names of devices and peers are bytes that others chose: what JSON has no letter for becomes a question
// mark.
std::string quoted(const std::string& text) {
  std::string safe = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') safe += '\\';
    const auto byte = static_cast<unsigned char>(c);
    safe += byte < 0x20 || byte >= 0x7f ? '?' : c;
  }
  return safe + '"';
}

std::string field(const char* name, uint64_t value) {
  return std::string("\"") + name + "\": " + std::to_string(value);
}

std::string field(const char* name, const std::string& value) {
  return std::string("\"") + name + "\": " + quoted(value);
}

// The parts with commas between them.
std::string listOf(const std::vector<std::string>& parts, const char* between = ", ") {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : between) + part;
  return text;
}

std::string numbersOf(std::initializer_list<uint64_t> numbers) {
  std::vector<std::string> parts;
  for (const uint64_t number : numbers) parts.push_back(std::to_string(number));
  return "[" + listOf(parts) + "]";
}

std::string oneSidedText(const OneSidedSum& sum) {
  if (!sum.any()) return "";
  std::vector<std::string> fields;
  for (const OneSidedField& one : kOneSidedFields) fields.push_back(field(one.name, sum.*one.sum));
  return ",\n     \"one_sided\": {" + listOf(fields) + "}";
}

std::string flowText(const ProfileSums::Key& key, const FlowSum& flow) {
  std::vector<std::string> sizes;
  for (size_t i = 0; i < kSizeClasses; i++) {
    const FlowSum::Size& size = flow.sizes[i];
    if (size.messages > 0)
      sizes.push_back(numbersOf({uint64_t{1} << i, size.messages, size.bytes, size.timed, size.nanoseconds}));
  }
  std::vector<std::string> latency;
  for (const auto& [upTo, count] : flow.latency) latency.push_back(numbersOf({upTo, count}));
  const auto way = [&flow](Way one) { return flow.ways[static_cast<size_t>(one)]; };
  return "    {" +
         listOf({field("direction", std::get<0>(key) ? "send" : "receive"), field("device", std::get<1>(key)),
                 field("peer", std::get<2>(key)), field("comms", flow.comms), field("failed", flow.failed),
                 field("busy_ns", flow.busy), field("wait_ns", flow.waited), field("waits", flow.waits),
                 field("registrations", flow.registrations), field("eager", way(Way::eager)),
                 field("rendezvous", way(Way::rendezvous)), field("direct", way(Way::direct)),
                 field("spilled", way(Way::spilled))}) +
         ",\n     \"sizes\": [" + listOf(sizes) + "],\n     \"latency\": [" + listOf(latency) + "]" +
         oneSidedText(flow.oneSided) + "}";
}

std::string memoryText(const std::string& device, const MemorySum& memory) {
  return "    {" +
         listOf({field("device", device), field("hits", memory.hits), field("misses", memory.misses),
                 field("evictions", memory.evictions), field("bytes", memory.bytes),
                 field("ns", memory.nanoseconds)}) +
         "}";
}

std::string railText(const std::string& device, const std::string& rail, const RailSum& sum) {
  return "    {" +
         listOf({field("device", device), field("rail", rail), field("writes", sum.writes),
                 field("bytes", sum.bytes), field("bytes_again", sum.bytesAgain)}) +
         "}";
}

std::string threadsText() {
  std::vector<std::string> threads;
  for (const ThreadTime& thread : threadTimes())
    threads.push_back("    {" + listOf({field("name", thread.name), field("cpu_ns", thread.nanoseconds)}) +
                      "}");
  return listOf(threads, ",\n");
}

uint64_t nanosecondsOf(const timeval& time) {
  return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(time.tv_usec) * 1000;
}

uint64_t processorTime() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  return nanosecondsOf(used.ru_utime) + nanosecondsOf(used.ru_stime);
}

// 0, or errno.
int writeWhole(const Fd& file, const std::string& text) {
  for (size_t done = 0; done < text.size();) {
    const ssize_t wrote = ::write(file.get(), text.data() + done, text.size() - done);
    if (wrote < 0 && errno != EINTR) return errno;
    if (wrote > 0) done += static_cast<size_t>(wrote);
  }
  return 0;
}

// The process that has made NAME.new, and it alone, may make NAME. 0, errno, or EEXIST where the name is
// taken.
int writeNew(const std::string& path, const std::string& text) {
  const std::string fresh = path + ".new";
  const Fd file(::open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file) return errno;
  int error = ::access(path.c_str(), F_OK) == 0 ? EEXIST : writeWhole(file, text);
  if (error == 0 && ::rename(fresh.c_str(), path.c_str()) != 0) error = errno;
  if (error != 0) (void)::unlink(fresh.c_str());
  return error;
}

}  // namespace

void ProfileSums::add(const CommLine& line, double nanoseconds) {
  const auto span = [nanoseconds](uint64_t ticks) {
    return static_cast<uint64_t>(static_cast<double>(ticks) * nanoseconds);
  };
  FlowSum& flow = flows[{line.sends.get() != 0, stats::textOf(line.device), stats::textOf(line.peer)}];
  flow.comms++;
  if (static_cast<LineState>(line.state.get()) == LineState::failed) flow.failed++;
  flow.busy += span(line.busy.get());
  flow.waited += span(line.waited.get());
  flow.waits += line.waits.get();
  flow.registrations += line.registrations.get();
  flow.oneSided += sumOf(line.oneSided);
  for (size_t i = 0; i < kWays; i++) flow.ways[i] += line.ways[i].get();
  for (size_t i = 0; i < kSizeClasses; i++) {
    flow.sizes[i].messages += line.sizes[i].messages.get();
    flow.sizes[i].bytes += line.sizes[i].bytes.get();
    flow.sizes[i].timed += line.sizes[i].timed.get();
    flow.sizes[i].nanoseconds += span(line.sizes[i].ticks.get());
  }
  for (uint32_t i = 0; i < kBuckets; i++)
    if (const uint32_t count = line.latency[i].get(); count > 0)
      flow.latency[span(bucketBegin(i + 1))] += count;
}

void ProfileSums::add(const std::string& device, const MemorySum& more) {
  MemorySum& sum = memory[device];
  sum.hits += more.hits;
  sum.misses += more.misses;
  sum.evictions += more.evictions;
  sum.bytes += more.bytes;
  sum.nanoseconds += more.nanoseconds;
}

void ProfileSums::add(const std::string& device, const std::string& rail, const RailSum& more) {
  RailSum& sum = rails[{device, rail}];
  sum.writes += more.writes;
  sum.bytes += more.bytes;
  sum.bytesAgain += more.bytesAgain;
}

void RailSums::add(const std::string& device, const std::string& rail, const RailSum& more) {
  const std::lock_guard lock(mutex_);
  sums_.add(device, rail, more);
}

void RailSums::addTo(ProfileSums* sums) const {
  const std::lock_guard lock(mutex_);
  sums->addAll(sums_);
}

void ProfileSums::addAll(const ProfileSums& more) {
  for (const auto& [key, from] : more.flows) {
    FlowSum& to = flows[key];
    to.comms += from.comms;
    to.failed += from.failed;
    to.busy += from.busy;
    to.waited += from.waited;
    to.waits += from.waits;
    to.registrations += from.registrations;
    to.oneSided += from.oneSided;
    for (size_t i = 0; i < kWays; i++) to.ways[i] += from.ways[i];
    for (size_t i = 0; i < kSizeClasses; i++) {
      to.sizes[i].messages += from.sizes[i].messages;
      to.sizes[i].bytes += from.sizes[i].bytes;
      to.sizes[i].timed += from.sizes[i].timed;
      to.sizes[i].nanoseconds += from.sizes[i].nanoseconds;
    }
    for (const auto& [upTo, count] : from.latency) to.latency[upTo] += count;
  }
  for (const auto& [device, sum] : more.memory) add(device, sum);
  for (const auto& [key, sum] : more.rails) add(key.first, key.second, sum);
  leftOut += more.leftOut;
}

Result<std::shared_ptr<Profile>> Profile::create(const std::string& folder, const std::string& network) {
  const Fd there(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!there || ::access(folder.c_str(), W_OK | X_OK) != 0) return noProfile(folder, errno);
  return std::make_shared<Profile>(Key{}, folder, network);
}

Profile::Profile(Key, std::string folder, std::string network)
    : folder_(std::move(folder)), network_(std::move(network)), begun_(realtimeNow()) {}

void Profile::begin(ProfileSource* source) {
  const std::lock_guard lock(mutex_);
  living_.insert(source);
  used_ = true;
}

void Profile::end(ProfileSource* source) {
  const std::lock_guard lock(mutex_);
  if (living_.erase(source) > 0) source->addTo(&over_);
}

Status Profile::write() {
  ProfileSums sums;
  {
    const std::lock_guard lock(mutex_);
    if (!used_) return {};
    sums = over_;
    for (ProfileSource* source : living_) source->addTo(&sums);
  }
  const std::string text = textOf(sums);
  const std::string stem = folder_ + "/" + hostName() + "." + std::to_string(::getpid());
  std::string path;
  int error = EEXIST;
  for (int i = 0; i < kMostProfiles && error == EEXIST; i++) {
    path = stem + (i > 0 ? "-" + std::to_string(i) : "") + kProfileEnding;
    error = writeNew(path, text);
  }
  if (error != 0) return noProfile(path, error);
  return {};
}

std::string Profile::textOf(const ProfileSums& sums) const {
  std::vector<std::string> flows, memory, rails;
  for (const auto& [key, flow] : sums.flows) flows.push_back(flowText(key, flow));
  for (const auto& [device, one] : sums.memory) memory.push_back(memoryText(device, one));
  for (const auto& [key, one] : sums.rails) rails.push_back(railText(key.first, key.second, one));
  const uint64_t now = realtimeNow();
  return "{" +
         listOf({field("weft_profile", kProfileVersion), field("weft", WEFT_VERSION),
                 field("host", hostName()), field("place", placeName()),
                 field("pid", static_cast<uint64_t>(::getpid())), field("network", network_),
                 field("begun_unix_ns", begun_), field("ns", now > begun_ ? now - begun_ : 0),
                 field("process_cpu_ns", processorTime()), field("comms_left_out", sums.leftOut)}) +
         ",\n  \"threads\": [\n" + threadsText() + "],\n  \"memory\": [\n" + listOf(memory, ",\n") +
         "],\n  \"rails\": [\n" + listOf(rails, ",\n") + "],\n  \"flows\": [\n" + listOf(flows, ",\n") +
         "]}\n";
}

}  // namespace weft::stats
