// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "tests/bench/connections.h"
#include "tests/bench/presence.h"

// usage: peers PLUGIN.so COUNT
//
// What a process pays for one more peer. The first process is connected with COUNT others, one after the
// other; each of those has a connection with a process of its own before, so that nothing there is made for
// the first time. A line for each: microseconds from listen until the first message of 8 bytes has come, the
// share of it in which the first process had a processor, and its resident KiB, descriptors and threads after
// it.
using namespace weft;
using namespace weft::bench;

namespace {

constexpr unsigned kSeconds = 60;
constexpr size_t kMostPeers = 64;
constexpr size_t kWordBytes = 8;

using Time = std::chrono::steady_clock;

void sendWord(PluginEnd& end, const Companion& to) {
  end.connect({1, 0}, to);
  const size_t channel = end.outgoing() - 1;
  end.use(end.outgoing(), 1);
  while (!end.send(channel, kWordBytes)) end.poll();
  while (end.out(channel).finished < end.out(channel).started) end.poll();
}

void receiveWord(PluginEnd& end, const Companion& from) {
  end.connect({0, 1}, from);
  const size_t channel = end.incoming() - 1;
  end.use(end.incoming(), 1);
  end.expect(channel, kWordBytes, 1);
  end.receive(channel, 1);
}

// Keeps its end until the other says that all is over.
void bePeer(const char* plugin, const Companion& first) {
  const Companion mate = Companion::start();
  {
    PluginEnd end(plugin, mate);
    if (!mate.first()) {
      receiveWord(end, mate);
    } else {
      sendWord(end, mate);
      first.putText("ready");
      (void)first.getText();
      sendWord(end, first);
      (void)first.getText();
      mate.putText("over");
    }
    if (!mate.first()) (void)mate.getText();
  }
}

void measurePeer(PluginEnd& end, const Companion& peer) {
  (void)peer.getText();
  peer.putText("go");
  const Presence presence;
  const auto start = Time::now();
  receiveWord(end, peer);
  const double microseconds = std::chrono::duration<double, std::micro>(Time::now() - start).count();
  const double share = presence.share();
  std::printf("%.1f %.3f %s\n", microseconds, share, processState().c_str());
}

}  // namespace

int main(int argc, char** argv) {
  const size_t count = argc == 3 ? std::strtoull(argv[2], nullptr, 10) : 0;
  if (count < 1 || count > kMostPeers) {
    std::fprintf(stderr, "usage: peers PLUGIN.so COUNT, at most 64\n");
    return 2;
  }
  watchdog(kSeconds);
  std::vector<Companion> peers;  // before anything here has a thread
  for (size_t i = 0; i < count; i++) {
    peers.push_back(Companion::start());
    if (peers.back().first()) continue;
    bePeer(argv[1], peers.back());
    return 0;
  }
  {
    PluginEnd end(argv[1], peers.front());
    for (const Companion& peer : peers) measurePeer(end, peer);
    for (const Companion& peer : peers) peer.putText("over");
  }
  return 0;
}
