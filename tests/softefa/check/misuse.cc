// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
//
// usage: softefa-misuse CASE
// Does one thing that strict mode ends a process for. Comes to its end, with status 0, if it is let.
#include <cstdio>
#include <functional>
#include <map>
#include <string>

#include "tests/softefa/check/node.h"

using namespace softefa::check;

namespace {

constexpr size_t kSize = 4096;

struct Scene {
  explicit Scene(const Options& forA = {})
      : a("a", strict(forA)),
        b("b", strict({})),
        to(a.meet(b)),
        here(a.memory(kSize)),
        there(b.memory(kSize)) {}

  static Options strict(Options options) {
    options.strict = "all";
    return options;
  }

  Node a, b;
  Target to;
  std::unique_ptr<Memory> here, there;
};

void cqOverrun() {
  Options small;
  small.cqDepth = 4;
  Scene scene(small);
  scene.b.meet(scene.a);
  // Enough of them that it overruns though the last answers, counted before they leave, may come after the
  // poll that takes one.
  constexpr uint64_t kWrites = 8;
  for (uint64_t i = 0; i < kWrites; ++i)
    scene.a.write(i, scene.to, scene.here->piece(0, 8), *scene.there, i * 8);
  while (scene.b.counter("packetsSent") < kWrites) scene.b.next(std::chrono::milliseconds(1));
  scene.a.next(std::chrono::milliseconds(100));
}

void sendAfterDeregistration() {
  Scene scene;
  const ibv_sge piece = scene.here->piece(0, 8);
  scene.here->deregister();
  scene.a.send(1, scene.to, piece);
}

void receiveAfterDeregistration() {
  Scene scene;
  scene.b.receive(1, scene.there->piece(0, 64));
  scene.there->deregister();
  scene.a.send(1, scene.to, scene.here->piece(0, 8));
  scene.a.take();
}

// What a posts waits at b until letGo.
void stopAtTarget(Scene& scene) {
  scene.b.meet(scene.a);
  scene.b.setFaults("mute=a");
}

void letGo(Scene& scene) {
  scene.b.setFaults("none");
  scene.a.take();
}

void writeAfterDeregistration() {
  Scene scene;
  stopAtTarget(scene);
  scene.a.write(1, scene.to, scene.here->piece(0, 8), *scene.there);
  scene.there->deregister();
  letGo(scene);
}

void readAfterDeregistration() {
  Scene scene;
  stopAtTarget(scene);
  scene.a.read(1, scene.to, scene.here->piece(0, 8), *scene.there);
  scene.here->deregister();
  letGo(scene);
}

void overlappingWrites() {
  Scene scene;
  stopAtTarget(scene);
  for (uint64_t i = 0; i < 60; i += 2) {
    scene.a.write(i, scene.to, scene.here->piece(0, 10), *scene.there, 0);
    scene.a.write(i + 1, scene.to, scene.here->piece(0, 10), *scene.there, 9);
  }
  scene.b.setFaults("none reorder=50 reorder_time=5ms");
  for (int i = 0; i < 60; i++) scene.a.take();
}

// The older of two writes is late, and meanwhile somebody else writes more than a queue pair has under way.
void overlapBesideOthers() {
  Scene scene;
  scene.b.meet(scene.a);
  Node c("c", Scene::strict({}));
  scene.b.meet(c);
  scene.b.setFaults("delay=1s");
  scene.a.write(1, scene.to, scene.here->piece(0, 10), *scene.there, 0);
  while (scene.b.counter("packetsHeld") == 0) scene.a.next(std::chrono::milliseconds(1));
  scene.b.setFaults("none");
  scene.a.write(2, scene.to, scene.here->piece(0, 10), *scene.there, 9);
  scene.a.take();
  const auto theirs = c.memory(8);
  const Target to = c.meet(scene.b);
  for (uint64_t i = 0; i < 600; ++i) {
    c.write(i, to, theirs->piece(0, 8), *scene.there, 100 + i * 4);
    c.take();
  }
  scene.a.take();
}

// Side by side, and one after the other.
void writesBesideEachOther() {
  Scene scene;
  scene.b.meet(scene.a);
  scene.b.setFaults("reorder=50 reorder_time=5ms");
  for (uint64_t round = 0; round < 4; round++) {
    for (uint64_t i = 0; i < 10; i++)
      scene.a.write(i, scene.to, scene.here->piece(0, 10), *scene.there, i * 10);
    for (int i = 0; i < 10; i++) scene.a.take();
  }
}

void strangerAtTarget() {
  Scene scene;
  scene.a.write(1, scene.to, scene.here->piece(0, 8), *scene.there);
  scene.a.take();
}

void destroyedHandle() {
  Scene scene;
  scene.a.dropHandle(scene.to.ah);
  scene.a.send(1, scene.to, scene.here->piece(0, 8));
}

void postBeforeReady() {
  Scene scene;
  ibv_destroy_qp(scene.a.qp);
  scene.a.createQueuePair();
  scene.a.send(1, scene.to, scene.here->piece(0, 8));
}

// Nothing wrong: strict mode must let it be.
void nothing() {
  Scene scene;
  scene.b.meet(scene.a);
  for (uint64_t i = 0; i < 50; ++i) {
    scene.b.receive(i, scene.there->piece(0, 64));
    scene.a.write(i, scene.to, scene.here->piece(0, 64), *scene.there, 0, 1);
    scene.a.take();
    scene.b.take();
  }
}

const std::map<std::string, std::function<void()>> kCases{{"cq", cqOverrun},
                                                          {"mr-send", sendAfterDeregistration},
                                                          {"mr-receive", receiveAfterDeregistration},
                                                          {"mr-write", writeAfterDeregistration},
                                                          {"mr-read", readAfterDeregistration},
                                                          {"overlap", overlappingWrites},
                                                          {"overlap-beside", overlapBesideOthers},
                                                          {"beside", writesBesideEachOther},
                                                          {"ah-target", strangerAtTarget},
                                                          {"ah-destroyed", destroyedHandle},
                                                          {"state", postBeforeReady},
                                                          {"nothing", nothing}};

}  // namespace

int main(int count, char** arguments) {
  const auto found = kCases.find(count == 2 ? arguments[1] : "");
  if (found == kCases.end()) {
    std::fprintf(stderr, "usage: softefa-misuse CASE\n");
    return 2;
  }
  found->second();
  return 0;
}
