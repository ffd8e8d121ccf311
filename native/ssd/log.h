// ssd::Log: what is behind SsdLog. Its methods are in append.cc, find.cc, sync.cc, expire.cc, recovery.cc and
// compaction.cc.
//
// Invariants
//  1. A record's bytes are in a chunk or in the file before the index names their place.
//  2. Seqs are given out under append_mutex_, which a writing call holds until the index shows all of it.
//  3. Every record of a seq below a segment's created_seq was live when the log's last seq was created_seq. So a
//     tombstone of seq s hides nothing in segments created at s or later.
//  4. A segment is unlinked only when no index entry points to it, its tombstones are not needed, and the SYNCED file
//     covers its dead_seq: what superseded its records is on disk.
//
// Locks, in the order they are taken: compaction_mutex_, move_mutex_, sync_mutex_, append_mutex_, a shard's, the
// leaves.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "io/page_reader.h"
#include "ssd/format.h"
#include "ssd/marker.h"
#include "ssd/segment.h"
#include "ssd/segment_writer.h"
#include "ssd/ssd_log.h"
#include "ssd/tables.h"

namespace stepwell::ssd {

// A record that is wanted, and what came of it.
struct Want {
  uint32_t location;
  uint32_t index;  // the caller's
};

// A record in memory: in the pages of its block.
struct RecordView {
  const std::byte* block;  // where the block's first page is, or would be: only the record's own pages are there
  uint32_t stream_offset;

  RecordKey key() const {
    RecordKey value;
    CopyOut(block, stream_offset, &value, sizeof(value));
    return value;
  }
  void CopyRecord(void* out, uint32_t bytes) const { CopyOut(block, stream_offset + sizeof(RecordKey), out, bytes); }
};

// What the pages of a segment's first `blocks` blocks say, where no footer does. Places of bad pages stay empty; the
// first of them, if it was synced or good ones follow, is described in *damage (may be nullptr), and *good_blocks (may
// be nullptr) ends the last block that counts.
Status ScanPages(const Geometry& geometry, Segment& segment, uint32_t blocks, uint32_t step_offset,
                 uint32_t synced_blocks, std::vector<FooterEntry>* entries, std::string* damage, uint32_t* good_blocks);

class Log {
 public:
  static Status Open(const SsdOptions& options, std::unique_ptr<Log>* log);
  ~Log();
  Status Close();

  Status Append(uint32_t table, const int64_t* ids, const std::byte* records, size_t stride, size_t n);
  Status Find(const std::vector<IdsOf>& parts, std::byte* out, size_t out_stride, uint8_t* found,
              uint32_t* locations);
  Status Locate(uint32_t table, const int64_t* ids, size_t n, uint32_t* locations);
  Status Erase(uint32_t table, const int64_t* ids, size_t n, uint8_t* erased);
  Status SetExpiry(uint32_t table, std::shared_ptr<const ExpiryRule> rule);
  Status DropExpired(uint32_t table, uint64_t* dropped);
  Status Sync();
  Status Compact(bool all);
  Status LinkTo(const std::string& target, std::vector<std::string>* files);
  Status Scan(int64_t table, const std::function<Status(const ScanBatch&)>& visitor);
  SsdStats Stats();

 private:
  explicit Log(const SsdOptions& options, const Geometry& geometry);

  // ---- append.cc
  struct Run {  // of places one after another in a segment
    std::shared_ptr<Segment> segment;
    uint32_t first_place;
    uint32_t count;
  };
  Status CheckTable(uint32_t table) const;  // and that the log is open
  // Records (tombstones if records is null) of kept ids; the index is changed when all are in memory.
  Status Write(uint32_t table, const int64_t* ids, const std::byte* records, size_t stride, size_t n,
               uint8_t* erased);
  std::vector<uint32_t> KeepLast(const ByShard& parts, const int64_t* ids, size_t n) const;  // empty: keep all
  Status MakeRoom(std::unique_lock<std::mutex>& lock, size_t records, bool tombstone);
  Status Prepare(size_t records, uint64_t limit);
  Status NewSegment(uint64_t limit, uint32_t places, std::shared_ptr<Segment>* segment);
  Status Fill(const std::vector<uint32_t>& kept, const int64_t* ids, const std::byte* records, size_t stride,
              size_t count, uint64_t word, std::vector<uint32_t>* locations);
  void FlushChunk(uint32_t last_records, bool chunk_done);  // pushes the open chunk's blocks that are not pushed yet
  void EndBlock();                                          // fills the open block up with empty places
  void SealOpen();

  // ---- space (append.cc)
  uint64_t HardLimit() const;  // for all use, compaction included
  uint64_t SoftLimit();        // 2x of the live rows, or the hard limit
  Status GrowDisk(Segment* segment, uint64_t bytes, uint64_t limit);
  void SetDiskBytes(Segment& segment, uint64_t bytes);
  Status FullStatus(uint64_t need, uint64_t limit);

