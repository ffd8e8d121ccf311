// Append and Erase: room is made first, then records are laid into chunks, then the index shows them.
#include <algorithm>

#include "ssd/log.h"

namespace stepwell::ssd {
namespace {

constexpr size_t kParallelFill = 2048;  // records from which on a chunk is filled by all threads

void LayRecord(const Geometry& geometry, std::byte* chunk, uint32_t chunk_first, uint32_t place, const RecordKey& key,
               const std::byte* record) {
  std::byte* block = chunk + size_t{geometry.BlockOf(place) - chunk_first} * geometry.BlockBytes();
  const uint32_t at = geometry.StreamOffset(place);
  if (geometry.block_pages == 1) {
    std::byte* to = block + kHeaderBytes + at;
    std::memcpy(to, &key, sizeof(key));
    if (record != nullptr) {
      std::memcpy(to + sizeof(key), record, geometry.record_bytes);
    } else {
      std::memset(to + sizeof(key), 0, geometry.record_bytes);
    }
    return;
  }
  CopyIn(block, at, &key, sizeof(key));
  if (record != nullptr) {
    CopyIn(block, at + sizeof(key), record, geometry.record_bytes);
  } else {
    ZeroIn(block, at + sizeof(key), geometry.record_bytes);
  }
}

void RaiseTo(std::atomic<uint64_t>& value, uint64_t least) {
  uint64_t seen = value.load(std::memory_order_relaxed);
  while (seen < least && !value.compare_exchange_weak(seen, least, std::memory_order_relaxed)) {
  }
}

}  // namespace

Status Log::CheckTable(uint32_t table) const {
  if (closed_) return Status(Code::kClosed, options_.directory + ": the log is closed");
  if (table < Tables::kNumTables) return Status::Ok();
  return Status(Code::kInvalid, "table " + std::to_string(table) + " is out of range, expected 0 to " +
                                    std::to_string(Tables::kNumTables - 1));
}

Status Log::Append(uint32_t table, const int64_t* ids, const std::byte* records, size_t stride, size_t n) {
  STEPWELL_RETURN_IF_ERROR(CheckTable(table));
  if (n == 0) return Status::Ok();
  if (records == nullptr || stride < geometry_.record_bytes) {
    return Status(Code::kInvalid, "records are " + std::to_string(stride) + " bytes apart, expected at least " +
                                      std::to_string(geometry_.record_bytes));
  }
  return Write(table, ids, records, stride, n, nullptr);
}

Status Log::Erase(uint32_t table, const int64_t* ids, size_t n, uint8_t* erased) {
  STEPWELL_RETURN_IF_ERROR(CheckTable(table));
  if (erased != nullptr) std::fill(erased, erased + n, uint8_t{0});
  TableState* state = tables_.Get(table);
  if (n == 0 || state == nullptr) return Status::Ok();
  // Only rows that are there need a tombstone.
  std::vector<uint32_t> locations(n);
  LookUp(*state, ByShard(n, [&](size_t i) { return KeyOfId(ids[i]); }), locations.data());
  std::vector<int64_t> present;
  std::vector<uint32_t> index;
  for (size_t i = 0; i < n; ++i) {
    if (locations[i] == SsdLog::kAbsent) continue;
    present.push_back(ids[i]);
    index.push_back(static_cast<uint32_t>(i));
  }
  if (present.empty()) return Status::Ok();
  std::vector<uint8_t> gone(present.size());
  STEPWELL_RETURN_IF_ERROR(Write(table, present.data(), nullptr, 0, present.size(), gone.data()));
  for (size_t i = 0; erased != nullptr && i < present.size(); ++i) erased[index[i]] = gone[i];
  return Status::Ok();
}

std::vector<uint32_t> Log::KeepLast(const ByShard& parts, const int64_t* ids, size_t n) const {
  std::vector<uint8_t> dropped(n);
  std::atomic<bool> any{false};
  parts.ForShards(pool_, [&](uint32_t shard) {
    const uint32_t count = parts.end(shard) - parts.begin(shard);
    size_t slots = 8;
    while (slots < size_t{count} * 2) slots *= 2;
    thread_local std::vector<uint32_t> seen;
    seen.assign(slots, UINT32_MAX);
    for (uint32_t at = parts.begin(shard); at < parts.end(shard); ++at) {
      const uint32_t i = parts.index(at);
      size_t slot = parts.key(at) & (slots - 1);
      while (seen[slot] != UINT32_MAX && ids[seen[slot]] != ids[i]) slot = (slot + 1) & (slots - 1);
      if (seen[slot] != UINT32_MAX) {
        dropped[seen[slot]] = 1;
        any.store(true, std::memory_order_relaxed);
      }
      seen[slot] = i;
    }
  });
  std::vector<uint32_t> kept;
  if (!any.load()) return kept;
  for (size_t i = 0; i < n; ++i) {
    if (!dropped[i]) kept.push_back(static_cast<uint32_t>(i));
  }
  return kept;
}

Status Log::Write(uint32_t table, const int64_t* ids, const std::byte* records, size_t stride, size_t n,
                  uint8_t* erased) {
  if (n > UINT32_MAX) return Status(Code::kInvalid, "a call takes at most 2^32 - 1 rows, found " + std::to_string(n));
  const bool tombstone = records == nullptr;
  TableState& state = *tables_.GetOrMake(table);
  const ByShard parts(n, [&](size_t i) { return KeyOfId(ids[i]); });
  const std::vector<uint32_t> kept = KeepLast(parts, ids, n);
  const size_t count = kept.empty() ? n : kept.size();

  std::unique_lock<std::mutex> lock(append_mutex_);
  if (closed_) return Status(Code::kClosed, options_.directory + ": the log is closed");
  STEPWELL_RETURN_IF_ERROR(MakeRoom(lock, count, tombstone));
  const uint64_t seq = last_seq_.load() + 1;
  if (seq > kMaxSeq) return Status(Code::kFull, options_.directory + ": 2^48 calls were written; copy the rows over");
  std::vector<uint32_t> locations(n, SsdLog::kAbsent);
  STEPWELL_RETURN_IF_ERROR(
      Fill(kept, ids, records, stride, count, MakeWord(seq, tombstone, table), &locations));

  std::atomic<bool> no_memory{false};
  parts.ForShards(pool_, [&](uint32_t shard) {
    auto& of = state.index.shard(shard);
    int64_t grown = 0;
    ExclusiveGuard guard(of.lock);
    parts.ForIds(state.index, shard, [&](uint32_t at, uint64_t rest) {
      const uint32_t i = parts.index(at);
      if (locations[i] == SsdLog::kAbsent) return;
      uint32_t* value = of.FindMutable(rest);
      if (value != nullptr) {
        Segment& old = *segments_.At(*value);
        RaiseTo(old.dead_seq, seq);
        old.live.fetch_sub(1, std::memory_order_relaxed);
        if (!tombstone) {
          *value = locations[i];
        } else {
          uint32_t ignored;
          of.Erase(rest, &ignored);
          --grown;
          erased[i] = 1;
        }
      } else if (!tombstone) {
        if (of.Insert(rest, locations[i])) {
          ++grown;
        } else {
          segments_.At(locations[i])->live.fetch_sub(1, std::memory_order_relaxed);
          no_memory.store(true, std::memory_order_relaxed);
        }
      }
    });
    live_.fetch_add(static_cast<uint64_t>(grown), std::memory_order_relaxed);
  });
  last_seq_.store(seq);
  if (no_memory.load()) {
    return Status(Code::kFull, "no memory for the index of table " + std::to_string(table) +
                                   "; rows of this call that were new may be missing: free memory and append it again");
  }
  return Status::Ok();
}

Status Log::Fill(const std::vector<uint32_t>& kept, const int64_t* ids, const std::byte* records, size_t stride,
                 size_t count, uint64_t word, std::vector<uint32_t>* locations) {
  const bool tombstone = IsTombstone(word);
  const uint32_t per_chunk = writer_->blocks_per_chunk();
  bool stalled = false;
  for (size_t done = 0; done < count;) {
    if (open_ == nullptr) {
      open_ = prepared_.front();
      prepared_.erase(prepared_.begin());
      open_entries_ = std::make_shared<std::vector<FooterEntry>>(geometry_.max_places);
      {
        std::lock_guard<std::mutex> lock(open_->chunk_mutex);
        open_->entries = open_entries_;
      }
      next_place_ = flushed_block_ = chunk_first_ = 0;
    }
    if (chunk_ == nullptr) {
      chunk_ = writer_->TakeChunk(&stalled);
      if (chunk_ == nullptr) return Status(Code::kFull, "no memory for a write buffer; free some and try again");
      chunk_first_ = geometry_.BlockOf(next_place_) / per_chunk * per_chunk;
      std::lock_guard<std::mutex> lock(open_->chunk_mutex);
      open_->chunks.emplace_back(chunk_first_ / per_chunk, chunk_);
    }
    const uint32_t chunk_end =
        std::min(chunk_first_ + per_chunk, geometry_.max_blocks) * geometry_.records_per_block;
    const auto part = static_cast<uint32_t>(std::min<size_t>(count - done, chunk_end - next_place_));
    const uint32_t first_place = next_place_;
    const auto lay = [&](uint32_t begin, uint32_t end) {
      for (uint32_t k = begin; k < end; ++k) {
        const size_t i = kept.empty() ? done + k : kept[done + k];
        const std::byte* record = tombstone ? nullptr : records + i * stride;
        const uint32_t place = first_place + k;
        LayRecord(geometry_, chunk_->data.get(), chunk_first_, place, RecordKey{ids[i], word}, record);
        const uint32_t step = tombstone ? 0 : FieldOr(record, options_.step_offset, UINT32_MAX);
        (*open_entries_)[place] = FooterEntry{ids[i], word, step};
        (*locations)[i] = segments_.Location(*open_, place);
      }
    };
    const uint32_t threads = pool_ == nullptr ? 1 : static_cast<uint32_t>(pool_->num_threads());
    if (threads == 1 || part < kParallelFill) {
      lay(0, part);
    } else {
      pool_->Run(threads, [&](size_t task) {
        lay(static_cast<uint32_t>(uint64_t{part} * task / threads),
            static_cast<uint32_t>(uint64_t{part} * (task + 1) / threads));
      });
    }
    open_->live.fetch_add(tombstone ? 0 : part);
    if (tombstone) {
      open_->tombstones.fetch_add(part);
      open_->max_tombstone_seq = SeqOfWord(word);
    }
    next_place_ += part;
    open_->places = next_place_;
    unsynced_.insert(open_);
    done += part;
    if (next_place_ == chunk_end) FlushChunk(geometry_.records_per_block, true);
    if (next_place_ == geometry_.max_places) SealOpen();
  }
  if (stalled) ++counters_.write_stalls;
  return Status::Ok();
}

void Log::FlushChunk(uint32_t last_records, bool chunk_done) {
  const uint32_t end = next_place_ / geometry_.records_per_block;
  if (chunk_ == nullptr || (end == flushed_block_ && !chunk_done)) return;
  WriteJob job;
  job.segment = open_;
  job.chunk = chunk_;
  job.chunk_first = chunk_first_;
  job.begin = flushed_block_;
  job.end = end;
  job.last_records = last_records;
  job.chunk_done = chunk_done;
  writer_->Push(std::move(job));
  flushed_block_ = end;
  if (chunk_done) chunk_.reset();
}

void Log::EndBlock() {
  if (open_ == nullptr || chunk_ == nullptr) return;
  uint32_t records = next_place_ % geometry_.records_per_block;
  if (records == 0) {
    records = geometry_.records_per_block;
  } else {
    next_place_ += geometry_.records_per_block - records;
    open_->places = next_place_;
  }
  const uint32_t block = next_place_ / geometry_.records_per_block;
  FlushChunk(records, block == chunk_first_ + writer_->blocks_per_chunk() || next_place_ == geometry_.max_places);
  if (next_place_ == geometry_.max_places) SealOpen();
}

void Log::SealOpen() {
  if (open_ == nullptr || next_place_ == 0) return;
  EndBlock();
  if (open_ == nullptr) return;  // the block was the segment's last
  FlushChunk(geometry_.records_per_block, true);
  WriteJob job;
  job.segment = open_;
  job.seal = true;
  job.places = next_place_;
  writer_->Push(std::move(job));
  unsynced_.insert(open_);
  open_.reset();
  open_entries_.reset();
}

// ---- space ----

namespace {
constexpr uint64_t kFixedBytes = 4 * kPageBytes;  // SYNCED, LOCK and the directory itself
constexpr uint64_t kFileBytes = kPageBytes;       // a segment's share of the file system's own blocks
constexpr uint64_t kAllocateStep = uint64_t{4} << 20;
}  // namespace

uint64_t Log::HardLimit() const { return options_.budget_bytes == 0 ? UINT64_MAX : options_.budget_bytes - kFixedBytes; }

uint64_t Log::SoftLimit() {
  const uint64_t segment = geometry_.FileBytes(geometry_.max_places);
  return std::min(HardLimit(), std::max(2 * live_.load() * geometry_.record_bytes, 6 * segment));
}

Status Log::FullStatus(uint64_t need, uint64_t limit) {
  return Status(Code::kFull, options_.directory + ": the disk budget is " + std::to_string(options_.budget_bytes) +
                                 " bytes and " + std::to_string(disk_bytes_.load()) + " are in use; " +
                                 std::to_string(need) + " more are needed, at most " + std::to_string(limit) +
                                 " may be used by rows and nothing stale is left to reclaim: raise budget_bytes, "
                                 "expire or erase rows");
}

void Log::SetDiskBytes(Segment& segment, uint64_t bytes) {
  const auto cost = [](uint64_t file) { return file == 0 ? 0 : file + kFileBytes; };
  const uint64_t old = segment.disk_bytes.exchange(bytes);
  RaiseTo(peak_disk_bytes_, disk_bytes_.fetch_add(cost(bytes) - cost(old)) + cost(bytes) - cost(old));
}

Status Log::GrowDisk(Segment* segment, uint64_t bytes, uint64_t limit) {
  const uint64_t old = segment->disk_bytes.load();
  if (bytes <= old) return Status::Ok();
  const uint64_t extra = bytes - old + (old == 0 ? kFileBytes : 0);
  uint64_t used = disk_bytes_.load();
  do {
    if (used + extra > limit) return FullStatus(extra, limit);
  } while (!disk_bytes_.compare_exchange_weak(used, used + extra));
  const Status status = segment->file->Allocate(bytes);
  if (!status.ok()) {
    (void)segment->file->Truncate(old);  // gives back what the system had set aside before it gave up
    disk_bytes_.fetch_sub(extra);
    return status;
  }
  segment->disk_bytes.store(bytes);
  RaiseTo(peak_disk_bytes_, used + extra);
  return Status::Ok();
}

Status Log::NewSegment(uint64_t limit, uint32_t places, std::shared_ptr<Segment>* segment) {
  const uint64_t largest = geometry_.FileBytes(geometry_.max_places);
  auto made = std::make_shared<Segment>();
  made->header = SegmentHeader{segments_.NewNumber(), last_seq_.load(), options_.fingerprint, geometry_.record_bytes,
                               options_.count_offset, options_.step_offset, 0};
  const std::string path = options_.directory + "/" + SegmentName(made->number());
  STEPWELL_RETURN_IF_ERROR(env_->Open(path, Env::Mode::kCreate, options_.direct, &made->file));
  const uint64_t bytes = geometry_.FileBytes(places);
  Status status = GrowDisk(made.get(), std::min(largest, (bytes + kAllocateStep - 1) / kAllocateStep * kAllocateStep),
                           limit);
  if (status.ok()) status = WriteHeader(*made->file, made->header);
  if (status.ok()) status = segments_.Add(made);
  if (!status.ok()) {
    (void)env_->Unlink(path);
    SetDiskBytes(*made, 0);
    return status;
  }
  directory_changed_ = true;
  *segment = std::move(made);
  return Status::Ok();
}

Status Log::Prepare(size_t records, uint64_t limit) {
  const uint64_t largest = geometry_.FileBytes(geometry_.max_places);
  const auto grow = [&](Segment& segment, uint32_t places) {
    const uint64_t bytes = geometry_.FileBytes(places);
    if (bytes <= segment.disk_bytes.load()) return Status::Ok();
    return GrowDisk(&segment, std::min(largest, (bytes + kAllocateStep - 1) / kAllocateStep * kAllocateStep), limit);
  };
  const auto take = [&](uint32_t room) {
    const auto part = static_cast<uint32_t>(std::min<size_t>(records, room));
    records -= part;
    return part;
  };
  if (open_ != nullptr) {
    const uint32_t part = take(geometry_.max_places - next_place_);
    STEPWELL_RETURN_IF_ERROR(grow(*open_, next_place_ + part));
  }
  for (auto& segment : prepared_) STEPWELL_RETURN_IF_ERROR(grow(*segment, take(geometry_.max_places)));
  while (records > 0) {
    std::shared_ptr<Segment> segment;
    STEPWELL_RETURN_IF_ERROR(NewSegment(limit, take(geometry_.max_places), &segment));
    prepared_.push_back(std::move(segment));
  }
  return Status::Ok();
}

Status Log::MakeRoom(std::unique_lock<std::mutex>& lock, size_t records, bool tombstone) {
  // Compaction always keeps a segment's room, or it could never make any; and so does Erase, or a full log could not
  // be emptied.
  const uint64_t reserve = (tombstone ? 1 : 2) * (geometry_.FileBytes(geometry_.max_places) + kFileBytes);
  STEPWELL_RETURN_IF_ERROR(writer_->Probe());
  bool soft = true, stalled = false;
  uint64_t waited_for = UINT64_MAX;
  while (true) {
    const size_t had = prepared_.size();
    const Status status = Prepare(records, (soft ? SoftLimit() : HardLimit()) - reserve);
    if (status.ok()) break;
    if (status.code() != Code::kFull && status.code() != Code::kDiskFull) return status;
    // Segments made for this call in vain go back, so that what they held can serve compaction.
    while (prepared_.size() > had) {
      const std::shared_ptr<Segment> segment = prepared_.back();
      prepared_.pop_back();
      segments_.Hide(*segment);
      segments_.FreeSlot(*segment);
      SetDiskBytes(*segment, 0);
      (void)env_->Unlink(segment->path());
    }
    stalled = true;
    const uint64_t used = disk_bytes_.load();
    lock.unlock();
    bool progress = false;
    ++pressed_;
    Status compacted;
    {
      std::lock_guard<std::mutex> compaction_lock(compaction_mutex_);
      compacted = CompactOnce(tombstone ? Pick::kDesperate : Pick::kPressed, &progress);
    }
    --pressed_;
    lock.lock();
    if (closed_) return Status(Code::kClosed, options_.directory + ": the log is closed");
    // The background may have made the room while this call waited for its turn.
    if ((compacted.ok() && progress) || disk_bytes_.load() < used) continue;
    // Segments that wait to be sealed cannot be compacted yet: on a busy machine that may be all that are stale.
    const uint64_t last_job = writer_->last_job();
    if (last_job != waited_for) {
      lock.unlock();
      const Status written = writer_->WaitFor(last_job);
      lock.lock();
      if (closed_) return Status(Code::kClosed, options_.directory + ": the log is closed");
      STEPWELL_RETURN_IF_ERROR(written);
      waited_for = last_job;
      continue;
    }
    if (soft && status.code() == Code::kFull) {
      soft = false;  // the live rows themselves want the room: up to the budget they may have it
      continue;
    }
    if (compacted.ok()) return status;
    return Status(compacted.code(), status.message() + "; compaction cannot make room: " + compacted.message());
  }
  if (stalled) ++counters_.space_stalls;
  return Status::Ok();
}

}  // namespace stepwell::ssd
