#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "io/env.h"

namespace stepwell {

Status ErrnoStatus(int error, const std::string& doing, const std::string& path) {
  std::string message = path + ": " + doing + " failed: " + std::strerror(error);
  if (error == ENOSPC || error == EDQUOT) {
    return Status(Code::kDiskFull, message + "; make room on this file system and try again, nothing synced is lost");
  }
  if (error == EACCES || error == EPERM) message += "; give this user access to the path";
  if (error == EMFILE || error == ENFILE) message += "; raise the limit of open files (ulimit -n)";
  return Status(Code::kIoError, message);
}

namespace {

class PosixFile : public File {
 public:
  PosixFile(std::string path, int fd) : File(std::move(path)), fd_(fd) {}
  ~PosixFile() override { close(fd_); }

  Status Pwrite(const void* data, size_t bytes, uint64_t offset) override {
    const auto* p = static_cast<const char*>(data);
    while (bytes > 0) {
      const ssize_t done = pwrite(fd_, p, bytes, static_cast<off_t>(offset));
      if (done < 0 && errno == EINTR) continue;
      if (done <= 0) return ErrnoStatus(done < 0 ? errno : EIO, At("write", bytes, offset), path());
      p += done;
      bytes -= static_cast<size_t>(done);
      offset += static_cast<uint64_t>(done);
    }
    return Status::Ok();
  }

  Status Pread(void* data, size_t bytes, uint64_t offset, size_t* got) override {
    auto* p = static_cast<char*>(data);
    *got = 0;
    while (*got < bytes) {
      const ssize_t done = pread(fd_, p + *got, bytes - *got, static_cast<off_t>(offset + *got));
      if (done < 0 && errno == EINTR) continue;
      if (done < 0) return ErrnoStatus(errno, At("read", bytes, offset), path());
      if (done == 0) break;
      *got += static_cast<size_t>(done);
    }
    return Status::Ok();
  }

  Status Datasync() override {
    return fdatasync(fd_) == 0 ? Status::Ok() : ErrnoStatus(errno, "fdatasync", path());
  }
  Status Truncate(uint64_t bytes) override {
    return ftruncate(fd_, static_cast<off_t>(bytes)) == 0 ? Status::Ok() : ErrnoStatus(errno, "truncate", path());
  }
  Status Allocate(uint64_t bytes) override {
    while (fallocate(fd_, 0, 0, static_cast<off_t>(bytes)) != 0) {
      if (errno == EINTR) continue;
      if (errno == EOPNOTSUPP) return Status::Ok();  // a full disk is then met by the write itself
      return ErrnoStatus(errno, "setting " + std::to_string(bytes) + " bytes aside", path());
    }
    return Status::Ok();
  }
  Status Size(uint64_t* bytes) override {
    struct stat info;
    if (fstat(fd_, &info) != 0) return ErrnoStatus(errno, "fstat", path());
    *bytes = static_cast<uint64_t>(info.st_size);
    return Status::Ok();
  }
  int descriptor() const override { return fd_; }

 private:
  static std::string At(const char* verb, size_t bytes, uint64_t offset) {
    return std::string(verb) + " of " + std::to_string(bytes) + " bytes at offset " + std::to_string(offset);
  }
  const int fd_;
};

class PosixLock : public DirectoryLock {
 public:
  explicit PosixLock(int fd) : fd_(fd) {}
  ~PosixLock() override { close(fd_); }

 private:
  const int fd_;
};

class PosixEnv : public Env {
 public:
  Status Open(const std::string& path, Mode mode, bool direct, std::unique_ptr<File>* file) override {
    int flags = O_CLOEXEC;
    if (mode == Mode::kRead) flags |= O_RDONLY;
    if (mode == Mode::kReadWrite) flags |= O_RDWR;
    if (mode == Mode::kCreate) flags |= O_RDWR | O_CREAT | O_TRUNC;
    if (direct) flags |= O_DIRECT;
    const int fd = open(path.c_str(), flags, 0644);
    if (fd < 0 && errno == EINVAL && direct) {
      return Status(Code::kInvalid, path + ": this file system has no O_DIRECT, so the page cache would be a hidden "
                                           "tier; use another file system, or set direct=False to accept that");
    }
    if (fd < 0) return ErrnoStatus(errno, "open", path);
    file->reset(new PosixFile(path, fd));
    return Status::Ok();
  }
  Status Unlink(const std::string& path) override {
    return unlink(path.c_str()) == 0 ? Status::Ok() : ErrnoStatus(errno, "unlink", path);
  }
  Status Link(const std::string& from, const std::string& to) override {
    if (link(from.c_str(), to.c_str()) == 0) return Status::Ok();
    if (errno == EXDEV) {
      return Status(Code::kInvalid, to + ": lies on another file system than " + from +
                                        ", so it cannot be a hard link; choose a directory beside the store");
    }
    return ErrnoStatus(errno, "link from " + from, to);
  }
  Status Rename(const std::string& from, const std::string& to) override {
    return rename(from.c_str(), to.c_str()) == 0 ? Status::Ok() : ErrnoStatus(errno, "rename to " + to, from);
  }
  Status MakeDirectory(const std::string& path) override {
    if (mkdir(path.c_str(), 0755) == 0) return Status::Ok();
    const int error = errno;
    struct stat info;
    if (error == EEXIST && stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) return Status::Ok();
    return ErrnoStatus(error, "mkdir", path);
  }
  Status SyncDirectory(const std::string& path) override {
    const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return ErrnoStatus(errno, "open", path);
    const int result = fsync(fd);
    const int error = errno;
    close(fd);
    return result == 0 ? Status::Ok() : ErrnoStatus(error, "fsync", path);
  }
  Status List(const std::string& path, std::vector<std::string>* names) override {
    names->clear();
    DIR* directory = opendir(path.c_str());
    if (directory == nullptr) return ErrnoStatus(errno, "opendir", path);
    while (const dirent* entry = readdir(directory)) {
      const std::string name = entry->d_name;
      if (name != "." && name != "..") names->push_back(name);
    }
    closedir(directory);
    std::sort(names->begin(), names->end());
    return Status::Ok();
  }
  bool Exists(const std::string& path) override { return access(path.c_str(), F_OK) == 0; }

  Status Lock(const std::string& path, std::unique_ptr<DirectoryLock>* lock) override {
    const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0) return ErrnoStatus(errno, "open", path);
    auto held = std::make_unique<PosixLock>(fd);
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK) return ErrnoStatus(errno, "flock", path);
      char text[64] = {};
      const ssize_t n = pread(fd, text, sizeof(text) - 1, 0);
      std::string owner(text, n > 0 ? static_cast<size_t>(n) : 0);
      owner.resize(std::min(owner.find('\n'), owner.size()));
      return Status(Code::kLocked, path + ": the directory is in use by process " + (owner.empty() ? "?" : owner) +
                                       " (this is process " + std::to_string(getpid()) +
                                       "); close it there or choose another directory");
    }
    const std::string pid = std::to_string(getpid()) + "\n";
    if (ftruncate(fd, 0) != 0 || pwrite(fd, pid.data(), pid.size(), 0) < 0) {
      if (errno != ENOSPC && errno != EDQUOT) return ErrnoStatus(errno, "write", path);  // the lock itself holds
    }
    *lock = std::move(held);
    return Status::Ok();
  }
};

}  // namespace

Env* Env::Posix() {
  static PosixEnv env;
  return &env;
}

}  // namespace stepwell
