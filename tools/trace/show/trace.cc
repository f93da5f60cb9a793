// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/trace/show/trace.h"

#include <fmt/format.h>

#include "tools/output/output.h"
#include "tools/trace/show/print.h"

namespace weft::trace {

namespace {

constexpr int kFailed = 1;

int report(const Error& error) {
  fmt::print(stderr, "weft trace: {}\n", error.message());
  return kFailed;
}

// Adds one file's text or document; whether it was complete.
Result<bool> showOne(const Options& options, const std::string& file, Json* documents) {
  TRY(const Trace trace, readTrace(file));
  for (const std::string& note : trace.notes) fmt::print(stderr, "weft trace: {}\n", note);
  if (options.json) {
    Json document = summaryJson(trace);
    if (options.events) document.set("trace", eventsJson(trace));
    documents->append(document);
    return trace.notes.empty();
  }
  TRY(show(summaryText(trace)));
  if (options.events) TRY(show(eventsText(trace)));
  return trace.notes.empty();
}

}  // namespace

int run(const Options& options) {
  const auto files = findTraces(options.files);
  if (!files) return report(files.error());
  int status = 0;
  Json documents = Json::array();
  for (const std::string& file : *files) {
    const auto complete = showOne(options, file, &documents);
    if (!complete) status = report(complete.error());
    if (complete && !*complete) status = kFailed;
  }
  if (!options.json) return status;
  const Status shown = show(documents.text() + "\n");
  return shown ? status : report(shown.error());
}

}  // namespace weft::trace
