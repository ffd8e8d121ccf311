#include "util/line_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace stepwell {

namespace {
constexpr size_t kMapFrom = 64 << 10;      // below, the heap: a mapping would waste up to a page
constexpr size_t kHugeFrom = 64 << 20;     // from here on half-used huge pages are under 4% of the array
constexpr size_t kReleaseStep = 64 << 10;  // hand back in steps that pay for the system call
constexpr size_t kPopulateStep = 64 << 10;  // at most, and at most a 64th of the array beyond a page
constexpr size_t kPage = 4096;
constexpr size_t kLine = 128;
}  // namespace

LineMemory& LineMemory::operator=(LineMemory&& other) noexcept {
  if (this != &other) {
    Free();
    data_ = std::exchange(other.data_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
    touched_ = std::exchange(other.touched_, 0);
    released_ = std::exchange(other.released_, 0);
    released_end_ = std::exchange(other.released_end_, 0);
    mapped_ = other.mapped_;
  }
  return *this;
}

bool LineMemory::Allocate(size_t bytes) {
  Free();
  mapped_ = bytes >= kMapFrom;
  if (mapped_) {
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return false;
    if (bytes >= kHugeFrom) madvise(memory, bytes, MADV_HUGEPAGE);
    data_ = static_cast<std::byte*>(memory);
  } else {
    data_ = static_cast<std::byte*>(std::aligned_alloc(kLine, (bytes + kLine - 1) / kLine * kLine));
    if (data_ == nullptr) return false;
    std::memset(data_, 0, bytes);
  }
  bytes_ = bytes;
  return true;
}

void LineMemory::Free() {
  if (data_ == nullptr) return;
  if (mapped_) {
    munmap(data_, bytes_);
  } else {
    std::free(data_);
  }
  data_ = nullptr;
  bytes_ = touched_ = released_ = released_end_ = 0;
}

void LineMemory::Populate(size_t end) {
  if (!mapped_) {
    touched_ = end;
    return;
  }
  const size_t pages_end = (bytes_ + kPage - 1) / kPage * kPage;
  end = std::min((end + std::min(kPopulateStep, bytes_ / 64) + kPage - 1) / kPage * kPage, pages_end);
#if defined(MADV_POPULATE_WRITE)
  const bool there = madvise(data_ + touched_, end - touched_, MADV_POPULATE_WRITE) == 0;
#else
  const bool there = false;
#endif
  // Before Linux 5.14: a zero written to a page of zeros, which nobody has read or written yet.
  for (size_t at = touched_; !there && at < end; at += kPage) *reinterpret_cast<volatile char*>(data_ + at) = 0;
  touched_ = end;
}

void LineMemory::Release(size_t begin, size_t end) {
  if (!mapped_) return;
  begin = std::max((begin + kPage - 1) / kPage * kPage, released_end_);
  end = end / kPage * kPage;
  if (end < begin + kReleaseStep) return;
  madvise(data_ + begin, end - begin, MADV_DONTNEED);
  released_ += end - begin;
  released_end_ = end;
}

size_t LineMemory::bytes_used() const {
  if (!mapped_) return bytes_;
  return touched_ - released_;
}

}  // namespace stepwell
