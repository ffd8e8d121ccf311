#include "ssd/ssd_log.h"

#include <algorithm>

#include "ssd/log.h"

namespace stepwell {
namespace ssd {
namespace {

constexpr uint64_t kLeastSegments = 5;  // that a budget must hold: one open, one kept for Erase, one for compaction, two of rows

Status CheckOptions(const SsdOptions& options) {
  const auto field = [&](const char* name, uint32_t offset) {
    if (offset == SsdOptions::kNoField || uint64_t{offset} + 4 <= options.record_bytes) return Status::Ok();
    return Status(Code::kInvalid, std::string(name) + " is " + std::to_string(offset) + ", outside of a record of " +
                                      std::to_string(options.record_bytes) + " bytes");
  };
  STEPWELL_RETURN_IF_ERROR(field("count_offset", options.count_offset));
  STEPWELL_RETURN_IF_ERROR(field("step_offset", options.step_offset));
  const auto range = [](const char* name, uint64_t value, uint64_t least, uint64_t most) {
    if (value >= least && value <= most) return Status::Ok();
    return Status(Code::kInvalid, std::string(name) + " is " + std::to_string(value) + ", expected " +
                                      std::to_string(least) + " to " + std::to_string(most));
  };
  STEPWELL_RETURN_IF_ERROR(range("queue_depth", options.queue_depth, 1, 4096));
  STEPWELL_RETURN_IF_ERROR(range("pread_threads", options.pread_threads, 1, 512));
  STEPWELL_RETURN_IF_ERROR(range("coalesce_gap_pages", options.coalesce_gap_pages, 0, 31));
  if (options.directory.empty()) return Status(Code::kInvalid, "directory is empty; name one for the log");
  return Status::Ok();
}

}  // namespace

Log::Log(const SsdOptions& options, const Geometry& geometry)
    : options_(options),
      geometry_(geometry),
      env_(options.env == nullptr ? Env::Posix() : options.env),
      pool_(options.pool),
      segments_(geometry.max_places) {}

Status Log::Open(const SsdOptions& options, std::unique_ptr<Log>* log) {
  STEPWELL_RETURN_IF_ERROR(CheckOptions(options));
  Geometry geometry;
  STEPWELL_RETURN_IF_ERROR(Geometry::Make(options.record_bytes, options.segment_bytes, &geometry));
  const uint64_t least = kLeastSegments * (geometry.FileBytes(geometry.max_places) + kPageBytes) + 4 * kPageBytes;
  if (options.budget_bytes != 0 && options.budget_bytes < least) {
    return Status(Code::kBudgetTooSmall, options.directory + ": budget_bytes is " +
                                             std::to_string(options.budget_bytes) + ", segments of " +
                                             std::to_string(options.segment_bytes) + " bytes need at least " +
                                             std::to_string(least) + "; raise it or make segment_bytes smaller");
  }
  std::unique_ptr<Log> made(new Log(options, geometry));
  Env* env = made->env_;
  const std::string& directory = options.directory;
  if (options.create) {
    STEPWELL_RETURN_IF_ERROR(env->MakeDirectory(directory));
  } else if (!env->Exists(directory + "/" + kMarkerName)) {
    return Status(Code::kInvalid, directory + ": holds no log; name the right directory, or let it be created");
  }
  STEPWELL_RETURN_IF_ERROR(env->Lock(directory + "/" + kLockName, &made->directory_lock_));
  made->disk_bytes_ = 4 * kPageBytes;
  STEPWELL_RETURN_IF_ERROR(made->OpenMarker());

  const uint32_t max_read = std::max(32u, geometry.block_pages) * static_cast<uint32_t>(kPageBytes);
  if (options.io != IoKind::kPread) {
    const Status status = NewUringReader(options.queue_depth, max_read, &made->reader_);
    if (!status.ok() && options.io == IoKind::kUring) return status;
  }
  if (made->reader_ == nullptr) made->reader_ = NewPreadReader(options.pread_threads, max_read);
  STEPWELL_RETURN_IF_ERROR(made->Recover());

  Log* self = made.get();
  made->writer_ = std::make_unique<SegmentWriter>(geometry, options.write_buffer_bytes, [self](Segment& segment) {
    self->SetDiskBytes(segment, self->geometry_.FileBytes(segment.places.load()));
    std::lock_guard<std::mutex> lock(self->background_mutex_);
    self->nudged_ = true;
    self->background_wake_.notify_one();
  });
  if (options.background_compaction) made->background_ = std::thread([self] { self->CompactInBackground(); });
  *log = std::move(made);
  return Status::Ok();
}

Status Log::Close() {
  {
    std::lock_guard<std::mutex> lock(background_mutex_);
    stop_ = true;
  }
  background_wake_.notify_all();
  if (background_.joinable()) background_.join();
  Status status;
  {
    std::lock_guard<std::mutex> sync_lock(sync_mutex_);
    std::lock_guard<std::mutex> lock(append_mutex_);
    if (closed_) return Status::Ok();
    closed_ = true;
    if (writer_ != nullptr) {
      EndBlock();
      status = writer_->WaitFor(writer_->last_job());
      chunk_.reset();
      open_.reset();
    }
  }
  readers_.Drain();
  writer_.reset();
  directory_lock_.reset();
  return status;
}

Log::~Log() { (void)Close(); }

SsdStats Log::Stats() {
  SsdStats stats;
  stats.io = reader_->kind();
  stats.direct = options_.direct;
  uint64_t places = 0, footers = 0;
  for (const auto& segment : segments_.All()) {
    ++stats.segments;
    places += segment->places.load();
    stats.tombstone_records += segment->tombstones.load();
    std::lock_guard<std::mutex> lock(segment->chunk_mutex);
    if (segment->entries != nullptr) footers += segment->entries->size() * sizeof(FooterEntry);
  }
  tables_.ForEach([&](uint32_t table, TableState& state) {
    const uint64_t rows = state.index.size();
    stats.index_bytes += state.index.bytes_used();
    stats.live_records += rows;
    if (rows > 0) stats.rows_per_table.emplace_back(table, rows);
  });
  stats.stale_records = places - std::min(places, stats.live_records + stats.tombstone_records);
  stats.disk_bytes = disk_bytes_.load();
  stats.peak_disk_bytes = std::max(peak_disk_bytes_.load(), stats.disk_bytes);
  stats.live_bytes = stats.live_records * geometry_.record_bytes;
  stats.budget_bytes = options_.budget_bytes;
  stats.buffer_bytes = footers + reader_->buffer_bytes() + (writer_ == nullptr ? 0 : writer_->buffer_bytes());
  stats.appended_seq = last_seq_.load();
  stats.synced_seq = synced_seq_.load();
  stats.rows_read = counters_.rows_read;
  stats.pages_read = counters_.reads.pages;
  stats.bytes_read = counters_.reads.bytes;
  stats.reads = counters_.reads.requests;
  stats.reads_coalesced = counters_.reads.coalesced;
  stats.compaction_bytes_read = counters_.compaction_reads.bytes;
  stats.bytes_written = (writer_ == nullptr ? 0 : writer_->bytes_written()) + counters_.bytes_rewritten;
  stats.write_stalls = counters_.write_stalls;
  stats.space_stalls = counters_.space_stalls;
  stats.compactions = counters_.compactions;
  stats.bytes_rewritten = counters_.bytes_rewritten;
  stats.implicit_syncs = counters_.implicit_syncs;
  stats.checksum_failures = counters_.checksum_failures;
  stats.expired_dropped = counters_.expired_dropped;
  std::lock_guard<std::mutex> lock(warnings_mutex_);
  stats.warnings = warnings_;
  return stats;
}

}  // namespace ssd

SsdLog::SsdLog(std::unique_ptr<ssd::Log> log) : log_(std::move(log)) {}
SsdLog::~SsdLog() = default;

Status SsdLog::Open(const SsdOptions& options, std::unique_ptr<SsdLog>* log) {
  std::unique_ptr<ssd::Log> made;
  STEPWELL_RETURN_IF_ERROR(ssd::Log::Open(options, &made));
  log->reset(new SsdLog(std::move(made)));
  return Status::Ok();
}
Status SsdLog::Close() { return log_->Close(); }
Status SsdLog::Append(uint32_t table, const int64_t* ids, const std::byte* records, size_t stride, size_t n) {
  return log_->Append(table, ids, records, stride, n);
}
Status SsdLog::Find(uint32_t table, const int64_t* ids, size_t n, std::byte* out, size_t out_stride, uint8_t* found,
                    uint32_t* locations) {
  return log_->Find({IdsOf{table, ids, n}}, out, out_stride, found, locations);
}
Status SsdLog::Find(const std::vector<IdsOf>& parts, std::byte* out, size_t out_stride, uint8_t* found,
                    uint32_t* locations) {
  return log_->Find(parts, out, out_stride, found, locations);
}
Status SsdLog::Locate(uint32_t table, const int64_t* ids, size_t n, uint32_t* locations) {
  return log_->Locate(table, ids, n, locations);
}
Status SsdLog::Erase(uint32_t table, const int64_t* ids, size_t n, uint8_t* erased) {
  return log_->Erase(table, ids, n, erased);
}
Status SsdLog::SetExpiry(uint32_t table, std::shared_ptr<const ExpiryRule> rule) {
  return log_->SetExpiry(table, std::move(rule));
}
Status SsdLog::DropExpired(uint32_t table, uint64_t* dropped) { return log_->DropExpired(table, dropped); }
Status SsdLog::Sync() { return log_->Sync(); }
Status SsdLog::Compact(bool all) { return log_->Compact(all); }
Status SsdLog::LinkTo(const std::string& target_directory, std::vector<std::string>* files) {
  return log_->LinkTo(target_directory, files);
}
Status SsdLog::Scan(int64_t table, const std::function<Status(const ScanBatch&)>& visitor) {
  return log_->Scan(table, visitor);
}
SsdStats SsdLog::stats() { return log_->Stats(); }

}  // namespace stepwell
