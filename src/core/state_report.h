// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "src/base/clock.h"
#include "weft/result.h"

// Writes the state of this process's comms into WEFT_STATE_DIR when somebody touches the file "ask" there,
// and when a wait was warned of. A thread of its own looks twice a second: a folder on a network file system
// may take its time, which the control thread has not. It exists only where the setting names a folder.
// Beside the answers it keeps a note that the process is here (src/base/presence.h), and touches it every few
// seconds: a process that is stopped or killed cannot answer, and is named by its note. The note goes with
// the last connection. Others may write to the folder (src/base/shared_folder.h), and what this process
// writes can be read by its user alone.
namespace weft::core {

class StateReport {
  struct Key {};

 public:
  struct Source {
    std::function<std::string()> text;   // called on our thread
    std::function<uint32_t()> warnings;  // of waits, so far; likewise
    const Clock* clock = nullptr;        // outlives the report
  };

  static Result<std::unique_ptr<StateReport>> start(const std::string& folder, Source source);
  StateReport(Key, const std::string& folder, Source source);
  ~StateReport();
  StateReport(const StateReport&) = delete;
  StateReport& operator=(const StateReport&) = delete;

 private:
  void run();
  void look();
  void write();
  void rest() const;
  void keepNote();
  void complain(const std::string& file, int error);

  const std::string folder_;
  const std::string file_;  // names there
  const std::string note_;
  const Source source_;
  int64_t askedAt_ = 0;  // when the file was touched last, as far as we know
  uint32_t warnings_ = 0;
  uint32_t looks_ = 0;
  bool complained_ = false;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace weft::core
