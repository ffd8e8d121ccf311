// One io_uring, by its system calls: a queue of reads. Used by one thread at a time.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "stepwell/status.h"

struct io_uring_sqe;
struct io_uring_cqe;

namespace stepwell {

class Uring {
 public:
  // kIoError where the system has no io_uring or does not allow it; the message says which.
  static Status Create(uint32_t depth, std::unique_ptr<Uring>* ring);
  ~Uring();

  uint32_t depth() const { return depth_; }

  // Requires: fewer than depth() reads are queued or in flight.
  void QueueRead(int fd, void* data, uint32_t bytes, uint64_t offset, uint64_t tag);
  // Hands queued reads to the system and waits until at least `wait` reads are finished.
  Status Submit(uint32_t wait);
  // A finished read: its tag, and the bytes read or -errno. False when there is none.
  bool Take(uint64_t* tag, int32_t* result);

 private:
  Uring() = default;

  int fd_ = -1;
  uint32_t depth_ = 0;
  uint32_t queued_ = 0;
  void* sq_memory_ = nullptr;
  void* cq_memory_ = nullptr;
  size_t sq_bytes_ = 0, cq_bytes_ = 0, sqe_bytes_ = 0;
  io_uring_sqe* sqes_ = nullptr;
  io_uring_cqe* cqes_ = nullptr;
  std::atomic<uint32_t>*sq_tail_ = nullptr, *cq_head_ = nullptr, *cq_tail_ = nullptr;
  uint32_t* sq_array_ = nullptr;
  uint32_t sq_mask_ = 0, cq_mask_ = 0;
};

}  // namespace stepwell