  // ---- find.cc
  // visit(want index in `wants`, view) for readable ones; others get bad(...). Sorts `wants`. visit may run on
  // several threads. What it read is added to `counts`. The first error is returned. Requires: a reader's ticket taken
  // before the locations were.
  struct ReadCounts {
    std::atomic<uint64_t> pages{0}, bytes{0}, requests{0}, coalesced{0};
  };
  Status ReadRecords(std::vector<Want>* wants, const std::function<void(const Want&, const RecordView&)>& visit,
                     const std::function<void(const Want&)>& bad, uint32_t depth, ReadCounts* counts);
  void LookUp(TableState& table, const ByShard& parts, uint32_t* locations);
  void Warn(const std::string& text);

  // ---- sync.cc
  struct SyncedPart {  // of the open segment; no blocks: there is none
    uint64_t segment = 0;
    uint64_t blocks = 0;
  };
  Status SyncTo(uint64_t seq, uint64_t job, const SyncedPart& open);
  Status WriteMarker(uint64_t seq, uint64_t next_segment, const SyncedPart& open);

  // ---- recovery.cc
  Status OpenMarker();
  Status Recover();
  // A sealed segment's footer, or where it is damaged what its pages say.
  Status LoadEntries(Segment& segment, std::vector<FooterEntry>* entries);
  friend class Recovery;

  // ---- compaction.cc; all require compaction_mutex_, but for the first
  struct Group;
  enum class Pick { kHalfStale, kPressed, kDesperate, kAll };
  void CompactInBackground();
  // One round. *progress: disk space came back, or a group of segments was rewritten.
  Status CompactOnce(Pick pick, bool* progress);
  std::vector<std::shared_ptr<Segment>> PickVictims(Pick pick, bool* any_urgent);
  uint64_t TombstonesNeededFrom(const Segment& segment) const;  // its tombstones of higher seqs hide something
  uint64_t Kept(const Segment& segment);  // records that a rewrite would keep, at most
  Status Rewrite(const std::vector<std::shared_ptr<Segment>>& victims);
  Status Gather(Segment& victim, Group* group);
  Status WriteOutput(Group& group, std::shared_ptr<Segment>* output);
  void MoveIndex(Group& group, Segment* output);
  void RetireDead();
  Status DeleteRetired(bool sync, bool* freed);
  bool Pressed() { return disk_bytes_.load() > SoftLimit() / 10 * 9; }
  void Pace();

  const SsdOptions options_;
  const Geometry geometry_;
  Env* const env_;
  ThreadPool* const pool_;
  std::unique_ptr<DirectoryLock> directory_lock_;
  std::unique_ptr<PageReader> reader_;
  SegmentTable segments_;
  Readers readers_;
  Tables tables_;
  MarkerFile marker_;
  std::vector<VoidRange> voids_;  // constant after Open
  std::unique_ptr<SegmentWriter> writer_;

  std::mutex append_mutex_;  // guards the group below
  std::shared_ptr<Segment> open_;
  std::vector<std::shared_ptr<Segment>> prepared_;  // empty segments that the next records go to
  std::shared_ptr<std::vector<FooterEntry>> open_entries_;
  std::shared_ptr<Chunk> chunk_;
  uint32_t next_place_ = 0;
  uint32_t flushed_block_ = 0;
  uint32_t chunk_first_ = 0;
  std::set<std::shared_ptr<Segment>> unsynced_;
  bool directory_changed_ = false;
  std::atomic<uint64_t> last_seq_{0};  // written under append_mutex_

  std::mutex sync_mutex_;
  std::atomic<uint64_t> synced_seq_{0};

  std::mutex compaction_mutex_;
  std::mutex move_mutex_;  // held while compaction's output joins the table and the index moves to it
  std::vector<std::shared_ptr<Segment>> retired_;  // guarded by compaction_mutex_
  std::chrono::steady_clock::time_point paced_;    // guarded by compaction_mutex_
  std::atomic<int> pressed_{0};                    // calls that wait for room: no pacing then
  std::atomic<uint64_t> retired_bytes_{0};

  std::atomic<uint64_t> disk_bytes_{0};
  std::atomic<uint64_t> peak_disk_bytes_{0};
  std::atomic<uint64_t> live_{0};

  std::mutex background_mutex_;
  std::condition_variable background_wake_;
  bool stop_ = false;     // guarded by background_mutex_
  bool nudged_ = false;   // guarded by background_mutex_
  std::thread background_;
  std::atomic<bool> closed_{false};

  struct Counters {
    ReadCounts reads;             // of Find and Scan
    ReadCounts compaction_reads;
    std::atomic<uint64_t> rows_read{0}, write_stalls{0}, space_stalls{0}, compactions{0}, bytes_rewritten{0},
        implicit_syncs{0}, checksum_failures{0}, expired_dropped{0};
  } counters_;
  std::mutex warnings_mutex_;
  std::vector<std::string> warnings_;  // guarded by warnings_mutex_
};

}  // namespace stepwell::ssd
