// Zeroed memory for an index's lines, with its bytes counted. Small arrays come from the heap. Large ones are mapped:
// pages appear as they are needed and a prefix can be handed back early, so that an array that replaces another in
// the same order never stands beside it in full.
//
// Pages appear by Touch, written and a few at a time. A page that is read first is the system's page of zeros, and
// writing it later costs a second fault and an interrupt of every other processor the process runs on: half of the
// time of 2M upserts on two cores.
#pragma once

#include <cstddef>
#include <cstdint>

namespace stepwell {

class LineMemory {
 public:
  LineMemory() = default;
  ~LineMemory() { Free(); }
  LineMemory(LineMemory&& other) noexcept { *this = static_cast<LineMemory&&>(other); }
  LineMemory& operator=(LineMemory&& other) noexcept;
  LineMemory(const LineMemory&) = delete;
  LineMemory& operator=(const LineMemory&) = delete;

  // False when the system has no memory; the object is then empty.
  bool Allocate(size_t bytes);
  void Free();

  std::byte* data() const { return data_; }
  bool empty() const { return data_ == nullptr; }

  // Bytes [0, end) are about to be read and written. Cheap; call it before every access that may be the first.
  void Touch(size_t end) {
    if (end > touched_) Populate(end);
  }
  // Bytes [begin, end) are not needed any more; whole pages in them go back to the system.
  void Release(size_t begin, size_t end);

  // What the array takes now: pages touched and not released.
  size_t bytes_used() const;

 private:
  void Populate(size_t end);

  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
  size_t touched_ = 0;  // where mapped: whole pages, all there
  size_t released_ = 0;
  size_t released_end_ = 0;
  bool mapped_ = false;
};

}  // namespace stepwell
