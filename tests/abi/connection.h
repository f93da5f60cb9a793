// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <chrono>
#include <utility>
#include <vector>

#include "tests/abi/driver.h"

// Both ends of a connection in one process, made and used the way NCCL's proxy does, and waiting that ends.
// One thread.
namespace weft::abi {

// Repeats `step` until it says true; false when that took unreasonably long.
template <class Step>
bool until(Step&& step) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  do {
    if (step()) return true;
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

// Two ends of a connection in this process, each with one registered buffer.
template <class Net>
struct Connection {
  explicit Connection(Driver<Net>& owner, size_t bytes = size_t{1} << 20)
      : driver(owner), source(bytes), sink(bytes) {}

  ~Connection() { close(); }

  void open(int device = 0) {
    Handle handle{};
    void* listener = nullptr;
    REQUIRE(driver.listen(device, &handle, &listener) == ncclSuccess);
    REQUIRE(listener != nullptr);
    const bool connected = until([&] {
      if (!send) CHECK(driver.connect(device, handle.data(), &send) == ncclSuccess);
      if (!receive) CHECK(driver.accept(listener, &receive) == ncclSuccess);
      return send && receive;
    });
    CHECK(driver.net->closeListen(listener) == ncclSuccess);
    REQUIRE(connected);
    REQUIRE(driver.regMr(send, source.data(), source.size(), &sourceMemory) == ncclSuccess);
    REQUIRE(driver.regMr(receive, sink.data(), sink.size(), &sinkMemory) == ncclSuccess);
    REQUIRE(sourceMemory != nullptr);
    REQUIRE(sinkMemory != nullptr);
  }

  void close() {
    if (sourceMemory) CHECK(driver.net->deregMr(send, std::exchange(sourceMemory, nullptr)) == ncclSuccess);
    if (sinkMemory) CHECK(driver.net->deregMr(receive, std::exchange(sinkMemory, nullptr)) == ncclSuccess);
    CHECK(driver.net->closeSend(std::exchange(send, nullptr)) == ncclSuccess);
    CHECK(driver.net->closeRecv(std::exchange(receive, nullptr)) == ncclSuccess);
  }

  // Posts until there is a request.
  void* postSend(size_t bytes, int tag, size_t offset = 0, void* phandle = nullptr) {
    void* request = nullptr;
    REQUIRE(until([&] {
      REQUIRE(driver.isend(send, source.data() + offset, bytes, tag, sourceMemory, &request, phandle) ==
              ncclSuccess);
      return request != nullptr;
    }));
    return request;
  }

  void* postReceive(std::vector<size_t> bytes, std::vector<int> tags, std::vector<size_t> offsets,
                    void* phandle = nullptr) {
    std::vector<void*> data;
    for (const size_t offset : offsets) data.push_back(sink.data() + offset);
    const std::vector<void*> memory(data.size(), sinkMemory);
    void* request = nullptr;
    REQUIRE(until([&] {
      request = nullptr;
      REQUIRE(driver.irecv(receive, data, bytes, tags, memory, &request, phandle) == ncclSuccess);
      return request != nullptr;
    }));
    return request;
  }

  // Tests both in turn until both are done, as one progress thread would.
  void finish(void* sending, void* receiving, int* sizes) {
    const bool done = until([&] {
      if (sending && isDone(sending, nullptr)) sending = nullptr;
      if (receiving && isDone(receiving, sizes)) receiving = nullptr;
      return !sending && !receiving;
    });
    REQUIRE(done);
  }

  bool isDone(void* request, int* sizes) {
    int done = -1;
    REQUIRE(driver.net->test(request, &done, sizes) == ncclSuccess);
    REQUIRE((done == 0 || done == 1));
    return done == 1;
  }

  Driver<Net>& driver;
  void* send = nullptr;
  void* receive = nullptr;
  std::vector<unsigned char> source;
  std::vector<unsigned char> sink;
  void* sourceMemory = nullptr;
  void* sinkMemory = nullptr;
};

template <class Net>
void passOneMessage(Driver<Net>& driver) {
  Connection<Net> connection(driver, 4096);
  connection.open();
  connection.source[0] = 9;
  void* receiving = connection.postReceive({1}, {1}, {0});
  connection.finish(connection.postSend(1, 1), receiving, nullptr);
  CHECK(connection.sink[0] == 9);
}

}  // namespace weft::abi
