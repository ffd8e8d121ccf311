// The one door from the core to files. PosixEnv is the system; FaultyEnv (env_faulty.h) wraps another and fails on
// demand. Messages of errors name the path, the offset, the system's reason and what to do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "stepwell/status.h"

namespace stepwell {

inline constexpr size_t kPageBytes = 4096;

// An open file. Safe to use from several threads, except while it is destroyed.
class File {
 public:
  virtual ~File() = default;

  // All bytes or an error. Requires, if opened direct: data, offset and bytes are multiples of 4096.
  virtual Status Pwrite(const void* data, size_t bytes, uint64_t offset) = 0;
  // *got < bytes only at the end of the file. Requires as Pwrite.
  virtual Status Pread(void* data, size_t bytes, uint64_t offset, size_t* got) = 0;
  virtual Status Datasync() = 0;
  virtual Status Truncate(uint64_t bytes) = 0;
  // Sets disk space aside, so that later writes to [0, bytes) do not meet a full disk.
  virtual Status Allocate(uint64_t bytes) = 0;
  virtual Status Size(uint64_t* bytes) = 0;

  // For readers that go around Pread: the descriptor, and the fault they must report instead of a read's result.
  virtual int descriptor() const = 0;
  virtual Status ReadFault(uint64_t /*offset*/, size_t /*bytes*/) { return Status::Ok(); }

  const std::string& path() const { return path_; }

 protected:
  explicit File(std::string path) : path_(std::move(path)) {}

 private:
  const std::string path_;
};

// Held while the object lives.
class DirectoryLock {
 public:
  virtual ~DirectoryLock() = default;
};

class Env {
 public:
  virtual ~Env() = default;

  enum class Mode { kRead, kReadWrite, kCreate };  // kCreate: read and write; an existing file is emptied
  virtual Status Open(const std::string& path, Mode mode, bool direct, std::unique_ptr<File>* file) = 0;
  virtual Status Unlink(const std::string& path) = 0;
  virtual Status Link(const std::string& from, const std::string& to) = 0;
  virtual Status Rename(const std::string& from, const std::string& to) = 0;
  virtual Status MakeDirectory(const std::string& path) = 0;  // no error if it exists
  virtual Status SyncDirectory(const std::string& path) = 0;
  virtual Status List(const std::string& path, std::vector<std::string>* names) = 0;  // without . and ..
  virtual bool Exists(const std::string& path) = 0;
  // kLocked if another holder, in this process or another, has it; the message names the process.
  virtual Status Lock(const std::string& path, std::unique_ptr<DirectoryLock>* lock) = 0;

  static Env* Posix();  // lives as long as the process
};

// kDiskFull for ENOSPC and EDQUOT, else kIoError.
Status ErrnoStatus(int error, const std::string& doing, const std::string& path);

}  // namespace stepwell
