// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <atomic>
#include <memory>

#include "src/coll/out_of_band.h"
#include "src/coll/sharp_library.h"

// A group's reservation in the switches: libsharp_coll's context and a communicator of all ranks. The SHARP
// backend owns it. The library may be called from several threads.
namespace weft::coll {

class SharpJob {
 public:
  // All ranks call it. It blocks, and ends within a few of the mesh's timeouts. A rank that fails makes the
  // others fail. `mesh` must outlive the job.
  static Result<std::unique_ptr<SharpJob>> open(Mesh& mesh, std::shared_ptr<const SharpLibrary> library);
  ~SharpJob();  // does not wait for the other ranks
  SharpJob(const SharpJob&) = delete;
  SharpJob& operator=(const SharpJob&) = delete;

  // Ends the job's operations: nothing that was begun writes to memory any more, and the memory may go.
  void closeComm();
  // Ends the job together with the other ranks, which may be gone: each step waits half a second at most.
  void close();

  const SharpLibrary& library() const { return *library_; }
  sharp::Context* context() const { return context_; }
  sharp::Comm* comm() const { return comm_; }
  // True: the switches do the operation. False: the ranks have to. The answer is the same on all ranks, since
  // their capabilities were compared.
  bool does(const Operation& operation) const;
  bool streams() const;          // gathers and scatters, too
  std::string describe() const;  // the text that the ranks compare

  // Whether the switches of every job of this process reduce so; before there is a job, whether all switches
  // do that have been built. Any thread.
  static bool reduces(ElementType type, ReduceOp op);

  SharpJob(Mesh& mesh, std::shared_ptr<const SharpLibrary> library);

 private:
  // The steps of open(). end() undoes the steps that were done.
  Status start(Mesh& mesh);
  void end(Milliseconds patience);

  std::shared_ptr<const SharpLibrary> library_;
  OutOfBand outOfBand_;
  std::string devices_;  // the library may keep the pointer
  sharp::Context* context_ = nullptr;
  sharp::Comm* comm_ = nullptr;
  sharp::Capabilities capabilities_{};
};

// The library's number; none: the library does not know it.
std::optional<sharp::DataType> sharpType(ElementType type);
std::optional<sharp::ReduceOperation> sharpOperation(ReduceOp op);

}  // namespace weft::coll
