// Segment: one file of the log, and SegmentTable: from a location in the index to its segment. Also Readers, which
// keep segments alive while batches read them.
//
// A location is slot * max_places + place. Slots are given out round robin, so a location comes back only after the
// whole range was used once.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "io/aligned.h"
#include "io/env.h"
#include "ssd/format.h"

namespace stepwell::ssd {

// A buffer of whole blocks of an open segment.
struct Chunk {
  AlignedBytes data;
};

// What a sealed segment holds of one table: bounds over all its records, live or not.
struct TableSteps {
  uint32_t table = 0;
  uint32_t records = 0;
  uint32_t min_step = UINT32_MAX;
  uint32_t max_step = 0;
};

struct Segment {
  // Constant once the segment is in the table.
  SegmentHeader header{};
  uint32_t slot = 0;
  std::unique_ptr<File> file;

  // Index entries that point here; changed under the lock of the entry's shard.
  std::atomic<uint32_t> live{0};
  // The highest seq that took a live record away; set under that same lock.
  std::atomic<uint64_t> dead_seq{0};
  std::atomic<uint32_t> tombstones{0};
  std::atomic<uint64_t> max_tombstone_seq{0};
  std::atomic<uint32_t> places{0};
  std::atomic<uint64_t> disk_bytes{0};

  // Set once, when the footer is written; what follows is constant from then on.
  std::atomic<bool> sealed{false};
  uint64_t min_seq = 0, max_seq = 0;
  uint64_t records = 0;  // tombstones included
  std::vector<TableSteps> steps;

  // Compaction's: a page of it cannot be read, so it stays as it is until repair.
  std::atomic<bool> damaged{false};
  std::atomic<bool> retired{false};  // waits for deletion: no index entry points to it
  bool has_void = false;             // holds records that were not synced before a crash

  // While it is open: blocks below are in the file, the others in `chunks`.
  std::atomic<uint32_t> written_blocks{0};
  std::mutex chunk_mutex;
  std::vector<std::pair<uint32_t, std::shared_ptr<Chunk>>> chunks;  // by chunk number; guarded by chunk_mutex
  std::shared_ptr<std::vector<FooterEntry>> entries;                // guarded by chunk_mutex; null once sealed

  uint64_t number() const { return header.number; }
  const std::string& path() const { return file->path(); }
};

// Reads the footer of a sealed segment. Bad footer pages are an error; Log::LoadEntries has the fallback.
Status ReadFooter(const Geometry& geometry, Segment& segment, std::vector<FooterEntry>* entries);
Status ReadTrailer(File& file, uint64_t number, SegmentTrailer* trailer);
// Writes footer and trailer after the blocks of `entries.size()` places and cuts the file to its length; fills the
// segment's min_seq, max_seq and steps. May be called again after an error.
Status WriteFooter(const Geometry& geometry, Segment& segment, const std::vector<FooterEntry>& entries);
// Writes the first page.
Status WriteHeader(File& file, const SegmentHeader& header);
// Fills what is known from the entries: steps, seqs, tombstones, places.
void Summarize(const std::vector<FooterEntry>& entries, Segment* segment);

class SegmentTable {
 public:
  explicit SegmentTable(uint32_t max_places) : num_slots_(NumSlots(max_places)), max_places_(max_places) {}
  ~SegmentTable();

  uint32_t max_places() const { return max_places_; }
  Segment* At(uint32_t location) const { return AtSlot(location / max_places_); }
  uint32_t PlaceOf(uint32_t location) const { return location % max_places_; }
  Segment* AtSlot(uint32_t slot) const {
    const std::atomic<Segment*>* group = groups_[slot / kGroup].load(std::memory_order_acquire);
    return group[slot % kGroup].load(std::memory_order_acquire);
  }
  uint32_t Location(const Segment& segment, uint32_t place) const { return segment.slot * max_places_ + place; }

  // Gives the segment a slot. kFull when every location is taken.
  Status Add(std::shared_ptr<Segment> segment);
  // Taking one out, in two steps: it is no longer in All(), and, when no reader can hold a location in it any more,
  // its slot may be used again. Show undoes the first.
  void Hide(const Segment& segment);
  void Show(std::shared_ptr<Segment> segment);
  void FreeSlot(const Segment& segment);
  std::vector<std::shared_ptr<Segment>> All() const;  // by number
  uint64_t NewNumber() { return next_number_.fetch_add(1); }
  void ReserveNumbers(uint64_t below);
  uint64_t next_number() const { return next_number_.load(); }

 private:
  static constexpr uint32_t kGroup = 1024;
  static constexpr uint32_t kMaxSlots = kGroup * kGroup;
  // The last location is kAbsent's, so one place fewer.
  static uint32_t NumSlots(uint32_t max_places) { return std::min(kMaxSlots, UINT32_MAX / max_places); }

  const uint32_t num_slots_;
  const uint32_t max_places_;
  std::atomic<std::atomic<Segment*>*> groups_[kGroup] = {};
  std::atomic<uint64_t> next_number_{0};
  mutable std::mutex mutex_;
  std::map<uint64_t, std::shared_ptr<Segment>> segments_;  // guarded by mutex_
  std::deque<uint32_t> free_slots_;                        // guarded by mutex_
  uint32_t next_slot_ = 0;                                 // guarded by mutex_; slots never used yet
};

// Who is reading. A segment taken out of the index and the table is closed after Drain(): readers that might have
// met it are gone by then.
class Readers {
 public:
  class Ticket {
   public:
    explicit Ticket(Readers& readers) : readers_(readers), epoch_(readers.Enter()) {}
    ~Ticket() { readers_.Leave(epoch_); }
    Ticket(const Ticket&) = delete;
    Ticket& operator=(const Ticket&) = delete;

   private:
    Readers& readers_;
    const uint64_t epoch_;
  };

  void Drain() {
    std::unique_lock<std::mutex> lock(mutex_);
    const uint64_t epoch = ++epoch_;
    gone_.wait(lock, [&] { return active_.empty() || active_.begin()->first >= epoch; });
  }
  bool any() {
    std::lock_guard<std::mutex> lock(mutex_);
    return !active_.empty();
  }

 private:
  uint64_t Enter() {
    std::lock_guard<std::mutex> lock(mutex_);
    ++active_[epoch_];
    return epoch_;
  }
  void Leave(uint64_t epoch) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto at = active_.find(epoch);
    if (--at->second == 0) active_.erase(at);
    gone_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable gone_;
  uint64_t epoch_ = 0;                // guarded by mutex_
  std::map<uint64_t, int> active_;    // guarded by mutex_
};

}  // namespace stepwell::ssd
