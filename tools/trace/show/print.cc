// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/trace/show/print.h"

#include <algorithm>

#include <fmt/format.h>

#include "tools/netdriver/calls.h"

namespace weft::trace {

namespace {

std::string valueText(const Field& field, uint64_t value) {
  const std::string_view name = field.name;
  if (field.coding == Coding::fixed || name == "address") return fmt::format("{:016x}", value);
  if (field.coding == Coding::zigzag) return fmt::format("{}", static_cast<int64_t>(value));
  if (name == "waited") return fmt::format("{:.1f}us", static_cast<double>(value) / 1000);
  return fmt::format("{}", value);
}

// From a file: what a terminal would obey is shown as a question mark.
std::string printable(std::string_view text) {
  std::string shown(text);
  std::replace_if(
      shown.begin(), shown.end(), [](char c) { return static_cast<unsigned char>(c) < ' ' || c == 0x7f; },
      '?');
  return shown;
}

double micro(uint64_t nanoseconds) {
  return static_cast<double>(nanoseconds) / 1000;
}

std::string livesText(const char* name, const Lives& lives) {
  if (lives.done + lives.neverDone == 0) return {};
  const double count = static_cast<double>(std::max<uint64_t>(1, lives.done));
  return fmt::format(
      "  {:<9} {} done after {:.1f} us on average, {:.1f} us at most, {:.1f} tests each; {} never done\n",
      name, lives.done, micro(lives.nanoseconds) / count, micro(lives.longest),
      static_cast<double>(lives.tests) / count, lives.neverDone);
}

Json livesJson(const Lives& lives) {
  return {{"done", lives.done},
          {"never_done", lives.neverDone},
          {"nanoseconds", lives.nanoseconds},
          {"longest_nanoseconds", lives.longest},
          {"tests", lives.tests}};
}

Json aboutJson(const Trace& trace) {
  Json about;
  for (const auto& [name, value] : trace.about) about.set(name.c_str(), printable(value));
  return about;
}

}  // namespace

std::string describe(const Event& event) {
  const KindFacts& facts = factsOf(event.kind);
  std::string text = facts.name;
  for (size_t i = 0; i < facts.fields; ++i)
    text += fmt::format(" {} {}", facts.field[i].name, valueText(facts.field[i], event[i]));
  for (const Part& part : event.parts) {
    text += fmt::format(", {} B", part.size);
    if (facts.parts == Parts::messages)
      text += fmt::format(" of memory {} at {}, tag {}", part.memory, part.offset, part.tag);
  }
  if (facts.text) text += fmt::format(" \"{}\"", printable(event.text));
  if (event.result != 0)
    text += fmt::format(" -> {}", netdriver::resultName(static_cast<ncclResult_t>(event.result)));
  return text;
}

std::string eventsText(const Trace& trace) {
  std::string text = "#   time(us) thread  took(us) call\n";
  for (const Event& event : trace.events)
    text += fmt::format("{:12.1f} {:6} {:9.1f} {}\n", micro(event.time), event.thread, micro(event.duration),
                        describe(event));
  return text;
}

std::string summaryText(const Trace& trace) {
  const Summary s = summarize(trace);
  std::string text = trace.name + "\n";
  for (const auto& [name, value] : trace.about)
    text += fmt::format("  {:<9} {}\n", printable(name), printable(value));
  text += fmt::format("  {:<9} v{}\n", "table", trace.abi());
  text += fmt::format("  {:<9} {} in {:.3f} ms by {} threads\n", "events", trace.events.size(),
                      micro(s.nanoseconds) / 1000, s.threads);
  for (const auto& [kind, totals] : s.calls)
    text += fmt::format("  {:<13} {:8} calls {:12.1f} us in the plugin{}\n", factsOf(kind).name, totals.calls,
                        micro(totals.nanoseconds),
                        totals.errors > 0 ? fmt::format(", {} failed", totals.errors) : std::string());
  for (const auto& [from, sizes] : s.sizes)
    text += fmt::format("  from {:>11} B {:8} sends {:8} receives{}{}\n", from, sizes.sends, sizes.receives,
                        sizes.collectives > 0 ? fmt::format(" {:8} collectives", sizes.collectives) : "",
                        sizes.oneSided > 0 ? fmt::format(" {:8} puts and gets", sizes.oneSided) : "");
  text += livesText("sends", s.sends) + livesText("receives", s.receives) +
          livesText("collective", s.collectives) + livesText("one-sided", s.oneSided);
  text += fmt::format("  {:<9} {} requests of one comm at most\n", "depth", s.deepest);
  text += fmt::format("  {:<9} {} calls; posts waited {:.1f} us for it\n", "not now", s.notNow,
                      micro(s.notNowNanoseconds));
  text += fmt::format("  {:<9} {} registrations, {} of them used, {} times; {} bytes at most\n", "memory",
                      s.registrations, s.registrationsUsed, s.registrationUses, s.registered);
  return text;
}

Json eventsJson(const Trace& trace) {
  Json events = Json::array();
  for (const Event& event : trace.events) {
    const KindFacts& facts = factsOf(event.kind);
    Json one{{"call", facts.name},
             {"time_ns", event.time},
             {"thread", event.thread},
             {"duration_ns", event.duration},
             {"result", event.result}};
    for (size_t i = 0; i < facts.fields; ++i) {
      const Field& field = facts.field[i];
      if (field.coding == Coding::fixed)
        one.set(field.name, fmt::format("{:016x}", event[i]));
      else if (field.coding == Coding::zigzag)
        one.set(field.name, static_cast<int64_t>(event[i]));
      else
        one.set(field.name, event[i]);
    }
    if (facts.text) one.set("text", printable(event.text));
    Json parts = Json::array();
    for (const Part& part : event.parts)
      parts.append(facts.parts == Parts::sizes ? Json(part.size)
                                               : Json{{"bytes", part.size},
                                                      {"memory", part.memory},
                                                      {"offset", part.offset},
                                                      {"tag", part.tag}});
    if (facts.parts != Parts::none) one.set(facts.parts == Parts::sizes ? "sizes" : "messages", parts);
    events.append(one);
  }
  return events;
}

Json summaryJson(const Trace& trace) {
  const Summary s = summarize(trace);
  Json calls;
  for (const auto& [kind, totals] : s.calls)
    calls.set(factsOf(kind).name,
              Json{{"calls", totals.calls}, {"failed", totals.errors}, {"nanoseconds", totals.nanoseconds}});
  Json sizes = Json::array();
  for (const auto& [from, count] : s.sizes)
    sizes.append({{"from_bytes", from},
                  {"sends", count.sends},
                  {"receives", count.receives},
                  {"sent_bytes", count.sentBytes},
                  {"collectives", count.collectives},
                  {"one_sided", count.oneSided}});
  return {{"file", trace.name},
          {"about", aboutJson(trace)},
          {"table", trace.abi()},
          {"events", trace.events.size()},
          {"nanoseconds", s.nanoseconds},
          {"threads", s.threads},
          {"calls", calls},
          {"sizes", sizes},
          {"sends", livesJson(s.sends)},
          {"receives", livesJson(s.receives)},
          {"collectives", livesJson(s.collectives)},
          {"one_sided", livesJson(s.oneSided)},
          {"depth", s.deepest},
          {"not_now", s.notNow},
          {"not_now_nanoseconds", s.notNowNanoseconds},
          {"registrations", s.registrations},
          {"registrations_used", s.registrationsUsed},
          {"registration_uses", s.registrationUses},
          {"registered_bytes", s.registered},
          {"notes", trace.notes}};
}

}  // namespace weft::trace
