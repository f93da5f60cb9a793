// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "providers/registry.h"
#include "src/base/config.h"
#include "src/topo/machine.h"
#include "src/tuner/table_file.h"
#include "tools/output/output.h"
#include "tools/perf/cluster_check.h"
#include "tools/perf/host_costs.h"
#include "tools/perf/results.h"
#include "tools/perf/samples.h"

namespace weft::perf {

namespace {

// Of the pairs between hosts; where there is only one, of all.
double medianOf(const ClusterResults& results, const CostMatrix& matrix) {
  const bool several =
      std::any_of(results.hosts.begin(), results.hosts.end(), [](int host) { return host != 0; });
  std::vector<double> values;
  for (int from = 0; from < matrix.size(); ++from)
    for (int to = 0; to < matrix.size(); ++to) {
      const bool across = results.hosts[static_cast<size_t>(from)] != results.hosts[static_cast<size_t>(to)];
      const bool known = from != to && !std::isnan(matrix.at(from, to));
      if (known && (across || !several)) values.push_back(matrix.at(from, to));
    }
  if (values.empty()) return 0;  // which no table takes
  return median(std::move(values));
}

// The fabric that the plugin takes, given the same settings.
Result<std::string> fabricName() {
  TRY(const Config config, readConfigFromEnvironment());
  TRY(const Choice choice, chooseTransport(config));
  return choice.transport->name();
}

tuner::HostRates ratesOf(const EndCosts::Rates& ends, const ProcessorCosts::Rates& processor) {
  return {ends.sendGBps, ends.receiveGBps, processor.copyGBps, processor.reduceGBps};
}

// Ranks of one host share its processors, so the work of those counts for them.
tuner::HostCosts hostCosts(const ClusterResults& results) {
  const ProcessorCosts processor = measureProcessor(results.latency.size());
  const EndCosts& ends = results.costs;
  tuner::HostCosts host;
  host.processors = processor.processors;
  host.sendUs = ends.sendUs;
  host.receiveUs = ends.receiveUs;
  host.testUs = ends.testUs;
  host.lookUs = ends.lookUs;
  host.stepUs = ends.stepUs;
  host.sharedStepUs = ends.sharedStepUs;
  host.near = ratesOf(ends.near, processor.near);
  host.far = ratesOf(ends.far, processor.far);
  return host;
}

// A firmware's name may have blanks, which a table has not; such a machine is not one that is known.
std::string oneWord(const std::string& name) {
  const auto isPlain = [](char c) { return c > ' ' && c <= '~'; };
  return name.size() <= 64 && std::all_of(name.begin(), name.end(), isPlain) ? name : std::string();
}

}  // namespace

Status writeFit(const ClusterResults& results) {
  tuner::MeasuredTable table;
  TRY(table.provider, fabricName());
  table.date = dateOf(std::time(nullptr));
  table.ranks = results.latency.size();
  table.hosts = 1 + *std::max_element(results.hosts.begin(), results.hosts.end());
  table.stepUs = medianOf(results, results.latency);
  table.deviceGBps = medianOf(results, results.bandwidth);
  table.devices = results.devices;
  table.machine = oneWord(topo::machineName());
  if (table.hosts == 1) table.host = hostCosts(results);
  const std::string text = tuner::tableText(table);
  TRY(tuner::parseTable(text));  // a run that measured nonsense must not leave it behind
  if (table.hosts == 1)
    fmt::print(stderr,
               "weft perf: WARNING: all ranks are on one host, so {} says of steps between hosts what steps "
               "within one "
               "take; measure between hosts before a job uses it\n",
               results.options->fit);
  TRY(writeDocument(results.options->fit, text));
  const std::string line = fmt::format(
      "# {}: {:.2f} us a step, {:.3g} GB/s a device, {} devices, over {}; use it on every rank with "
      "WEFT_TUNER_TABLE\n",
      results.options->fit, table.stepUs, table.deviceGBps, table.devices, table.provider);
  if (results.options->documentsShown() == 0) return show(line);
  fmt::print(stderr, "{}", line);  // after the document it would be no document
  return {};
}

}  // namespace weft::perf
