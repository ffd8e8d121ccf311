// SsdLog: the SSD tier's store of rows, one directory of one record size. Start here.
//
// Rows are opaque records of `record_bytes`, named by (table, id); any int64 is an id, a table is 0..32766. Writes
// go to the end of a log of segments; an exact index in memory (at most 13 bytes a row) says where each row lies, so
// a write never reads the disk and a read knows its page. Every page carries a checksum. The files are described in
// docs/store_format.md.
//
// Thread safety: every method may be called from any thread at any time, Close() and the destructor excepted.
// Append and Erase calls are put in one order; each becomes visible row by row and is durable after a later Sync().
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "io/env.h"
#include "rows/expiry.h"
#include "stepwell/status.h"
#include "util/thread_pool.h"

namespace stepwell {
namespace ssd {
class Log;
}

enum class IoKind : int { kAuto = 0, kUring = 1, kPread = 2 };

struct SsdOptions {
  // What the log is. A directory made with others is a kFormat error.
  std::string directory;
  uint32_t record_bytes = 0;  // >= 1, <= 1 MiB
  uint32_t count_offset = 0;  // of the record's u32 count; kNoField: it has none and rules see 1
  uint32_t step_offset = 4;   // of the record's u32 last step; kNoField: it has none and rules see 2^32 - 1
  uint64_t fingerprint = 0;   // of the row layout; the caller's business, compared when the log is opened

  // What it may use.
  uint64_t budget_bytes = 0;  // of disk, everything counted; 0: no limit but the disk and 2x of the live rows
  uint64_t segment_bytes = uint64_t{64} << 20;     // the largest size of a segment's file
  uint64_t write_buffer_bytes = uint64_t{8} << 20;  // rows accepted and not yet written; then Append waits
  bool background_compaction = true;  // false: compaction runs only in Compact() and in an Append that needs room
  bool create = true;                 // false: a directory that holds no log is an error

  // How it reads.
  IoKind io = IoKind::kAuto;
  bool direct = true;             // O_DIRECT; a file system without it is an error, not a fallback
  uint32_t queue_depth = 64;      // reads in flight per call (io_uring)
  uint32_t pread_threads = 16;    // reads in flight for all calls (pread)
  uint32_t coalesce_gap_pages = 3;  // pages not needed that are read along to save a second read

  Env* env = nullptr;          // nullptr: the system's; not owned
  ThreadPool* pool = nullptr;  // nullptr: calls run on their caller's thread; not owned

  static constexpr uint32_t kNoField = UINT32_MAX;
};

struct SsdStats {
  std::string io;  // "uring" or "pread"
  bool direct = false;
  uint64_t segments = 0;
  uint64_t live_records = 0;       // rows, those included that expired and were not dropped yet
  uint64_t stale_records = 0;      // places in segments that hold no live row and no tombstone
  uint64_t tombstone_records = 0;
  uint64_t disk_bytes = 0;         // what the directory takes, space set aside for open segments included
  uint64_t peak_disk_bytes = 0;    // since the log was opened
  uint64_t live_bytes = 0;         // live_records * record_bytes
  uint64_t budget_bytes = 0;
  uint64_t index_bytes = 0;
  uint64_t buffer_bytes = 0;       // memory for writes in flight, open segments' footers and readers
  uint64_t appended_seq = 0;       // of the last Append or Erase
  uint64_t synced_seq = 0;         // what the SYNCED file covers
  uint64_t rows_read = 0;          // by Find
  uint64_t pages_read = 0;         // pages that Find and Scan needed
  uint64_t bytes_read = 0;         // by them; neighbours' pages between two that were needed included
  uint64_t reads = 0;              // their requests to the device
  uint64_t reads_coalesced = 0;    // reads saved because a neighbour's brought the page
  uint64_t bytes_written = 0;
  uint64_t write_stalls = 0;       // an Append waited for a write buffer
  uint64_t space_stalls = 0;       // an Append waited for compaction to make room
  uint64_t compactions = 0;
  uint64_t bytes_rewritten = 0;
  uint64_t compaction_bytes_read = 0;
  uint64_t implicit_syncs = 0;     // compaction advanced the SYNCED file because space was needed
  uint64_t checksum_failures = 0;
  uint64_t expired_dropped = 0;
  std::vector<std::pair<uint32_t, uint64_t>> rows_per_table;  // tables that hold rows, in order
  std::vector<std::string> warnings;                          // what was found damaged, by file and offset
};

// What Find says of a row.
enum RowState : uint8_t {
  kRowAbsent = 0,      // no such row, or it expired; the output is zeroed
  kRowFound = 1,
  kRowUnreadable = 2,  // it exists but its page cannot be read; the output is zeroed and the call's Status says why
};

// A batch of rows handed out by Scan; the pointers are valid during the call only.
struct ScanBatch {
  uint32_t table = 0;
  size_t n = 0;
  const int64_t* ids = nullptr;
  const std::byte* records = nullptr;  // n * record_bytes
};

// Ids of one table, for calls that take several tables'.
struct IdsOf {
  uint32_t table = 0;
  const int64_t* ids = nullptr;
  size_t n = 0;
};

class SsdLog {
 public:
  static constexpr uint32_t kAbsent = UINT32_MAX;  // a location that is none
  static constexpr uint32_t kNumTables = 32767;

