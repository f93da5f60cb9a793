// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <deque>
#include <linux/tcp.h>
#include <map>
#include <memory>
#include <optional>
#include <poll.h>
#include <set>
#include <span>
#include <string>
#include <sys/epoll.h>
#include <sys/uio.h>
#include <vector>

#include "src/base/bytes.h"
#include "src/base/net/address.h"
#include "src/base/random.h"
#include "tools/world/scheduler.h"

// The kernels of a world's hosts, as far as providers/tcp and aggregation daemons call them: TCP sockets,
// epoll and poll. The linker puts
// wrapped_calls.cc in the place of the C library's functions, so that the product's code is what it is
// everywhere. Streams keep their order and lose nothing, but for that they do all that tcp(7) allows: calls
// take and give less than was asked for, buffers are full, packets come late, connections are refused, reset,
// half closed, or stay open to nobody. Used by one thread.
namespace weft::world {

// What a seed draws of it.
struct TcpHabits {
  bool on = false;  // the ranks talk over tcp
  bool v6 = false;
  Nanoseconds latency{};
  Nanoseconds jitter{};             // below so much is drawn for what one call sends
  uint64_t bytesPerUs = 1000;       // of a connection
  size_t buffer = size_t{1} << 16;  // that may be on its way, or wait to be read
  uint64_t shortOf8 = 0;            // so many of eight calls take less than they could
  std::string text() const;
};

class PlayedTcp {
 public:
  // `plays`: the world's sockets are these.
  PlayedTcp(Scheduler& scheduler, Journal& journal, const TcpHabits& habits, bool plays, uint64_t seed);
  ~PlayedTcp();
  PlayedTcp(const PlayedTcp&) = delete;
  PlayedTcp& operator=(const PlayedTcp&) = delete;
  static PlayedTcp* running();  // null: there is no world with sockets

  // From the world. An address belongs to a rail of a host.
  void addRails(int host, int rails);
  void callsAs(int host) { caller_ = host; }  // outside of all tasks
  void kill(int host);                        // its kernel closes what the process had
  void reset(int host, int rail, bool oneOnly);
  void down(int host, int rail, TimePoint until);  // no packet of the rail arrives before
  void refuseDescriptors(int host, TimePoint until);
  std::string complaint() const;  // of calls that no program may make
  size_t open() const { return sockets_.size() + epolls_.size(); }

  // The system calls, by numbers of descriptors that are ours. As in the manual: -1 and errno.
  static constexpr int kFirst = 1 << 20;
  std::vector<Interface> interfaces() const;
  SocketAddress addressOf(int host, int rail) const { return addressOf(host, rail, habits_.v6); }
  static SocketAddress addressOf(int host, int rail, bool v6);
  int socket();
  int bind(int fd, const SocketAddress& at);
  int listen(int fd);
  int connect(int fd, const SocketAddress& to);
  int accept(int fd);
  ssize_t send(int fd, std::span<const iovec> parts);
  ssize_t receive(int fd, std::span<const iovec> parts, bool peek);
  int shutdown(int fd, int how);
  int close(int fd);
  int poll(std::span<pollfd> asked, int milliseconds);  // gives the turn away while it waits
  int lingerNot(int fd);
  int nameOf(int fd, bool peers, SocketAddress* out);
  int errorOf(int fd, int* error);
  int countsOf(int fd, tcp_info* out);  // what tells a flow's rate
  int epollCreate();
  int epollControl(int fd, int op, int of, const epoll_event* event);
  int epollWait(int fd, std::span<epoll_event> events);

 private:
  struct Chunk {
    TimePoint arrives;
    Bytes bytes;
    size_t taken = 0;
  };
  enum class State : uint8_t { fresh, listening, connecting, stands, failed };
  struct Socket {
    int fd = -1;
    int host = -1;
    State state = State::fresh;
    SocketAddress local, remote;
    std::weak_ptr<Socket> other;
    bool open = true;      // the process has it
    bool fresh = false;    // it was accepted, and nothing was sent or read: a small message goes whole
    bool lingers = true;   // what was sent leaves though it is closed
    bool saidAll = false;  // the process sends nothing more
    bool deaf = false;     // and reads nothing more
    int error = 0;         // that the next call gets
    bool over = false;     // its error was told: nothing more can be sent
    TimePoint standsAt{};  // for the end that dials
    std::deque<Chunk> in;  // on the way, and not read
    uint64_t sent = 0;     // bytes
    size_t waiting = 0;    // bytes of it
    TimePoint lastArrival{};
    std::optional<TimePoint> fin, reset;
    std::deque<std::shared_ptr<Socket>> backlog;
  };
  using Ref = std::shared_ptr<Socket>;
  struct Epoll {
    std::map<int, epoll_event> sockets;
    std::set<int> armed;
  };

  TimePoint now() const { return scheduler_.now(); }
  int caller() const { return scheduler_.current() ? scheduler_.current()->rank : caller_; }
  bool mayOpen();
  int enter(Ref socket);
  Ref find(int fd, const char* call);
  int failWith(int error);
  ssize_t counted(ssize_t result);
  TimePoint arrival(const Socket& from, const Socket& to, size_t bytes);
  TimePoint upAgain(const SocketAddress& a, const SocketAddress& b) const;
  void hello(const Ref& from, int tries);
  size_t atMost(Socket& socket, size_t bytes);
  size_t arrived(const Socket& socket) const;
  bool settle(Socket& socket);
  bool canBeRead(Socket& socket);
  bool canBeWritten(Socket& socket);
  bool holds(const pollfd& asked);
  int countReady(std::span<pollfd> asked);
  void sayEnd(Socket& socket);
  void leave(const Ref& socket);
  void tellReset(const Ref& socket);
  bool isOf(const Socket& socket, int host, int rail) const;
  static std::string keyOf(const SocketAddress& address);

  Scheduler& scheduler_;
  Journal& journal_;
  const TcpHabits habits_;
  SeededRandom random_;
  std::map<int, int> rails_;  // of each host
  std::set<int> dead_;
  int caller_ = -1;
  int lastFd_ = kFirst;
  uint16_t lastPort_ = 20'000;
  std::map<int, Ref> sockets_;
  std::map<int, Epoll> epolls_;
  std::map<std::string, std::weak_ptr<Socket>> listeners_;
  std::map<std::string, TimePoint> downUntil_;  // by address without its port
  std::map<int, TimePoint> noneUntil_;          // descriptors
  std::string complaint_;
};

}  // namespace weft::world
