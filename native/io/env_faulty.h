// An Env that wraps another and fails on demand, for tests of what must survive a bad disk. Thread-safe; rules may be
// set and cleared at any time, for files that are already open too.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "io/env.h"

namespace stepwell {

enum class FaultOp : int {
  kOpen = 0, kRead = 1, kWrite = 2, kSync = 3, kAllocate = 4, kUnlink = 5, kLink = 6, kRename = 7, kTruncate = 8,
};

struct Fault {
  FaultOp op = FaultOp::kRead;
  std::string path_contains;    // empty: every path
  int error = 5;                // an errno: EIO, ENOSPC, ...
  uint64_t skip = 0;            // matching calls that still succeed
  uint64_t times = UINT64_MAX;  // calls that fail after those
  size_t short_bytes = 0;       // kWrite: so many bytes (whole pages) reach the file before the error
};

class FaultyEnv : public Env {
 public:
  // Requires: inner outlives this, and this outlives every file it opened.
  explicit FaultyEnv(Env* inner = Env::Posix()) : inner_(inner) {}

  int Add(const Fault& fault);  // a number for Remove
  void Remove(int number);
  void Clear();
  uint64_t num_failed() const { return num_failed_.load(); }

  Status Open(const std::string& path, Mode mode, bool direct, std::unique_ptr<File>* file) override;
  Status Unlink(const std::string& path) override;
  Status Link(const std::string& from, const std::string& to) override;
  Status Rename(const std::string& from, const std::string& to) override;
  Status MakeDirectory(const std::string& path) override { return inner_->MakeDirectory(path); }
  Status SyncDirectory(const std::string& path) override;
  Status List(const std::string& path, std::vector<std::string>* names) override { return inner_->List(path, names); }
  bool Exists(const std::string& path) override { return inner_->Exists(path); }
  Status Lock(const std::string& path, std::unique_ptr<DirectoryLock>* lock) override {
    return inner_->Lock(path, lock);
  }

  // Ok, or the fault that the call must report. *fault may be nullptr.
  Status Check(FaultOp op, const std::string& path, const std::string& doing, Fault* fault = nullptr);

 private:
  Env* const inner_;
  std::mutex mutex_;
  std::map<int, Fault> faults_;  // guarded by mutex_
  int next_ = 0;                 // guarded by mutex_
  std::atomic<uint64_t> num_failed_{0};
  std::atomic<bool> any_{false};
};

}  // namespace stepwell
