// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <variant>

// The report of a failure on the control path: a Result<T> is a T or an Error, a Status is "fine" or an
// Error. The data path uses neither: it has plain values, and a comm keeps a sticky error. Values; any
// thread.
namespace weft {

// The kind of a failure, for code that decides by it: plugin/guard.h makes an ncclResult_t of it.
enum class Code : uint8_t {
  invalidArgument,  // the caller's fault: a damaged handle, a NULL buffer, a size over the limit
  config,           // the user's settings: a variable with a bad value, a provider that does not exist
  unavailable,      // a library, a device or a feature is not here
  resources,        // a limit of this machine: memory, memlock, descriptors
  system,           // the kernel or the fabric failed on this side
  remote,           // the peer failed or went away
  timeout,          // a deadline passed
  internal,         // ours: a broken invariant
};

// A pointer wide. `operation` names the attempt; `detail` names the object and what the user can do about it.
class Error {
 public:
  // Cold: the compiler keeps the code that leads here apart from the code of success. `errnum`: an errno, 0:
  // none.

  [[gnu::cold]] Error(Code code, std::string operation, std::string detail, int errnum = 0);
  Error(const Error& other) : body_(std::make_unique<Body>(*other.body_)) {}
  Error(Error&&) noexcept = default;
  Error& operator=(Error other) noexcept {
    body_ = std::move(other.body_);
    return *this;
  }

  Code code() const { return body_->code; }
  int errnum() const { return body_->errnum; }
  const std::string& operation() const { return body_->operation; }
  const std::string& detail() const { return body_->detail; }

  // "operation: detail (strerror); what to do about that errno"
  std::string message() const;

 private:
  struct Body {
    Code code;
    int errnum;
    std::string operation;
    std::string detail;
  };
  std::unique_ptr<Body> body_;
};

// A T or an Error. Converts to true where it holds the T; the accessors of the other part must not be called
// then.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  template <class U>
  requires(std::is_convertible_v<U, T> && !std::is_same_v<std::decay_t<U>, Error> &&
           !std::is_same_v<std::decay_t<U>, Result> && !std::is_same_v<std::decay_t<U>, T>) Result(U&& value)
      : state_(std::in_place_index<0>, std::forward<U>(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  explicit operator bool() const { return state_.index() == 0; }
  T& operator*() { return *std::get_if<0>(&state_); }
  const T& operator*() const { return *std::get_if<0>(&state_); }
  T* operator->() { return std::get_if<0>(&state_); }
  const T* operator->() const { return std::get_if<0>(&state_); }
  const Error& error() const { return *std::get_if<1>(&state_); }
  Error takeError() { return std::move(*std::get_if<1>(&state_)); }
  T take() { return std::move(*std::get_if<0>(&state_)); }

 private:
  std::variant<T, Error> state_;
};

// "Fine" is a null pointer.
template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::make_unique<Error>(std::move(error))) {}
  explicit operator bool() const { return !error_; }
  const Error& error() const { return *error_; }
  Error takeError() { return std::move(*error_); }
  void take() {}

 private:
  std::unique_ptr<Error> error_;
};

using Status = Result<void>;

// The one macro that returns: `TRY(auto x, f())` binds the value, `TRY(f())` drops it. Both return an Error
// to the caller.
#define WEFT_TRY_NAME2(line) weftTry##line
#define WEFT_TRY_NAME(line) WEFT_TRY_NAME2(line)
#define WEFT_TRY1(expr)           \
  do {                            \
    auto weftTry = (expr);        \
    if (!weftTry) [[unlikely]]    \
      return weftTry.takeError(); \
  } while (0)
#define WEFT_TRY2(declaration, expr)            \
  auto WEFT_TRY_NAME(__LINE__) = (expr);        \
  if (!WEFT_TRY_NAME(__LINE__)) [[unlikely]]    \
    return WEFT_TRY_NAME(__LINE__).takeError(); \
  declaration = WEFT_TRY_NAME(__LINE__).take()
#define WEFT_TRY_PICK(a, b, name, ...) name
#define TRY(...) WEFT_TRY_PICK(__VA_ARGS__, WEFT_TRY2, WEFT_TRY1, )(__VA_ARGS__)

}  // namespace weft
