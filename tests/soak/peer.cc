// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/soak/hub.h"

namespace weft::soak {

namespace {

constexpr int kWarmEpisodes = 3;

void playAll(Run& run, const Options& options, netdriver::Library& library) {
  netdriver::Place place;
  place.rank = 1;
  place.size = 2;
  place.port = options.port;
  system::End end(run, library.net(), place, nullptr);
  Footprint settled;
  uint64_t connections = 0;
  for (int episode = 0;; ++episode) {
    const Script script = end.exchange(Script{});
    if (!Episode(run, end, script).play()) return;
    connections += episode < kWarmEpisodes ? 0 : script.links * 2;
    if (episode < kWarmEpisodes)
      settled = footprint();
    else
      checkFootprint(run, "peer", settled, connections);
    if (script.last) return;
  }
}

}  // namespace

int runPeer(const Options& options) {
  system::Settings settings;
  settings.rank = 1;
  Run run(settings, "peer");
  try {
    auto library = run.need(netdriver::Library::open(options.plugin, options.abi));
    playAll(run, options, *library);
  } catch (const system::CaseFailed&) {
    // Reported where it happened.
  } catch (const std::exception& e) {
    run.expect(false, std::string("exception: ") + e.what());
  }
  return run.failures() == 0 ? 0 : 1;
}

}  // namespace weft::soak
