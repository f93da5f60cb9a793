// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/trace/reader.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "tools/trace/decoder.h"

namespace weft::trace {

namespace {

constexpr const char* kRead = "read trace";
constexpr uint64_t kMostFileBytes = uint64_t{4} << 30;

Error refuse(const std::string& name, const std::string& detail) {
  return {Code::invalidArgument, kRead, name + ": " + detail};
}

Status checkHead(const std::string& name, std::span<const std::byte> bytes) {
  const size_t compared = std::min(bytes.size(), kMagic.size());
  if (compared == 0 || std::memcmp(bytes.data(), kMagic.data(), compared) != 0)
    return refuse(name, "is no trace; libnccl-net-record.so writes them, see docs/trace.md");
  if (bytes.size() < kFileHeadBytes)
    return refuse(name, "ends within its head; the process that recorded it ended at once");
  const auto low = static_cast<unsigned>(bytes[8]);
  const auto high = static_cast<unsigned>(bytes[9]);
  const unsigned version = low | high << 8;
  if (version == kVersion) return {};
  return refuse(name, "has version " + std::to_string(version) + " of the format and this weft reads " +
                          std::to_string(kVersion) + "; use the weft that recorded it, or a newer one");
}

void readAbout(std::span<const std::byte> body, Trace* trace) {
  const std::string_view text(reinterpret_cast<const char*>(body.data()), body.size());
  for (size_t from = 0; from < text.size();) {
    const size_t end = std::min(text.find('\n', from), text.size());
    const std::string_view line = text.substr(from, end - from);
    const size_t equals = line.find('=');
    if (equals != std::string_view::npos)
      trace->about.emplace(std::string(line.substr(0, equals)), std::string(line.substr(equals + 1)));
    from = end + 1;
  }
}

// Takes one block off the front. Nothing but true: go on.
Result<bool> takeBlock(std::span<const std::byte>* rest, size_t offset, Trace* trace) {
  const auto cut = [&] {
    trace->notes.push_back(trace->name + ": the last block, at byte " + std::to_string(offset) +
                           ", is cut off and was dropped; what was recorded before it is here");
    return false;
  };
  BlockHead head;
  if (rest->size() < sizeof(head)) return cut();
  std::memcpy(&head, rest->data(), sizeof(head));
  const std::string place = "the block at byte " + std::to_string(offset);
  if (head.mark != BlockHead::kMark || head.bytes > kMostBlockBytes)
    return refuse(trace->name, place + " is damaged; copy the file again from where it was recorded");
  if (rest->size() - sizeof(head) < head.bytes) return cut();
  const auto body = rest->subspan(sizeof(head), head.bytes);
  *rest = rest->subspan(sizeof(head) + head.bytes);
  if (checksumOf(body) != head.checksum)
    return refuse(trace->name,
                  place + " has a wrong checksum; copy the file again from where it was recorded");
  if (head.thread == kAboutThread) {
    readAbout(body, trace);
    return true;
  }
  if (head.thread >= kMostThreads)
    return refuse(trace->name,
                  place + " is of thread " + std::to_string(head.thread) + ", more than there can be");
  Decoder decoder(body, head.thread, head.base);
  while (!decoder.atEnd())
    if (!decoder.next(&trace->events))
      return refuse(trace->name, place + " holds what is no event; no weft wrote this file");
  return true;
}

}  // namespace

std::string Trace::aboutOf(const std::string& key) const {
  const auto found = about.find(key);
  return found != about.end() ? found->second : std::string();
}

int Trace::abi() const {
  for (const Event& event : events)
    if (event.kind == Kind::table) return static_cast<int>(event[at::kAbi]);
  return 0;
}

Result<Trace> parseTrace(std::string name, std::vector<std::byte> bytes) {
  Trace trace;
  trace.name = std::move(name);
  const auto memory = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
  trace.memory = memory;
  std::span<const std::byte> rest(*memory);
  TRY(checkHead(trace.name, rest));
  rest = rest.subspan(kFileHeadBytes);
  for (bool more = true; more && !rest.empty();) {
    TRY(more, takeBlock(&rest, memory->size() - rest.size(), &trace));
  }
  std::stable_sort(trace.events.begin(), trace.events.end(),
                   [](const Event& a, const Event& b) { return a.time < b.time; });
  return trace;
}

Result<Trace> readTrace(const std::string& path) {
  std::error_code wrong;
  const uint64_t size = std::filesystem::file_size(path, wrong);
  if (wrong) return Error(Code::invalidArgument, kRead, path + ": " + wrong.message());
  if (size > kMostFileBytes) return refuse(path, "is larger than 4 GiB; record less, see WEFT_RECORD_LIMIT");
  std::ifstream file(path, std::ios::binary);
  std::vector<std::byte> bytes(size);
  file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(size));
  if (!file) return refuse(path, "cannot be read; is it yours?");
  return parseTrace(path, std::move(bytes));
}

Result<std::vector<std::string>> findTraces(const std::vector<std::string>& paths) {
  std::vector<std::string> files;
  for (const std::string& path : paths) {
    std::error_code none;
    if (!std::filesystem::is_directory(path, none)) {
      files.push_back(path);
      continue;
    }
    std::vector<std::string> inside;
    for (const auto& entry : std::filesystem::directory_iterator(path, none))
      if (entry.path().extension() == ".trace") inside.push_back(entry.path().string());
    if (inside.empty())
      return Error(
          Code::invalidArgument, kRead,
          path + ": no file in this folder ends in .trace; record a job with WEFT_RECORD_DIR=" + path);
    std::sort(inside.begin(), inside.end());
    files.insert(files.end(), inside.begin(), inside.end());
  }
  return files;
}

}  // namespace weft::trace
