#include "io/uring.h"

#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "io/env.h"

namespace stepwell {
namespace {

int Setup(uint32_t entries, io_uring_params* params) {
  return static_cast<int>(syscall(__NR_io_uring_setup, entries, params));
}
int Enter(int fd, uint32_t submit, uint32_t wait, uint32_t flags) {
  return static_cast<int>(syscall(__NR_io_uring_enter, fd, submit, wait, flags, nullptr, 0));
}
void* Map(int fd, size_t bytes, uint64_t offset) {
  return mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, static_cast<off_t>(offset));
}
template <class T>
T* At(void* base, uint32_t offset) {
  return reinterpret_cast<T*>(static_cast<char*>(base) + offset);
}

}  // namespace

Status Uring::Create(uint32_t depth, std::unique_ptr<Uring>* ring) {
  std::unique_ptr<Uring> made(new Uring());
  io_uring_params params;
  // Completions need no interrupt of the waiting thread; systems before 5.19 do not know the flag.
  for (const uint32_t flags : {IORING_SETUP_COOP_TASKRUN, 0u}) {
    std::memset(&params, 0, sizeof(params));
    params.flags = flags;
    made->fd_ = Setup(depth, &params);
    if (made->fd_ >= 0 || errno != EINVAL) break;
  }
  if (made->fd_ < 0) {
    return Status(Code::kIoError, std::string("io_uring cannot be used here: ") + std::strerror(errno) +
                                      "; set io='pread' (or 'auto'), or allow the io_uring system calls");
  }
  made->depth_ = depth;
  made->sq_bytes_ = params.sq_off.array + params.sq_entries * sizeof(uint32_t);
  made->cq_bytes_ = params.cq_off.cqes + params.cq_entries * sizeof(io_uring_cqe);
  made->sqe_bytes_ = params.sq_entries * sizeof(io_uring_sqe);
  made->sq_memory_ = Map(made->fd_, made->sq_bytes_, IORING_OFF_SQ_RING);
  made->cq_memory_ = Map(made->fd_, made->cq_bytes_, IORING_OFF_CQ_RING);
  void* sqes = Map(made->fd_, made->sqe_bytes_, IORING_OFF_SQES);
  made->sqes_ = sqes == MAP_FAILED ? nullptr : static_cast<io_uring_sqe*>(sqes);
  if (made->sq_memory_ == MAP_FAILED || made->cq_memory_ == MAP_FAILED || made->sqes_ == nullptr) {
    return Status(Code::kIoError, "io_uring's queues cannot be mapped; raise the limit of locked memory (ulimit -l) "
                                  "or set io='pread'");
  }
  made->sq_tail_ = At<std::atomic<uint32_t>>(made->sq_memory_, params.sq_off.tail);
  made->sq_mask_ = *At<uint32_t>(made->sq_memory_, params.sq_off.ring_mask);
  made->sq_array_ = At<uint32_t>(made->sq_memory_, params.sq_off.array);
  made->cq_head_ = At<std::atomic<uint32_t>>(made->cq_memory_, params.cq_off.head);
  made->cq_tail_ = At<std::atomic<uint32_t>>(made->cq_memory_, params.cq_off.tail);
  made->cq_mask_ = *At<uint32_t>(made->cq_memory_, params.cq_off.ring_mask);
  made->cqes_ = At<io_uring_cqe>(made->cq_memory_, params.cq_off.cqes);
  *ring = std::move(made);
  return Status::Ok();
}

Uring::~Uring() {
  if (sq_memory_ != nullptr && sq_memory_ != MAP_FAILED) munmap(sq_memory_, sq_bytes_);
  if (cq_memory_ != nullptr && cq_memory_ != MAP_FAILED) munmap(cq_memory_, cq_bytes_);
  if (sqes_ != nullptr) munmap(sqes_, sqe_bytes_);
  if (fd_ >= 0) close(fd_);
}

void Uring::QueueRead(int fd, void* data, uint32_t bytes, uint64_t offset, uint64_t tag) {
  const uint32_t tail = sq_tail_->load(std::memory_order_relaxed);
  const uint32_t at = tail & sq_mask_;
  io_uring_sqe& sqe = sqes_[at];
  std::memset(&sqe, 0, sizeof(sqe));
  sqe.opcode = IORING_OP_READ;
  sqe.fd = fd;
  sqe.addr = reinterpret_cast<uint64_t>(data);
  sqe.len = bytes;
  sqe.off = offset;
  sqe.user_data = tag;
  sq_array_[at] = at;
  sq_tail_->store(tail + 1, std::memory_order_release);
  ++queued_;
}

Status Uring::Submit(uint32_t wait) {
  while (queued_ > 0 || wait > 0) {
    const uint32_t ready = cq_tail_->load(std::memory_order_acquire) - cq_head_->load(std::memory_order_relaxed);
    if (queued_ == 0 && ready >= wait) break;
    const int submitted = Enter(fd_, queued_, wait, wait > 0 ? IORING_ENTER_GETEVENTS : 0);
    if (submitted < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EBUSY) {  // short of memory, or results must be taken first
        if (ready > 0) return Status::Ok();
        continue;
      }
      return ErrnoStatus(errno, "io_uring_enter", "io_uring");
    }
    queued_ -= static_cast<uint32_t>(submitted);
  }
  return Status::Ok();
}

bool Uring::Take(uint64_t* tag, int32_t* result) {
  const uint32_t head = cq_head_->load(std::memory_order_relaxed);
  if (head == cq_tail_->load(std::memory_order_acquire)) return false;
  const io_uring_cqe& cqe = cqes_[head & cq_mask_];
  *tag = cqe.user_data;
  *result = cqe.res;
  cq_head_->store(head + 1, std::memory_order_release);
  return true;
}

}  // namespace stepwell
