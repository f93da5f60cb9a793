// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "weft/result.h"

#include "src/base/advice.h"

// The text of an error.
namespace weft {

Error::Error(Code code, std::string operation, std::string detail, int errnum)
    : body_(std::make_unique<Body>(Body{code, errnum, std::move(operation), std::move(detail)})) {}

std::string Error::message() const {
  std::string text = body_->operation;
  if (!body_->detail.empty()) text += ": " + body_->detail;
  if (body_->errnum == 0) return text;
  text += " (" + errnoText(body_->errnum) + ")";
  const std::string step = nextStep(body_->errnum);
  if (!step.empty() && body_->detail.find(step) == std::string::npos) text += "; " + step;
  return text;
}

}  // namespace weft
