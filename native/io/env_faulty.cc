#include "io/env_faulty.h"

#include <algorithm>

namespace stepwell {
namespace {

class FaultyFile : public File {
 public:
  FaultyFile(FaultyEnv* env, std::unique_ptr<File> inner)
      : File(inner->path()), env_(env), inner_(std::move(inner)) {}

  Status Pwrite(const void* data, size_t bytes, uint64_t offset) override {
    Fault fault;
    Status status = env_->Check(FaultOp::kWrite, path(), "write at offset " + std::to_string(offset), &fault);
    if (status.ok()) return inner_->Pwrite(data, bytes, offset);
    const size_t part = std::min(fault.short_bytes, bytes) / kPageBytes * kPageBytes;
    if (part > 0) STEPWELL_RETURN_IF_ERROR(inner_->Pwrite(data, part, offset));
    return status;
  }
  Status Pread(void* data, size_t bytes, uint64_t offset, size_t* got) override {
    STEPWELL_RETURN_IF_ERROR(ReadFault(offset, bytes));
    return inner_->Pread(data, bytes, offset, got);
  }
  Status Datasync() override {
    STEPWELL_RETURN_IF_ERROR(env_->Check(FaultOp::kSync, path(), "fdatasync"));
    return inner_->Datasync();
  }
  Status Truncate(uint64_t bytes) override {
    STEPWELL_RETURN_IF_ERROR(env_->Check(FaultOp::kTruncate, path(), "truncate"));
    return inner_->Truncate(bytes);
  }
  Status Allocate(uint64_t bytes) override {
    STEPWELL_RETURN_IF_ERROR(
        env_->Check(FaultOp::kAllocate, path(), "setting " + std::to_string(bytes) + " bytes aside"));
    return inner_->Allocate(bytes);
  }
  Status Size(uint64_t* bytes) override { return inner_->Size(bytes); }
  int descriptor() const override { return inner_->descriptor(); }
  Status ReadFault(uint64_t offset, size_t bytes) override {
    return env_->Check(FaultOp::kRead, path(),
                       "read of " + std::to_string(bytes) + " bytes at offset " + std::to_string(offset));
  }

 private:
  FaultyEnv* const env_;
  const std::unique_ptr<File> inner_;
};

}  // namespace

int FaultyEnv::Add(const Fault& fault) {
  std::lock_guard<std::mutex> lock(mutex_);
  faults_[next_] = fault;
  any_ = true;
  return next_++;
}

void FaultyEnv::Remove(int number) {
  std::lock_guard<std::mutex> lock(mutex_);
  faults_.erase(number);
  any_ = !faults_.empty();
}

void FaultyEnv::Clear() {
  std::lock_guard<std::mutex> lock(mutex_);
  faults_.clear();
  any_ = false;
}

Status FaultyEnv::Check(FaultOp op, const std::string& path, const std::string& doing, Fault* fault) {
  if (!any_.load()) return Status::Ok();
  std::lock_guard<std::mutex> lock(mutex_);
  for (auto& [number, rule] : faults_) {
    if (rule.op != op || path.find(rule.path_contains) == std::string::npos) continue;
    if (rule.skip > 0) {
      --rule.skip;
      continue;
    }
    if (rule.times == 0) continue;
    if (rule.times != UINT64_MAX) --rule.times;
    ++num_failed_;
    if (fault != nullptr) *fault = rule;
    return ErrnoStatus(rule.error, doing, path);
  }
  return Status::Ok();
}

Status FaultyEnv::Open(const std::string& path, Mode mode, bool direct, std::unique_ptr<File>* file) {
  STEPWELL_RETURN_IF_ERROR(Check(FaultOp::kOpen, path, "open"));
  std::unique_ptr<File> inner;
  STEPWELL_RETURN_IF_ERROR(inner_->Open(path, mode, direct, &inner));
  file->reset(new FaultyFile(this, std::move(inner)));
  return Status::Ok();
}
Status FaultyEnv::Unlink(const std::string& path) {
  STEPWELL_RETURN_IF_ERROR(Check(FaultOp::kUnlink, path, "unlink"));
  return inner_->Unlink(path);
}
Status FaultyEnv::Link(const std::string& from, const std::string& to) {
  STEPWELL_RETURN_IF_ERROR(Check(FaultOp::kLink, to, "link from " + from));
  return inner_->Link(from, to);
}
Status FaultyEnv::Rename(const std::string& from, const std::string& to) {
  STEPWELL_RETURN_IF_ERROR(Check(FaultOp::kRename, from, "rename to " + to));
  return inner_->Rename(from, to);
}
Status FaultyEnv::SyncDirectory(const std::string& path) {
  STEPWELL_RETURN_IF_ERROR(Check(FaultOp::kSync, path, "fsync"));
  return inner_->SyncDirectory(path);
}

}  // namespace stepwell
