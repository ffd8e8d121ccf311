#include "dram/row_arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

namespace stepwell {

namespace {

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

constexpr uint64_t kPage = 4096;
constexpr uint64_t kLeastAhead = 2 << 20;
constexpr uint64_t kMostAhead = 16 << 20;  // 16 MiB: what 50k rows of 272 bytes take, the largest burst we smooth

uint64_t RoundUp(uint64_t value, uint64_t unit) { return (value + unit - 1) / unit * unit; }

void* MapRange(uint64_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

// Kernels before 5.14 cannot populate a range; an atomic "or 0" touches a page without changing what another thread
// may be writing there.
void Populate(std::byte* begin, uint64_t bytes) {
  if (madvise(begin, bytes, MADV_POPULATE_WRITE) == 0) return;
  for (uint64_t at = 0; at < bytes; at += kPage) {
    __atomic_fetch_or(reinterpret_cast<unsigned char*>(begin + at), 0, __ATOMIC_RELAXED);
  }
}

}  // namespace

RowArena::RowArena(uint32_t stride, uint64_t max_rows)
    : stride_(stride), max_rows_(max_rows), range_bytes_(RoundUp(stride * max_rows, kPage)) {}

Status RowArena::Open(uint32_t stride, uint64_t max_rows, std::unique_ptr<RowArena>* arena) {
  std::unique_ptr<RowArena> opened(new RowArena(stride, max_rows));
  // One huge page more, so that the base can be aligned to one.
  void* range = MapRange(opened->range_bytes_ + kHugePage);
  void* marks = MapRange(RoundUp(max_rows, kPage));
  if (range != nullptr) {
    const uint64_t start = reinterpret_cast<uint64_t>(range);
    const uint64_t aligned = RoundUp(start, kHugePage);
    if (aligned > start) munmap(range, aligned - start);
    munmap(reinterpret_cast<void*>(aligned + opened->range_bytes_), start + kHugePage - aligned);
    opened->base_ = reinterpret_cast<std::byte*>(aligned);
  }
  opened->marks_ = static_cast<std::atomic<uint8_t>*>(marks);
  if (range == nullptr || marks == nullptr) {
    return Status(Code::kFull, "could not reserve " + std::to_string(opened->range_bytes_) +
                                   " bytes of addresses for rows: " + std::strerror(errno) +
                                   "; lower the DRAM tier's budget_bytes or raise the address-space limit (ulimit -v)");
  }
  if (opened->huge()) {
    madvise(opened->base_, opened->range_bytes_, MADV_HUGEPAGE);
    opened->prefault_thread_ = std::thread([raw = opened.get()] { raw->Prefault(); });
  }
  *arena = std::move(opened);
  return Status::Ok();
}

RowArena::~RowArena() {
  if (prefault_thread_.joinable()) {
    {
      std::lock_guard<std::mutex> lock(prefault_mutex_);
      stop_ = true;
    }
    prefault_wake_.notify_all();
    prefault_thread_.join();
  }
  if (base_ != nullptr) munmap(base_, range_bytes_);
  if (marks_ != nullptr) munmap(static_cast<void*>(marks_), RoundUp(max_rows_, kPage));
}

bool RowArena::Reserve(uint64_t n) {
  uint64_t reserved = reserved_.load();
  while (reserved + n <= max_rows_) {
    if (reserved_.compare_exchange_weak(reserved, reserved + n)) return true;
  }
  return false;
}

void RowArena::Unreserve(uint64_t n) { reserved_.fetch_sub(n); }

void RowArena::Take(size_t n, uint32_t* slots) {
  uint64_t top;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    size_t taken = 0;
    for (; taken < n && free_head_ != kNone; ++taken) {
      FreeList* head = list(free_head_);
      if (head->size > 0) {
        slots[taken] = (&head->slots[0])[--head->size];
      } else {
        slots[taken] = free_head_;
        free_head_ = head->next;
      }
    }
    top = top_.load(std::memory_order_relaxed);
    for (; taken < n; ++taken) slots[taken] = static_cast<uint32_t>(top++);
    top_.store(top, std::memory_order_release);
  }
  if (!huge()) return;
  const uint64_t used = top * stride_;
  if (used + BytesAhead(used) / 2 > prefaulted_.load(std::memory_order_relaxed)) prefault_wake_.notify_one();
}

void RowArena::Free(const uint32_t* slots, size_t n) {
  if (n == 0) return;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    for (size_t i = 0; i < n; ++i) {
      marks_[slots[i]].store(0, std::memory_order_release);
      if (free_head_ != kNone && list(free_head_)->size < list_capacity()) {
        FreeList* head = list(free_head_);
        (&head->slots[0])[head->size++] = slots[i];
        continue;
      }
      FreeList* head = list(slots[i]);
      head->next = free_head_;
      head->size = 0;
      free_head_ = slots[i];
    }
  }
  Unreserve(n);
}

