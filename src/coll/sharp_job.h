// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <atomic>
#include <memory>

#include "src/coll/out_of_band.h"
#include "src/coll/sharp_library.h"

// A group's reservation in the switches: libsharp_coll's context with one communicator of all its ranks.
namespace weft::coll {

class SharpJob {
 public:
  // Blocks, and ends within some of the mesh's timeouts: all ranks call it. A rank that fails makes the
  // others fail. `mesh` must outlive it.
  static Result<std::unique_ptr<SharpJob>> open(Mesh& mesh, std::shared_ptr<const SharpLibrary> library);
  ~SharpJob();
  SharpJob(const SharpJob&) = delete;
  SharpJob& operator=(const SharpJob&) = delete;

  const SharpLibrary& library() const { return *library_; }
  sharp::Context* context() const { return context_; }
  sharp::Comm* comm() const { return comm_; }
  // True: the switches do the operation. False: the ranks have to.
  bool does(const Operation& operation) const;
  std::string describe() const;  // equal on all ranks of one fabric

  SharpJob(Mesh& mesh, std::shared_ptr<const SharpLibrary> library);

 private:
  Status start(Mesh& mesh);

  std::shared_ptr<const SharpLibrary> library_;
  OutOfBand outOfBand_;
  std::string devices_;  // which the library may keep
  sharp::Context* context_ = nullptr;
  sharp::Comm* comm_ = nullptr;
  sharp::Capabilities capabilities_{};
};

// Of the library; none: it has none such.
std::optional<sharp::DataType> sharpType(ElementType type);
std::optional<sharp::ReduceOperation> sharpOperation(ReduceOp op);

}  // namespace weft::coll
