// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "src/base/net/sockets.h"
#include "tools/doctor/finding.h"

// Real packets to another host: is a port let through, and how long may a packet be on the way? Every probe
// ends at its deadline. Used by one thread; a Responder has one of its own.
namespace weft::doctor {

// The fate of a connection. "refused" shows that the way is open, though nothing listens there.
enum class Reach : uint8_t { open, refused, silent, noWay, failed };
struct Dialled {
  Reach reach = Reach::failed;
  int error = 0;  // errno, where there is one
};
Dialled dial(const SocketAddress& to, const Deadline& deadline);

// By datagrams that may not be cut, to a port where nobody listens: a host that gets one says so.
struct PathSize {
  enum class Answer : uint8_t { whole, smaller, swallowed, silent, failed };
  Answer answer = Answer::failed;
  int route = 0;  // bytes of a packet by the route of this host
  int path = 0;   // where a router said so
};
PathSize probePath(const SocketAddress& to, const Deadline& deadline);

// Listens, reads what a guest sends and answers it: more than any packet holds, so that a path that swallows
// large ones shows. Ends with the object.
class Responder {
  struct Key {};

 public:
  explicit Responder(Key) {}
  static Result<std::unique_ptr<Responder>> start(const PortRange& ports);
  ~Responder();
  Responder(const Responder&) = delete;
  Responder& operator=(const Responder&) = delete;
  uint16_t port() const { return port_; }

 private:
  void serve();

  Fd listener_;
  Fd stop_;
  uint16_t port_ = 0;
  std::thread thread_;
};

// Of a responder there: the connection, then 64 KiB and their answer.
Finding probeResponder(const std::string& host, const SocketAddress& at, double seconds);

// Of hosts that run nothing of ours: each address of theirs, on `ports`.
Findings probeHost(const std::string& host, const PortRange& ports, double seconds);

}  // namespace weft::doctor
