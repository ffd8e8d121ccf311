// Rows of one layout in one reserved range of addresses: row `slot` lies at base + slot * stride, for as long as it
// lives. Memory appears as rows are taken, a little ahead of need, on huge pages when the range is large.
//
// Thread safety: every method may be called from any thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "stepwell/status.h"

namespace stepwell {

class RowArena {
 public:
  // Requires: stride is a multiple of 16; 1 <= max_rows < 2^32.
  static Status Open(uint32_t stride, uint64_t max_rows, std::unique_ptr<RowArena>* arena);
  ~RowArena();
  RowArena(const RowArena&) = delete;
  RowArena& operator=(const RowArena&) = delete;

  std::byte* base() const { return base_; }
  uint32_t stride() const { return stride_; }
  uint64_t max_rows() const { return max_rows_; }
  std::byte* row(uint32_t slot) const { return base_ + static_cast<uint64_t>(slot) * stride_; }

  // Sets n rows aside for a caller who then takes them with Take. False, and nothing set aside, when fewer are left.
  bool Reserve(uint64_t n);
  void Unreserve(uint64_t n);
  uint64_t rows_left() const { return max_rows_ - reserved_.load(); }
  uint64_t rows_taken() const { return reserved_.load(); }

  // Requires: n rows were reserved by the caller and not taken yet. The rows' bytes are undefined.
  void Take(size_t n, uint32_t* slots);
  // Gives rows back (their reservation too).
  void Free(const uint32_t* slots, size_t n);

  // Pins and the dirty mark of a slot. A row may be evicted only when it has no pin.
  void Pin(uint32_t slot);
  // False when the slot had no pin.
  bool Unpin(uint32_t slot, bool dirty);
  bool pinned(uint32_t slot) const { return (marks_[slot].load(std::memory_order_acquire) & kPins) != 0; }
  bool dirty(uint32_t slot) const { return (marks_[slot].load(std::memory_order_acquire) & kDirty) != 0; }
  void SetDirty(uint32_t slot) { marks_[slot].fetch_or(kDirty, std::memory_order_acq_rel); }
  // True if it was dirty.
  bool ClearDirty(uint32_t slot) {
    return (marks_[slot].fetch_and(static_cast<uint8_t>(~kDirty), std::memory_order_acq_rel) & kDirty) != 0;
  }

  // When a step commits: marks a pinned slot dirty and stamped; false if it was stamped already.
  bool Stamp(uint32_t slot) {
    return (marks_[slot].fetch_or(kDirty | kStamped, std::memory_order_acq_rel) & kStamped) == 0;
  }
  // Unpin(slot, false) of a slot that has a pin, and its stamped mark goes.
  void UnpinStamped(uint32_t slot);
  // Both at once, for a slot that its step has pinned once; the row is dirty then, or not.
  void UnpinCommitted(uint32_t slot, bool dirty);
  void AskForMark(uint32_t slot) const { __builtin_prefetch(reinterpret_cast<const char*>(marks_ + slot), 1); }

  size_t bytes_used() const;

 private:
  static constexpr uint8_t kDirty = 0x80;
  static constexpr uint8_t kStamped = 0x40;  // by the step that is committing
  static constexpr uint8_t kPins = 0x3f;     // 63: the count is in many_pins_

  // What a free row holds: the numbers of as many other free rows as fit. Taking a row then rarely waits for memory,
  // as a chain through every free row would.
  struct FreeList {
    uint32_t next;  // the next free row that is a list, or kNone
    uint32_t size;
    uint32_t slots[1];  // as many as the stride holds
  };
  FreeList* list(uint32_t slot) const { return reinterpret_cast<FreeList*>(row(slot)); }
  uint32_t list_capacity() const { return stride_ / 4 - 2; }

  RowArena(uint32_t stride, uint64_t max_rows);
  void Prefault();
  uint64_t BytesAhead(uint64_t used) const;
  bool huge() const { return range_bytes_ >= kHugeFrom; }

  static constexpr uint64_t kHugePage = 2 << 20;
  static constexpr uint64_t kHugeFrom = 64 << 20;

  const uint32_t stride_;
  const uint64_t max_rows_;
  const uint64_t range_bytes_;
  std::byte* base_ = nullptr;
  std::atomic<uint8_t>* marks_ = nullptr;  // one per slot, in a mapped range of its own

  std::atomic<uint64_t> reserved_{0};

  std::mutex mutex_;
  uint32_t free_head_ = kNone;    // guarded by mutex_; the free row that lists others (FreeList), or kNone
  std::atomic<uint64_t> top_{0};  // rows [0, top_) were taken once; written under mutex_
  static constexpr uint32_t kNone = UINT32_MAX;

  std::mutex pins_mutex_;
  std::unordered_map<uint32_t, uint64_t> many_pins_;  // guarded by pins_mutex_: slots with 63 pins and more

  std::mutex prefault_mutex_;
  std::condition_variable prefault_wake_;
  bool stop_ = false;                    // guarded by prefault_mutex_
  std::atomic<uint64_t> prefaulted_{0};  // bytes [0, prefaulted_) of the range were touched
  std::thread prefault_thread_;
};

}  // namespace stepwell