  // Opens or creates the log and takes its directory's lock (kLocked names the process that holds it). The rows are
  // exactly those of the last Sync(). Damage that was met is listed in stats().warnings; it is no error to open.
  static Status Open(const SsdOptions& options, std::unique_ptr<SsdLog>* log);

  // Waits for writes in flight and lets go of the directory. Does not Sync().
  ~SsdLog();
  Status Close();

  // Inserts or assigns n rows; of equal ids in a call the last wins. Row i is at records + i * stride.
  // kFull (budget, or locations) and kDiskFull come before anything has changed; waits for compaction before that.
  Status Append(uint32_t table, const int64_t* ids, const std::byte* records, size_t stride, size_t n);

  // Row i goes to out + i * out_stride, its RowState to found[i] and, if wanted, its location to locations[i].
  // kCorrupt or kIoError: some rows are kRowUnreadable, all others are as if nothing had happened.
  Status Find(uint32_t table, const int64_t* ids, size_t n, std::byte* out, size_t out_stride, uint8_t* found,
              uint32_t* locations = nullptr);

  // The rows of several tables, one after another, read in one order by place: each page once.
  Status Find(const std::vector<IdsOf>& parts, std::byte* out, size_t out_stride, uint8_t* found,
              uint32_t* locations = nullptr);

  // The index alone: a row's location, kAbsent if there is none. A row whose location has not changed has not
  // changed (the reverse does not hold: compaction moves rows). Expired rows may still have one.
  Status Locate(uint32_t table, const int64_t* ids, size_t n, uint32_t* locations);

  // Removes rows; erased[i] (may be nullptr) is 1 if it was there; of equal ids in a call, for the last.
  Status Erase(uint32_t table, const int64_t* ids, size_t n, uint8_t* erased);

  // From now on rows the rule names read as absent, and compaction drops them. nullptr: none expire. Not persisted.
  Status SetExpiry(uint32_t table, std::shared_ptr<const ExpiryRule> rule);
  // Takes rows out of the index that the rule's `live_from_step` names, by the footers' last steps alone.
  Status DropExpired(uint32_t table, uint64_t* dropped);

  // Everything appended before the call is durable when it returns.
  Status Sync();

  // What the background does: rewrites segments at least half stale, and stalest ones while disk use nears its limit
  // (which may imply Sync()). all: every segment that holds something stale, until what can go is gone (implies Sync()).
  Status Compact(bool all);

  // A directory (made if absent, must hold no log) that opens as a log with the rows as of one moment of this call.
  // Segments are hard-linked: another file system is an error. Implies Sync().
  Status LinkTo(const std::string& target_directory, std::vector<std::string>* files = nullptr);

  // Every live row of the table (of all tables: table < 0), in the segments' order. A row written meanwhile may come
  // in its old or new state, or twice. The visitor's first error ends the scan and is returned; it must not write to
  // this log. Damaged rows are left out, and the scan then ends in kCorrupt.
  Status Scan(int64_t table, const std::function<Status(const ScanBatch&)>& visitor);

  SsdStats stats();

 private:
  explicit SsdLog(std::unique_ptr<ssd::Log> log);
  const std::unique_ptr<ssd::Log> log_;
};

// What CheckDir found; see ssd/checker.cc.
struct CheckProblem {
  std::string file;
  uint64_t offset = 0;
  std::string what;
};
struct CheckReport {
  uint64_t segments = 0;
  uint64_t records = 0;  // intact, tombstones and superseded ones included
  uint64_t live_rows = 0;
  uint64_t tombstones = 0;
  uint32_t record_bytes = 0;
  uint64_t fingerprint = 0;
  uint64_t synced_seq = 0;
  std::vector<CheckProblem> problems;
  std::vector<std::pair<uint32_t, int64_t>> lost;  // (table, id) of records repair dropped, where a footer names them
  uint64_t lost_unnamed = 0;                       // records dropped that no footer names
  bool repaired = false;
};

// Verifies every byte of a log that nobody has open (takes its lock). Problems are in the report, not in the Status.
// repair: rewrites damaged segments without the records that fail their checksum; nothing else is dropped.
Status CheckDir(const std::string& directory, bool repair, CheckReport* report, Env* env = nullptr);

// What a directory's SYNCED file says, without opening the log: for tools that must be told no layout.
struct SsdFormat {
  uint32_t record_bytes = 0;
  uint32_t count_offset = 0;
  uint32_t step_offset = 0;
  uint64_t fingerprint = 0;
  uint64_t segment_bytes = 0;
  uint64_t synced_seq = 0;
};
Status ReadFormat(const std::string& directory, SsdFormat* format, Env* env = nullptr);

}  // namespace stepwell
