// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <string>

#include "tests/fuzz/target.h"
#include "tools/trace/encoder.h"
#include "tools/trace/reader.h"

// Traces come from other machines and other people. What is taken can be written and read again.
using namespace weft;

namespace {

void demandSame(const trace::Event& event) {
  trace::Encoder encoder;
  if (!encoder.hasRoom(event.parts.size(), event.text.size())) return;
  encoder.add(event);
  const std::string file = trace::Encoder::fileHead() + encoder.take(event.thread);
  const auto bytes = std::as_bytes(std::span(file.data(), file.size()));
  const auto again = trace::parseTrace("again", {bytes.begin(), bytes.end()});
  fuzz::demand(again && again->events.size() == 1, "what was read can be written");
  fuzz::demand(again->events[0].values == event.values, "and is the same");
}

// With a checksum that fits, so that mutation reaches what is behind it.
std::vector<std::byte> repaired(const uint8_t* data, size_t size) {
  const std::string file =
      trace::Encoder::fileHead() + trace::Encoder::blockOf(0, 1000, fuzz::bytesOf(data, size));
  const auto bytes = std::as_bytes(std::span(file.data(), file.size()));
  return {bytes.begin(), bytes.end()};
}

void check(std::vector<std::byte> bytes) {
  const auto trace = trace::parseTrace("fuzz", std::move(bytes));
  if (!trace) {
    fuzz::demand(!trace.error().message().empty(), "a refusal says why");
    return;
  }
  for (const trace::Event& event : trace->events) demandSame(event);
}

trace::Event eventOf(trace::Kind kind) {
  trace::Event event;
  event.kind = kind;
  event.time = 5000;
  event.duration = 70;
  for (size_t i = 0; i < trace::factsOf(kind).fields; ++i) event.values[i] = i * 1000 + 1;
  const trace::Parts parts = trace::factsOf(kind).parts;
  if (parts == trace::Parts::messages) event.parts = {{4096, 1, 64, 0}, {1, 1, 8192, -1}};
  if (parts == trace::Parts::sizes) event.parts = {{4096, 0, 0, 0}};
  if (trace::factsOf(kind).text) event.text = "weft";
  return event;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = fuzz::bytesOf(data, size);
  check({bytes.begin(), bytes.end()});
  check(repaired(data, size));
  return 0;
}

std::vector<fuzz::Input> fuzz::seeds() {
  std::vector<Input> inputs;
  trace::Encoder all;
  for (size_t kind = 0; kind < trace::kKinds; ++kind) all.add(eventOf(static_cast<trace::Kind>(kind)));
  const std::string block = all.take(0);
  const std::string about = "host=a\npid=1\n";
  const std::string aboutBlock =
      trace::Encoder::blockOf(trace::kAboutThread, 0, std::as_bytes(std::span(about.data(), about.size())));
  for (const std::string& text :
       {trace::Encoder::fileHead() + aboutBlock + block, block.substr(sizeof(trace::BlockHead))}) {
    const auto bytes = std::as_bytes(std::span(text.data(), text.size()));
    inputs.emplace_back(bytes.begin(), bytes.end());
  }
  return inputs;
}
