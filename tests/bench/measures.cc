// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/bench/measures.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "tests/bench/presence.h"

namespace weft::bench {

namespace {

using Time = std::chrono::steady_clock;

constexpr size_t kWarmUp = 20;
constexpr size_t kWordBytes = 8;

double microseconds(Time::duration time) {
  return std::chrono::duration<double, std::micro>(time).count();
}

void send(End& end, size_t channel, size_t bytes) {
  while (!end.send(channel, bytes)) end.poll();
}

void awaitSent(End& end, size_t channel) {
  while (end.out(channel).finished < end.out(channel).started) end.poll();
}

void exchange(End& end, bool first, size_t bytes) {
  if (first) send(end, 0, bytes);
  end.receive(0, 1);
  if (!first) send(end, 0, bytes);
}

// The next one is sent while the completion of the last may still be to come, as in any request and answer.
void trips(End& end, bool first, size_t bytes, size_t rounds, std::vector<double>* halves) {
  end.use(1, 1);
  end.expect(0, bytes, rounds);
  for (size_t i = 0; i < rounds; i++) {
    while (!end.hasRoom(0)) end.poll();
    const auto start = Time::now();
    exchange(end, first, bytes);
    if (halves) halves->push_back(microseconds(Time::now() - start) / 2);
  }
  awaitSent(end, 0);
}

void sendAll(End& end, const Stream& what, const std::vector<uint64_t>& goals) {
  for (bool left = true; left;) {
    left = false;
    for (size_t channel = 0; channel < what.channels; channel++) {
      while (end.out(channel).started < goals[channel] && end.hasRoom(channel))
        if (!end.send(channel, what.bytes)) break;
      left = left || end.out(channel).finished < goals[channel];
    }
    end.poll();
  }
}

void receiveAll(End& end, const Stream& what) {
  const uint64_t each = what.count / what.channels;
  for (size_t channel = 0; channel < what.channels; channel++) end.expect(channel, what.bytes, each);
  for (size_t channel = 0; channel < what.channels; channel++) end.receive(channel, each);
}

}  // namespace

Latency pingPong(End& end, bool first, size_t bytes, size_t rounds) {
  trips(end, first, bytes, kWarmUp, nullptr);
  std::vector<double> halves;
  halves.reserve(rounds);
  const Presence presence;
  trips(end, first, bytes, rounds, &halves);
  const double share = presence.share();
  std::sort(halves.begin(), halves.end());
  return {halves[rounds / 2], halves[rounds * 99 / 100], halves.front(), share};
}

Streamed stream(End& end, bool first, const Stream& what) {
  trips(end, first, kWordBytes, kWarmUp, nullptr);  // both are awake and know of each other
  end.use(what.channels, what.window);
  const Presence presence;
  if (!first) {
    receiveAll(end, what);
    send(end, 0, kWordBytes);
    awaitSent(end, 0);
    return {0, presence.share()};
  }
  std::vector<uint64_t> goals;
  for (size_t i = 0; i < what.channels; i++) goals.push_back(end.out(i).started + what.count / what.channels);
  end.expect(0, kWordBytes, 1);
  const auto start = Time::now();
  sendAll(end, what, goals);
  end.receive(0, 1);
  return {microseconds(Time::now() - start), presence.share()};
}

}  // namespace weft::bench
