// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "weft/result.h"

#include <cstring>

// The text of an error.
namespace weft {

namespace {

// strerror is not thread-safe. This is glibc's strerror_r (strerror(3)), which may return a text of its own.
std::string errnoText(int errnum) {
  char buffer[128] = "";
  return strerror_r(errnum, buffer, sizeof buffer);
}

}  // namespace

Error::Error(Code code, std::string operation, std::string detail, int errnum)
    : body_(std::make_unique<Body>(Body{code, errnum, std::move(operation), std::move(detail)})) {}

std::string Error::message() const {
  std::string text = body_->operation;
  if (!body_->detail.empty()) text += ": " + body_->detail;
  if (body_->errnum != 0) text += " (" + errnoText(body_->errnum) + ")";
  return text;
}

}  // namespace weft
