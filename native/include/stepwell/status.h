// The result of anything in the core that can fail. Nothing in the core throws on purpose, and nothing aborts: a
// failure is a Status, and the bindings turn it into an exception of stepwell.errors at one place.
#pragma once

#include <string>
#include <utility>

namespace stepwell {

// Persisted nowhere; the bindings map each code to one exception class.
enum class Code : int {
  kOk = 0,
  kInvalid = 1,         // an argument that cannot work            -> ConfigError
  kBudgetTooSmall = 2,  // a budget cannot hold what was asked     -> BudgetTooSmall
  kFull = 3,            // no room left; nothing was changed       -> StoreFull
  kCorrupt = 4,         // a checksum does not match               -> StoreCorrupt
  kIoError = 5,         // the operating system said no            -> StoreIOError
  kDiskFull = 6,        // ENOSPC                                  -> DiskFull
  kLocked = 7,          // another process owns the directory      -> StoreLocked
  kFormat = 8,          // another layout or a newer version       -> StoreFormatError
  kClosed = 9,          // a verb on a closed store                -> StoreClosed
};

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {}

  static Status Ok() { return Status(); }
  bool ok() const { return code_ == Code::kOk; }
  Code code() const { return code_; }
  const std::string& message() const { return message_; }

 private:
  Code code_ = Code::kOk;
  std::string message_;
};

#define STEPWELL_RETURN_IF_ERROR(expression)              \
  do {                                                    \
    ::stepwell::Status status_of_call = (expression);     \
    if (!status_of_call.ok()) return status_of_call;      \
  } while (false)

}  // namespace stepwell
