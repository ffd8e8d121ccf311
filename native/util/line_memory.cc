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
  return std::min((touched_ + kPage - 1) / kPage * kPage, (bytes_ + kPage - 1) / kPage * kPage) - released_;
}

}  // namespace stepwell
