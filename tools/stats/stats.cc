// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/stats/stats.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include <fmt/format.h>

#include "src/base/number.h"
#include "src/base/shared_folder.h"
#include "tools/json/json.h"
#include "tools/output/output.h"
#include "tools/stats/one_sided_json.h"
#include "tools/stats/otlp.h"

namespace weft::counted {

namespace {

constexpr double kNanosecond = 1e-9;

Json jsonOf(const Comm& comm) {
  Json sizes = Json::array();
  for (size_t i = 0; i < stats::kSizeClasses; i++) {
    if (comm.sizeMessages[i] == 0) continue;
    sizes.append(Json{{"up_to", uint64_t{1} << i},
                      {"messages", comm.sizeMessages[i]},
                      {"bytes", comm.sizeBytes[i]},
                      {"timed", comm.sizeTimed[i]},
                      {"timed_seconds", static_cast<double>(comm.sizeTime[i]) * kNanosecond}});
  }
  Json ways;
  for (size_t i = 1; i < stats::kWays; i++) ways.set(name(static_cast<stats::Way>(i)), comm.ways[i]);
  const auto seconds = [](uint64_t span) { return static_cast<double>(span) * kNanosecond; };
  return Json{{"comm", comm.number},
              {"direction", comm.sends ? "send" : "receive"},
              {"state", name(comm.state)},
              {"device", comm.device},
              {"peer", comm.peer},
              {"messages", comm.messages},
              {"bytes", comm.bytes},
              {"posted", comm.posted},
              {"in_flight", comm.inFlight()},
              {"busy_seconds", seconds(comm.busy)},
              {"send_wait_seconds", seconds(comm.waited)},
              {"send_waits", comm.waits},
              {"ways", ways},
              {"sizes", sizes},
              {"latency_p50_seconds", seconds(comm.quantile(0.5))},
              {"latency_p99_seconds", seconds(comm.quantile(0.99))},
              {"lanes", comm.lanes},
              {"lanes_up", comm.lanesUp},
              {"registrations", comm.registrations},
              {"checked", comm.checked},
              {"corrupt", comm.corrupt},
              {"one_sided", oneSidedJson(comm.oneSided)},
              {"engine_segments_again", comm.segmentsAgain},
              {"engine_bytes_again", comm.bytesAgain},
              {"engine_lanes_left", comm.lanesLeft},
              {"engine_lanes_revived", comm.lanesRevived}};
}

std::string plainText(const std::vector<Process>& processes) {
  std::string text;
  for (const Process& process : processes) {
    text += fmt::format("pid {} ({}): {}, {} comms\n", process.presence.pid, process.presence.place,
                        name(process.state), process.comms.size());
    for (const Comm& comm : process.comms)
      text += fmt::format(
          "  comm {} {} {}: {}, {} messages, {} bytes, {} in flight, busy {:.3f} s, waited {:.3f} s\n",
          comm.number, comm.sends ? "sends to" : "receives from", comm.peer, name(comm.state), comm.messages,
          comm.bytes, comm.inFlight(), static_cast<double>(comm.busy) * kNanosecond,
          static_cast<double>(comm.waited) * kNanosecond);
    for (const Comm& comm : process.comms)
      if (const stats::OneSidedSum& sum = comm.oneSided; sum.any())
        text += fmt::format(
            "  comm {}: {} puts of {} bytes, {} gets of {} bytes and {} signals {} the peer\n", comm.number,
            sum.puts, sum.putBytes, sum.gets, sum.getBytes, sum.signals, comm.sends ? "to" : "from");
    for (const Comm& comm : process.comms)
      if (comm.corrupt > 0)
        text += fmt::format("  comm {}: {} of {} checked messages were not what was sent\n", comm.number,
                            comm.corrupt, comm.checked);
    if (process.leftOut > 0) text += fmt::format("  and {} comms that found no room\n", process.leftOut);
  }
  return text;
}

int fail(const std::string& why) {
  fmt::print(stderr, "weft stats: {}\n", why);
  return 1;
}

int fail(const Error& error) {
  (void)fail(error.message());
  return exitCodeOf(error);
}

// The collector never reads half of it: the file is whole, and takes its name at once. It may run as another
// user, so everybody may read it.
int writeTextfiles(const Options& options, const Where& where) {
  constexpr const char* kName = "weft.prom";
  constexpr mode_t kEverybodyReads = 0644;
  for (;;) {
    const SharedFolder folder(options.textfile);
    if (const int error =
            folder.replace(kName, prometheusText(read(where), options.perComm), kEverybodyReads);
        error != 0)
      return fail(fmt::format("{}/{} cannot be written: {}; may you write there?", options.textfile, kName,
                              sharedFileWords(error)));
    if (options.interval <= 0) return 0;
    std::this_thread::sleep_for(std::chrono::duration<double>(options.interval));
  }
}

// A collector that is away for a while is no reason to end, unless it is asked for one message alone.
int sendAgain(const Options& options, const Where& where) {
  for (;;) {
    const Status sent = sendOtlp(options.otlp, otlpText(read(where), options.perComm));
    if (!sent) (void)fail(sent.error());
    if (options.interval <= 0 || (!sent && sent.error().code() == Code::invalidArgument))
      return sent ? 0 : exitCodeOf(sent.error());
    std::this_thread::sleep_for(std::chrono::duration<double>(options.interval));
  }
}

}  // namespace

Result<Where> placesOf(const std::vector<std::string>& words) {
  Where where;
  for (const std::string& word : words) {
    if (const auto pid = parseNumber<int64_t>(word)) {
      where.pids.push_back(*pid);
    } else if (words.size() == 1) {
      where.folder = word;
    } else {
      return Error(Code::invalidArgument, "reading arguments",
                   "\"" + word + "\" is no process number; give one folder, or numbers");
    }
  }
  return where;
}

void sayUnread(const char* tool, const std::vector<std::string>& unread) {
  constexpr size_t kMostSaid = 3;
  for (size_t i = 0; i < std::min(unread.size(), kMostSaid); i++)
    fmt::print(stderr, "{}: {}\n", tool, unread[i]);
  if (unread.size() > kMostSaid)
    fmt::print(stderr, "{}: and {} further files\n", tool, unread.size() - kMostSaid);
}

std::string jsonText(const std::vector<Process>& processes) {
  Json all = Json::array();
  for (const Process& process : processes) {
    Json comms = Json::array();
    for (const Comm& comm : process.comms) comms.append(jsonOf(comm));
    all.append(Json{{"pid", process.presence.pid},
                    {"hostname", process.host},
                    {"uid", process.user},
                    {"place", process.presence.place},
                    {"job", process.job},
                    {"state", name(process.state)},
                    {"begun", static_cast<double>(process.begun) * kNanosecond},
                    {"last_beat", static_cast<double>(process.beat) * kNanosecond},
                    {"comms_left_out", process.leftOut},
                    {"comms", comms}});
  }
  return Json{{"version", 1}, {"processes", all}}.text() + "\n";
}

int runStats(const Options& options) {
  auto where = placesOf(options.where);
  if (!where) return fail(where.error());
  if (!options.textfile.empty()) return writeTextfiles(options, *where);
  if (!options.otlp.empty()) return sendAgain(options, *where);
  std::vector<std::string> unread;
  const std::vector<Process> processes = read(*where, &unread);
  sayUnread("weft stats", unread);
  if (processes.empty() && !unread.empty()) return 1;
  if (processes.empty())
    return fail(
        "no process was found that counts; does the job run, as the same user, with WEFT_STATS=1 and with "
        "connections?");
  const std::string text = options.json         ? jsonText(processes)
                           : options.prometheus ? prometheusText(processes, options.perComm)
                                                : plainText(processes);
  if (const Status shown = show(text); !shown) return fail(shown.error().message());
  return 0;
}

}  // namespace weft::counted
