// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/softgpu/event.h"
#include "tests/softgpu/stream.h"

// Graphs by stream capture. A graph is what each captured stream did ("lane"), in order, with marks for what
// one lane waits for of another. That is less than CUDA's graphs are, and all that capture needs.
namespace softgpu {

// Something whose destructor a graph keeps back until it is gone itself.
class UserObject {
 public:
  UserObject(void* object, void (*destroy)(void*), unsigned count)
      : object_(object), destroy_(destroy), count_(count) {}
  void retain(unsigned count);
  void release(unsigned count);

 private:
  void* const object_;
  void (*const destroy_)(void*);
  std::mutex lock_;
  unsigned count_;
};

struct GraphStep {
  enum class Kind { work, setMark, waitMark, waitEvent };
  Kind kind = Kind::work;
  std::function<void()> work;
  int mark = -1;  // or the number of the awaited event
};

// What a node handle of the API points to: a mark of the lanes, or -1 for a node that nobody waits for.
struct GraphNode {
  int mark = -1;
};

struct GraphBody {
  ~GraphBody();
  std::mutex lock;
  std::vector<std::vector<GraphStep>> lanes;
  int marks = 0;
  std::vector<Event*> awaited;   // events from outside of the graph
  std::vector<Event*> recorded;  // events that each launch records when it is done
  std::vector<UserObject*> objects;
  std::deque<GraphNode> nodes;
};

struct Graph {
  std::shared_ptr<GraphBody> body;
};

// What a thread may call while streams are captured (cuThreadExchangeStreamCaptureMode), and what a capture
// forbids to others (cuStreamBeginCapture).
enum class CaptureMode { global = 0, threadLocal = 1, relaxed = 2 };

// Sets the calling thread's mode and returns the one before.
CaptureMode exchangeCaptureMode(CaptureMode mode);

// Whether the calling thread may make a call that could disturb a capture: one that allocates, frees, waits
// or asks for an event. Where it may not, each capture that forbids it has failed from now on.
bool mayDisturbCaptures();

// One capture, from begin to end. Any thread.
class Capture : public std::enable_shared_from_this<Capture> {
 public:
  // By the calling thread.
  static std::shared_ptr<Capture> begin(Stream& origin, CaptureMode mode);
  Capture(Stream& origin, CaptureMode mode);

  void add(Stream& stream, std::function<void()> work);
  void record(Stream& stream, Event& event);
  // `stream` joins the capture if it has not, and waits for `mark`.
  void waitMark(Stream& stream, int mark);
  void waitExternal(Stream& stream, Event& event);
  // A node that stands for all that `stream` did so far.
  GraphNode* tip(Stream& stream);
  // The stream is being destroyed: its lane stays.
  void forget(Stream& stream);
  // Null where the capture has failed.
  Graph* end();
  bool forbids(std::thread::id caller, CaptureMode callers) const;
  void fail() { failed_ = true; }

  Stream& origin() const { return origin_; }
  uint64_t id() const { return id_; }
  Graph* graph() { return &graph_; }

 private:
  std::vector<GraphStep>& laneOf(Stream& stream);

  Stream& origin_;
  const CaptureMode mode_;
  const std::thread::id beganIn_ = std::this_thread::get_id();
  const uint64_t id_;
  std::atomic<bool> failed_{false};
  std::shared_ptr<GraphBody> body_ = std::make_shared<GraphBody>();
  Graph graph_{body_};
  std::map<uint64_t, size_t> lanes_;  // by the stream's id
  std::map<uint64_t, Stream*> streams_;
};

// Puts one run of the graph into the stream.
void launchGraph(const std::shared_ptr<GraphBody>& body, Stream& stream);

}  // namespace softgpu
