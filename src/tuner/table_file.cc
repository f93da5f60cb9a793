// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/tuner/table_file.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <fcntl.h>
#include <limits>
#include <span>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/fd.h"
#include "src/base/fnv.h"
#include "src/base/log.h"
#include "src/base/number.h"

// Reading and writing the table, key by key.
namespace weft::tuner {

namespace {

// Limits of a table; anything outside is an error, so that a wrong file is noticed.
constexpr std::string_view kTitle = "weft-tuner-table 2";
constexpr std::string_view kFirstTitle = "weft-tuner-table 1";  // with names that told no unit
constexpr size_t kMostBytes = 4096;
constexpr size_t kMostText = 64;
constexpr int kMostCount = 1 << 20;
constexpr double kMostUs = 1e6;
constexpr double kMostGBps = 1e5;

bool setText(std::string_view value, std::string* out) {
  if (value.empty() || value.size() > kMostText || !out->empty()) return false;
  for (const char c : value)
    if (c <= ' ' || c > '~') return false;
  *out = value;
  return true;
}

bool setCount(std::string_view value, int* out) {
  const auto number = parseNumber<int>(value);
  if (!number || *number < 1 || *number > kMostCount || *out != 0) return false;
  *out = *number;
  return true;
}

bool setNumber(std::string_view value, double most, double* out) {
  double number = 0;
  const char* const end = value.data() + value.size();
  const auto [last, error] = std::from_chars(value.data(), end, number);
  if (error != std::errc() || last != end || !(number > 1e-6) || number > most || *out != 0) return false;
  *out = number;
  return true;
}

constexpr const char* kUs = "microseconds, above 0, at most 1e6, once";
constexpr const char* kGBps = "GB/s, above 0, at most 1e5, once";

struct Key {
  std::string_view name;
  const char* allowed;
  // False: the value does not fit, or was set before.
  bool (*set)(MeasuredTable* table, std::string_view value);
  bool (*isSet)(const MeasuredTable& table);
};

template <double HostCosts::*Member>
bool setHostUs(MeasuredTable* table, std::string_view value) {
  return setNumber(value, kMostUs, &(table->host.*Member));
}

template <double HostCosts::*Member>
bool hasTimeOfHost(const MeasuredTable& table) {
  return (table.host.*Member) != 0;
}

template <double HostCosts::*Member>
constexpr Key timeOfHost(std::string_view name) {
  return {name, kUs, setHostUs<Member>, hasTimeOfHost<Member>};
}

template <HostRates HostCosts::*Rates, double HostRates::*Member>
bool setHostGBps(MeasuredTable* table, std::string_view value) {
  return setNumber(value, kMostGBps, &(table->host.*Rates.*Member));
}

template <HostRates HostCosts::*Rates, double HostRates::*Member>
bool hasRateOfHost(const MeasuredTable& table) {
  return (table.host.*Rates.*Member) != 0;
}

template <HostRates HostCosts::*Rates, double HostRates::*Member>
constexpr Key rateOfHost(std::string_view name) {
  return {name, kGBps, setHostGBps<Rates, Member>, hasRateOfHost<Rates, Member>};
}

constexpr Key kKeys[] = {
    {"provider", "a name without blanks, once",
     [](MeasuredTable* t, std::string_view v) { return setText(v, &t->provider); },
     [](const MeasuredTable& t) { return !t.provider.empty(); }},
    {"date", "a date without blanks, once",
     [](MeasuredTable* t, std::string_view v) { return setText(v, &t->date); },
     [](const MeasuredTable& t) { return !t.date.empty(); }},
    {"hosts", "a number from 1 on, once",
     [](MeasuredTable* t, std::string_view v) { return setCount(v, &t->hosts); },
     [](const MeasuredTable& t) { return t.hosts != 0; }},
    {"ranks", "a number from 1 on, once",
     [](MeasuredTable* t, std::string_view v) { return setCount(v, &t->ranks); },
     [](const MeasuredTable& t) { return t.ranks != 0; }},
    {"step_us", kUs, [](MeasuredTable* t, std::string_view v) { return setNumber(v, kMostUs, &t->stepUs); },
     [](const MeasuredTable& t) { return t.stepUs != 0; }},
    {"device_GBps", kGBps,
     [](MeasuredTable* t, std::string_view v) { return setNumber(v, kMostGBps, &t->deviceGBps); },
     [](const MeasuredTable& t) { return t.deviceGBps != 0; }},
    {"devices_per_node", "a number from 1 on, once",
     [](MeasuredTable* t, std::string_view v) { return setCount(v, &t->devices); },
     [](const MeasuredTable& t) { return t.devices != 0; }},
};

constexpr Key kNodeKeys[] = {
    {"gpus_per_node", "a number from 1 on, once",
     [](MeasuredTable* t, std::string_view v) { return setCount(v, &t->gpus); },
     [](const MeasuredTable& t) { return t.gpus != 0; }},
    {"machine", "a name without blanks, once",
     [](MeasuredTable* t, std::string_view v) { return setText(v, &t->machine); },
     [](const MeasuredTable& t) { return !t.machine.empty(); }},
};

constexpr Key kHostKeys[] = {
    {"host_processors", "a number from 1 on, once",
     [](MeasuredTable* t, std::string_view v) { return setCount(v, &t->host.processors); },
     [](const MeasuredTable& t) { return t.host.processors != 0; }},
    timeOfHost<&HostCosts::sendUs>("host_send_us"),
    timeOfHost<&HostCosts::receiveUs>("host_receive_us"),
    timeOfHost<&HostCosts::testUs>("host_test_us"),
    timeOfHost<&HostCosts::lookUs>("host_look_us"),
    timeOfHost<&HostCosts::stepUs>("host_step_us"),
    timeOfHost<&HostCosts::sharedStepUs>("host_shared_step_us"),
    rateOfHost<&HostCosts::near, &HostRates::sendGBps>("host_near_send_GBps"),
    rateOfHost<&HostCosts::near, &HostRates::receiveGBps>("host_near_receive_GBps"),
    rateOfHost<&HostCosts::near, &HostRates::copyGBps>("host_near_copy_GBps"),
    rateOfHost<&HostCosts::near, &HostRates::reduceGBps>("host_near_reduce_GBps"),
    rateOfHost<&HostCosts::far, &HostRates::sendGBps>("host_far_send_GBps"),
    rateOfHost<&HostCosts::far, &HostRates::receiveGBps>("host_far_receive_GBps"),
    rateOfHost<&HostCosts::far, &HostRates::copyGBps>("host_far_copy_GBps"),
    rateOfHost<&HostCosts::far, &HostRates::reduceGBps>("host_far_reduce_GBps"),
};

Error bad(std::string what) {
  return Error(Code::config, "reading a tuner table", std::move(what));
}

// Takes the next line off the text, without the blanks at its end.
std::string_view nextLine(std::string_view* text) {
  const size_t end = std::min(text->find('\n'), text->size());
  std::string_view line = text->substr(0, end);
  text->remove_prefix(std::min(end + 1, text->size()));
  while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.remove_suffix(1);
  return line;
}

// The name of today for one of version 1.
std::string ofFirst(std::string_view name) {
  if (name == "devices") return "devices_per_node";
  constexpr std::string_view kOld = "_gbps";
  if (!name.ends_with(kOld)) return std::string(name);
  return std::string(name.substr(0, name.size() - kOld.size())) + "_GBps";
}

Status setLine(MeasuredTable* table, std::string_view line, int number, bool first) {
  const size_t blank = std::min(line.find(' '), line.size());
  const std::string name = first ? ofFirst(line.substr(0, blank)) : std::string(line.substr(0, blank));
  std::string_view value = line.substr(blank);
  while (!value.empty() && value.front() == ' ') value.remove_prefix(1);
  for (const std::span<const Key> keys :
       {std::span<const Key>(kKeys), std::span<const Key>(kNodeKeys), std::span<const Key>(kHostKeys)})
    for (const Key& key : keys) {
      if (name != key.name) continue;
      if (key.set(table, value)) return {};
      return bad(format("line %d: %.*s must be %s", number, static_cast<int>(key.name.size()),
                        key.name.data(), key.allowed));
    }
  return bad(format(
      "line %d does not begin with provider, date, hosts, ranks, step_us, device_GBps, devices_per_node, "
      "gpus_per_node, machine or host_",
      number));
}

Status complete(const MeasuredTable& table) {
  for (const Key& key : kKeys)
    if (!key.isSet(table)) return bad(std::string(key.name) + " is missing");
  const auto isSet = [&](const Key& key) { return key.isSet(table); };
  if (std::none_of(std::begin(kHostKeys), std::end(kHostKeys), isSet)) return {};
  for (const Key& key : kHostKeys)
    if (!key.isSet(table)) return bad(std::string(key.name) + " is missing beside others of host_");
  return {};
}

std::string textOf(const HostCosts& host, int digits) {
  if (host.processors == 0) return {};
  std::string text = format("host_processors %d\n", host.processors);
  const auto add = [&](const char* name, double value) {
    text += format("host_%s %.*g\n", name, digits, value);
  };
  const auto addRates = [&](const std::string& where, const HostRates& rates) {
    add((where + "_send_GBps").c_str(), rates.sendGBps);
    add((where + "_receive_GBps").c_str(), rates.receiveGBps);
    add((where + "_copy_GBps").c_str(), rates.copyGBps);
    add((where + "_reduce_GBps").c_str(), rates.reduceGBps);
  };
  add("send_us", host.sendUs);
  add("receive_us", host.receiveUs);
  add("test_us", host.testUs);
  add("look_us", host.lookUs);
  add("step_us", host.stepUs);
  add("shared_step_us", host.sharedStepUs);
  addRates("near", host.near);
  addRates("far", host.far);
  return text;
}

std::string textOfNode(const MeasuredTable& table) {
  std::string text;
  if (table.gpus > 0) text += format("gpus_per_node %d\n", table.gpus);
  if (!table.machine.empty()) text += format("machine %s\n", table.machine.c_str());
  return text;
}

// The table as text, with numbers of so many digits.
std::string textOf(const MeasuredTable& table, int digits) {
  return format(
             "%.*s\n"
             "# Written by weft perf --fit. One way between two processes; GBps are 1e9 bytes a second.\n"
             "provider %s\ndate %s\nhosts %d\nranks %d\nstep_us %.*g\ndevice_GBps %.*g\ndevices_per_node "
             "%d\n",
             static_cast<int>(kTitle.size()), kTitle.data(), table.provider.c_str(), table.date.c_str(),
             table.hosts, table.ranks, digits, table.stepUs, digits, table.deviceGBps, table.devices) +
         textOfNode(table) + textOf(table.host, digits);
}

}  // namespace

Result<MeasuredTable> parseTable(std::string_view text) {
  if (text.size() > kMostBytes) return bad(format("it is larger than %zu bytes", kMostBytes));
  const std::string_view title = nextLine(&text);
  const bool first = title == kFirstTitle;
  if (!first && title != kTitle) return bad("it does not begin with \"" + std::string(kTitle) + "\"");
  MeasuredTable table;
  for (int number = 2; !text.empty(); number++) {
    const std::string_view line = nextLine(&text);
    if (line.empty() || line.front() == '#') continue;
    TRY(setLine(&table, line, number, first));
  }
  TRY(complete(table));
  return table;
}

// Not blocking, and a plain file only: a pipe or a device must not hold up the start of a job.
Result<MeasuredTable> readTable(const std::string& path) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) return Error(Code::config, "reading a tuner table", path, errno);
  struct stat facts {};
  if (::fstat(fd.get(), &facts) != 0 || !S_ISREG(facts.st_mode)) return bad(path + " is not a file");
  std::array<char, kMostBytes + 1> buffer{};
  const ssize_t n = ::read(fd.get(), buffer.data(), buffer.size());
  if (n < 0) return Error(Code::config, "reading a tuner table", path, errno);
  auto table = parseTable({buffer.data(), static_cast<size_t>(n)});
  if (!table) return bad(path + ": " + table.error().detail());
  return table;
}

std::string tableText(const MeasuredTable& table) {
  return textOf(table, 6);
}

Platform platformOf(const MeasuredTable& table, const std::string& source) {
  const std::string said = format("%s: measured %s, %d hosts, %d ranks", source.c_str(), table.date.c_str(),
                                  table.hosts, table.ranks);
  // Ranks that estimate alike have the same numbers to the last digit, so the name is a hash of all digits.
  const std::string exact = textOf(table, std::numeric_limits<double>::max_digits10);
  Platform platform;
  platform.name = format("table %016llx", static_cast<unsigned long long>(fnv1a(exact)));
  platform.hopUs.fill({table.stepUs, said});
  platform.nodeGBps = {table.deviceGBps * table.devices, said};
  return platform;
}

}  // namespace weft::tuner