// The step from 62 pins to 63 and back is made under pins_mutex_ only, so that the mark and the map agree.
void RowArena::Pin(uint32_t slot) {
  uint8_t mark = marks_[slot].load(std::memory_order_relaxed);
  while ((mark & kPins) < kPins - 1) {
    if (marks_[slot].compare_exchange_weak(mark, mark + 1, std::memory_order_acq_rel)) return;
  }
  std::lock_guard<std::mutex> lock(pins_mutex_);
  mark = marks_[slot].load(std::memory_order_relaxed);
  while ((mark & kPins) != kPins) {
    const bool last = (mark & kPins) == kPins - 1;
    if (!marks_[slot].compare_exchange_weak(mark, mark + 1, std::memory_order_acq_rel)) continue;
    if (last) many_pins_[slot] = kPins;
    return;
  }
  ++many_pins_[slot];
}

bool RowArena::Unpin(uint32_t slot, bool dirty) {
  if (dirty) SetDirty(slot);
  uint8_t mark = marks_[slot].load(std::memory_order_relaxed);
  while ((mark & kPins) != kPins) {
    if ((mark & kPins) == 0) return false;
    if (marks_[slot].compare_exchange_weak(mark, mark - 1, std::memory_order_acq_rel)) return true;
  }
  std::lock_guard<std::mutex> lock(pins_mutex_);
  mark = marks_[slot].load(std::memory_order_relaxed);
  while ((mark & kPins) != kPins) {
    if ((mark & kPins) == 0) return false;
    if (marks_[slot].compare_exchange_weak(mark, mark - 1, std::memory_order_acq_rel)) return true;
  }
  auto count = many_pins_.find(slot);
  if (--count->second < kPins) {
    many_pins_.erase(count);
    marks_[slot].fetch_sub(1, std::memory_order_acq_rel);
  }
  return true;
}

void RowArena::UnpinStamped(uint32_t slot) {
  uint8_t mark = marks_[slot].load(std::memory_order_relaxed);
  while ((mark & kPins) != kPins) {
    const uint8_t unpinned = static_cast<uint8_t>((mark - 1) & ~kStamped);
    if (marks_[slot].compare_exchange_weak(mark, unpinned, std::memory_order_acq_rel)) return;
  }
  marks_[slot].fetch_and(static_cast<uint8_t>(~kStamped), std::memory_order_acq_rel);
  (void)Unpin(slot, false);
}

void RowArena::UnpinCommitted(uint32_t slot, bool dirty) {
  uint8_t mark = marks_[slot].load(std::memory_order_relaxed);
  while ((mark & kPins) != kPins) {
    const uint8_t unpinned = static_cast<uint8_t>((mark - 1) & kPins) | (dirty ? kDirty : uint8_t{0});
    if (marks_[slot].compare_exchange_weak(mark, unpinned, std::memory_order_acq_rel)) return;
  }
  if (!dirty) (void)ClearDirty(slot);
  (void)Unpin(slot, dirty);
}

uint64_t RowArena::BytesAhead(uint64_t used) const {
  return std::clamp(used / 256 / kHugePage * kHugePage, kLeastAhead, kMostAhead);
}

void RowArena::Prefault() {
  std::unique_lock<std::mutex> lock(prefault_mutex_);
  while (!stop_) {
    const uint64_t used = top_.load(std::memory_order_acquire) * stride_;
    const uint64_t want = std::min(RoundUp(used + (used == 0 ? 0 : BytesAhead(used)), kHugePage), range_bytes_);
    const uint64_t have = prefaulted_.load(std::memory_order_relaxed);
    if (want <= have) {
      prefault_wake_.wait(lock);
      continue;
    }
    lock.unlock();
    const uint64_t step = std::min(want - have, kHugePage);
    if (have + step > used) Populate(base_ + have, step);  // else its rows have touched it themselves
    prefaulted_.store(have + step, std::memory_order_relaxed);
    lock.lock();
  }
}

size_t RowArena::bytes_used() const {
  const uint64_t top = top_.load(std::memory_order_acquire);
  const uint64_t rows = RoundUp(top * stride_, huge() ? kHugePage : kPage);
  return std::min(std::max(rows, prefaulted_.load(std::memory_order_relaxed)), RoundUp(range_bytes_, kHugePage)) +
         RoundUp(top, kPage);
}

}  // namespace stepwell
