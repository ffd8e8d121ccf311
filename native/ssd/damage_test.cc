// Bytes that are flipped and disks that fail: every damage is found and named by file and offset, everything else
// stays readable; a full disk or a failing one loses nothing and the log goes on.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <functional>
#include <map>
#include <set>

#include "io/env_faulty.h"
#include "ssd/format.h"
#include "ssd/ssd_log.h"
#include "ssd/dir_test.h"

using namespace stepwell;
using namespace stepwell::ssd_test;

namespace {

constexpr uint32_t kBytes = 272;

SsdOptions Options(const std::string& directory) {
  SsdOptions options;
  options.directory = directory;
  options.record_bytes = kBytes;
  options.segment_bytes = 256 << 10;
  options.background_compaction = false;
  return options;
}

Status AppendRange(SsdLog& log, int64_t begin, int64_t end, uint32_t step, uint32_t bytes = kBytes) {
  std::vector<int64_t> ids;
  std::vector<std::byte> rows(static_cast<size_t>(end - begin) * bytes);
  for (int64_t id = begin; id < end; ++id) {
    MakeRow(rows.data() + ids.size() * bytes, bytes, id, 1, step);
    ids.push_back(id);
  }
  return log.Append(0, ids.data(), rows.data(), bytes, ids.size());
}

struct Found {
  Status status;
  std::set<int64_t> good, absent, unreadable;
};
Found FindRange(SsdLog& log, int64_t begin, int64_t end, uint32_t step, uint32_t bytes = kBytes) {
  std::vector<int64_t> ids;
  for (int64_t id = begin; id < end; ++id) ids.push_back(id);
  std::vector<std::byte> out(ids.size() * bytes);
  std::vector<uint8_t> found(ids.size());
  Found result;
  result.status = log.Find(0, ids.data(), ids.size(), out.data(), bytes, found.data());
  for (size_t i = 0; i < ids.size(); ++i) {
    if (found[i] == kRowFound) {
      const std::byte* row = out.data() + i * bytes;
      uint32_t row_step;
      std::memcpy(&row_step, row + 4, 4);
      CHECK(IsRow(row, bytes, ids[i]));
      CHECK_EQ(row_step, step);
      result.good.insert(ids[i]);
    } else {
      (found[i] == kRowAbsent ? result.absent : result.unreadable).insert(ids[i]);
    }
  }
  return result;
}

void Flip(const std::string& path, uint64_t offset) {
  const int fd = open(path.c_str(), O_RDWR);
  CHECK(fd >= 0);
  unsigned char byte;
  CHECK_EQ(pread(fd, &byte, 1, static_cast<off_t>(offset)), 1);
  byte ^= 0x40;
  CHECK_EQ(pwrite(fd, &byte, 1, static_cast<off_t>(offset)), 1);
  close(fd);
}

bool Mentions(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// One log per place: 2000 rows in several sealed segments, one byte flipped, opened, read, checked, repaired, opened.
void Corruption(IoKind io, uint32_t bytes) {
  ssd::Geometry geometry;
  CHECK_OK(ssd::Geometry::Make(bytes, 256 << 10, &geometry));
  const uint64_t footer = geometry.BlockOffset(geometry.max_blocks);
  const uint64_t size = geometry.FileBytes(geometry.max_places);
  struct Place {
    const char* name;
    uint64_t offset;
    bool loses_rows;
  };
  const Place places[] = {
      {"header checksum", 1, false},
      {"header", 20, false},
      {"page checksum", 4096 + 2, true},
      {"page header", 4096 + 9, true},
      {"key id", 4096 + 16 + 3, true},
      {"key word", 4096 + 16 + 12, true},
      {"row", 4096 + 16 + 16 + 100, true},
      {"unused end of a page", 4096 * 2 - 1, true},
      {"last data page", footer - 2000, true},
      {"footer checksum", footer + 1, false},
      {"footer entry", footer + 16 + 25, false},
      {"trailer checksum", size - 4096, false},
      {"trailer", size - 4096 + 40, false},
      {"trailer's unused end", size - 1, false},
  };
  for (const Place& place : places) {
    TestDir dir;
    SsdOptions options = Options(dir.path());
    options.io = io;
    options.record_bytes = bytes;
    std::unique_ptr<SsdLog> log;
    CHECK_OK(SsdLog::Open(options, &log));
    const int64_t rows = geometry.max_places * 5 / 2;
    CHECK_OK(AppendRange(*log, 0, rows, 7, bytes));
    CHECK_OK(log->Sync());
    CHECK_OK(log->Close());
    const std::string path = dir.path() + "/" + ssd::SegmentName(0);
    Flip(path, place.offset);
    const std::string where = "offset " + std::to_string(place.offset / 4096 * 4096);

    CHECK_OK(SsdLog::Open(options, &log));
    Found found = FindRange(*log, 0, rows, 7, bytes);
    CHECK_EQ(found.absent.size(), 0u);
    CHECK_EQ(!found.unreadable.empty(), place.loses_rows);
    CHECK(found.unreadable.size() <= geometry.records_per_block);
    CHECK_EQ(found.status.code() == Code::kCorrupt, place.loses_rows);
    if (place.loses_rows) {
      CHECK(Mentions(found.status.message(), path) && Mentions(found.status.message(), where));
    } else {
      bool warned = false;
      for (const std::string& warning : log->stats().warnings) {
        warned = warned || (Mentions(warning, path) && Mentions(warning, where));
      }
      CHECK(warned);
    }
    CHECK(log->stats().checksum_failures > 0);
    // Compaction leaves what it cannot read where it is.
    CHECK_OK(AppendRange(*log, rows, rows + 50, 7, bytes));
    std::vector<int64_t> some;
    for (int64_t id = 0; id < rows; id += 3) some.push_back(id);
    CHECK_OK(log->Erase(0, some.data(), some.size(), nullptr));
    CHECK_OK(log->Compact(true));
    Found after = FindRange(*log, 0, rows, 7, bytes);
    for (const int64_t id : found.unreadable) CHECK_EQ(after.unreadable.count(id) + after.absent.count(id), 1u);
    for (const int64_t id : found.good) CHECK_EQ(after.good.count(id), id % 3 == 0 ? 0u : 1u);
    CHECK_OK(log->Sync());
    CHECK_OK(log->Close());

    CheckReport report;
    const bool file_is_there = access(path.c_str(), F_OK) == 0;
    CHECK_OK(CheckDir(dir.path(), false, &report));
    CHECK_EQ(report.problems.empty(), !file_is_there);
    for (const CheckProblem& problem : report.problems) {
      CHECK_EQ(problem.file, path);
      CHECK_EQ(problem.offset, place.offset / 4096 * 4096);
    }
    CHECK_EQ(report.lost.size(), after.unreadable.size());
    for (const auto& [table, id] : report.lost) CHECK(after.unreadable.count(id) == 1);
    CHECK_OK(CheckDir(dir.path(), true, &report));
    CHECK_OK(CheckDir(dir.path(), false, &report));
    CHECK_EQ(report.problems.size(), 0u);
    CHECK_OK(SsdLog::Open(options, &log));
    Found repaired = FindRange(*log, 0, rows, 7, bytes);
    CHECK_OK(repaired.status);
    CHECK(repaired.good == after.good);
    CHECK_EQ(log->stats().warnings.size(), 0u);
  }
}

void Markers() {
  TestDir dir;
  SsdOptions options = Options(dir.path());
  std::unique_ptr<SsdLog> log;
  CHECK_OK(SsdLog::Open(options, &log));
  CHECK_OK(AppendRange(*log, 0, 3000, 1));
  CHECK_OK(log->Sync());
  CHECK_OK(AppendRange(*log, 0, 10, 2));
  CHECK_OK(log->Sync());

  std::unique_ptr<SsdLog> second;
  const Status locked = SsdLog::Open(options, &second);
  CHECK_EQ(static_cast<int>(locked.code()), static_cast<int>(Code::kLocked));
  CHECK(Mentions(locked.message(), std::to_string(getpid())));
  CHECK_OK(log->Close());
  CHECK_EQ(static_cast<int>(log->Sync().code()), static_cast<int>(Code::kClosed));
  CHECK_EQ(static_cast<int>(FindRange(*log, 0, 5, 1).status.code()), static_cast<int>(Code::kClosed));

  SsdOptions other = options;
  other.record_bytes = 280;
  CHECK_EQ(static_cast<int>(SsdLog::Open(other, &second).code()), static_cast<int>(Code::kFormat));
  other = options;
  other.fingerprint = 5;
  CHECK_EQ(static_cast<int>(SsdLog::Open(other, &second).code()), static_cast<int>(Code::kFormat));
  other = options;
  other.budget_bytes = 1 << 20;
  CHECK_EQ(static_cast<int>(SsdLog::Open(other, &second).code()), static_cast<int>(Code::kBudgetTooSmall));
  SsdFormat format;
  CHECK_OK(ReadFormat(dir.path(), &format));
  CHECK_EQ(format.record_bytes, kBytes);

  // One slot damaged: the other has the last state or the one before. Both: only repair helps, and it keeps all.
  const std::string path = dir.path() + "/SYNCED";
  Flip(path, 4096 + 100);
  CHECK_OK(SsdLog::Open(options, &log));
  CHECK_EQ(log->stats().warnings.size(), 1u);
  CHECK_OK(log->Close());
  CHECK_OK(SsdLog::Open(options, &log));  // the damaged slot is written by the next syncs
  CHECK_OK(AppendRange(*log, 5000, 5001, 1));
  CHECK_OK(log->Sync());
  CHECK_OK(AppendRange(*log, 5001, 5002, 1));
  CHECK_OK(log->Sync());
  CHECK_OK(log->Close());
  Flip(path, 100);
  Flip(path, 4096 + 100);
  CHECK_EQ(static_cast<int>(SsdLog::Open(options, &log).code()), static_cast<int>(Code::kCorrupt));
  CheckReport report;
  CHECK_OK(CheckDir(dir.path(), true, &report));
  CHECK_EQ(report.problems.size(), 1u);
  CHECK_OK(SsdLog::Open(options, &log));
  CHECK_EQ(FindRange(*log, 10, 3000, 1).good.size(), 2990u);
  CHECK_OK(log->Close());
  unlink(path.c_str());
  CHECK_EQ(static_cast<int>(SsdLog::Open(options, &log).code()), static_cast<int>(Code::kCorrupt));
  CHECK_OK(CheckDir(dir.path(), true, &report));
  CHECK_OK(SsdLog::Open(options, &log));
  CHECK_EQ(FindRange(*log, 10, 3000, 1).good.size(), 2990u);
}

void Faults(IoKind io) {
  TestDir dir;
  FaultyEnv env;
  SsdOptions options = Options(dir.path());
  options.io = io;
  options.env = &env;
  std::unique_ptr<SsdLog> log;
  CHECK_OK(SsdLog::Open(options, &log));
  CHECK_OK(AppendRange(*log, 0, 5000, 1));
  CHECK_OK(log->Sync());

  // Reads.
  std::vector<std::string> names;  // LOCK, SYNCED, segments
  CHECK_OK(env.List(dir.path(), &names));
  env.Add({FaultOp::kRead, names[3], EIO, 0, UINT64_MAX, 0});
  Found found = FindRange(*log, 0, 5000, 1);
  CHECK_EQ(static_cast<int>(found.status.code()), static_cast<int>(Code::kIoError));
  CHECK(Mentions(found.status.message(), names[3]));
  CHECK(found.unreadable.size() > 500 && found.unreadable.size() < 1000 && found.absent.empty());
  env.Clear();
  env.Add({FaultOp::kRead, "", EIO, 2, 1, 0});  // one read fails once: it is tried again record by record
  CHECK_EQ(FindRange(*log, 0, 5000, 1).good.size(), 5000u);
  env.Clear();

  // A disk that is full before anything changes, and then is not.
  env.Add({FaultOp::kAllocate, "", ENOSPC, 0, UINT64_MAX, 0});
  Status full = AppendRange(*log, 0, 5000, 2);
  CHECK_EQ(static_cast<int>(full.code()), static_cast<int>(Code::kDiskFull));
  CHECK_EQ(FindRange(*log, 0, 5000, 1).good.size(), 5000u);
  env.Clear();
  CHECK_OK(AppendRange(*log, 0, 5000, 2));
  CHECK_EQ(FindRange(*log, 0, 5000, 2).good.size(), 5000u);

  // Writes and syncs that fail in the background: found rows stay found, Sync and the next Append say it.
  for (const FaultOp op : {FaultOp::kWrite, FaultOp::kSync}) {
    for (const int error : {EIO, ENOSPC}) {
      env.Add({op, "", error, 0, UINT64_MAX, 8192});
      const Status appended = AppendRange(*log, 0, 300, 3);
      // An Append that fails has changed nothing, so there may be nothing to sync.
      const Status synced = appended.ok() ? log->Sync() : appended;
      CHECK_EQ(static_cast<int>(synced.code()), static_cast<int>(error == EIO ? Code::kIoError : Code::kDiskFull));
      if (op == FaultOp::kWrite) {
        CHECK_EQ(static_cast<int>(AppendRange(*log, 0, 300, 4).code()), static_cast<int>(synced.code()));
      }
      CHECK_EQ(FindRange(*log, 0, 300, appended.ok() ? 3 : 2).good.size(), 300u);
      CHECK_EQ(FindRange(*log, 300, 5000, 2).good.size(), 4700u);
      env.Clear();
      CHECK_OK(AppendRange(*log, 0, 300, 2));
      CHECK_OK(log->Sync());
      CHECK_EQ(FindRange(*log, 0, 5000, 2).good.size(), 5000u);
    }
  }

  // Compaction that meets a full or failing disk changes nothing.
  for (const FaultOp op : {FaultOp::kOpen, FaultOp::kAllocate, FaultOp::kWrite, FaultOp::kSync, FaultOp::kRename,
                           FaultOp::kRead, FaultOp::kTruncate}) {
    CHECK_OK(AppendRange(*log, 0, 5000, 2));
    CHECK_OK(AppendRange(*log, 1000, 4000, 2));
    CHECK_OK(log->Sync());
    env.Add({op, op == FaultOp::kRead ? "seg" : ".tmp", op == FaultOp::kAllocate ? ENOSPC : EIO, 0, UINT64_MAX, 4096});
    const Status compacted = log->Compact(true);
    CHECK(!compacted.ok());
    env.Clear();
    CHECK_EQ(FindRange(*log, 0, 5000, 2).good.size(), 5000u);
    CHECK_OK(log->Compact(true));
    CHECK_EQ(FindRange(*log, 0, 5000, 2).good.size(), 5000u);
  }
  CHECK_OK(log->Close());
  CHECK_OK(SsdLog::Open(options, &log));
  CHECK_EQ(FindRange(*log, 0, 5000, 2).good.size(), 5000u);
  CHECK_OK(log->Close());
  CheckReport report;
  CHECK_OK(CheckDir(dir.path(), false, &report, &env));
  CHECK_EQ(report.problems.size(), 0u);
  CHECK_EQ(report.live_rows, 5000u);
}

// The golden bytes of the format: a change to them needs a new version.
void Golden() {
  CHECK_EQ(sizeof(ssd::PageHeader), 16u);
  CHECK_EQ(sizeof(ssd::SegmentHeader), 40u);
  CHECK_EQ(sizeof(ssd::SegmentTrailer), 96u);
  CHECK_EQ(offsetof(ssd::Marker, voids), 56u);
  ssd::Geometry geometry;
  CHECK_OK(ssd::Geometry::Make(272, 64 << 20, &geometry));
  CHECK_EQ(geometry.records_per_block, 14u);
  CHECK_EQ(geometry.block_pages, 1u);
  CHECK(geometry.FileBytes(geometry.max_places) <= 64u << 20);
  CHECK(geometry.FileBytes(geometry.max_places) > (64u << 20) - 16 * 4096);
  for (uint32_t bytes = 1; bytes < 300000; bytes += 1 + bytes / 7) {
    CHECK_OK(ssd::Geometry::Make(bytes, 64 << 20, &geometry));
    const uint64_t payload = geometry.block_pages * ssd::kPayloadBytes;
    const uint64_t used = uint64_t{geometry.records_per_block} * geometry.stored_bytes;
    CHECK(used <= payload && used * 8 >= payload * 7);
    CHECK(geometry.FileBytes(geometry.max_places) <= 64u << 20);
  }
  CHECK(!ssd::Geometry::Make(0, 64 << 20, &geometry).ok());
  CHECK(!ssd::Geometry::Make(100000, 64 << 10, &geometry).ok());
}

}  // namespace

int main() {
  Golden();
  Markers();
  for (const IoKind io : {IoKind::kUring, IoKind::kPread}) {
    Faults(io);
    Corruption(io, kBytes);
    Corruption(io, 5000);
  }
  return 0;
}
