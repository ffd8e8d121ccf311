// Opening a log: which records exist, and the index over them.
//
// Sealed segments are read by their footers, the others by their pages. Of a key's records the one of the highest seq
// counts; a tombstone that is the highest means that there is none. Records of seqs after the SYNCED file's do not
// exist: in segments that were never sealed they are cut off, elsewhere their seqs are noted as void.
#include <algorithm>

#include "ssd/log.h"

namespace stepwell::ssd {

Status ScanPages(const Geometry& geometry, Segment& segment, uint32_t blocks, uint32_t step_offset,
                 uint32_t synced_blocks, std::vector<FooterEntry>* entries, std::string* damage,
                 uint32_t* good_blocks) {
  const uint32_t per_piece = std::max<uint32_t>(1, (1u << 20) / geometry.BlockBytes());
  entries->assign(size_t{blocks} * geometry.records_per_block, FooterEntry{});
  AlignedBytes data = AllocateAligned(size_t{per_piece} * geometry.BlockBytes());
  if (data == nullptr) return Status(Code::kIoError, "no memory to scan a segment; free some and try again");
  std::vector<std::byte> record(geometry.record_bytes);
  std::vector<uint8_t> good(geometry.block_pages);
  std::string pending;  // damage that counts if good blocks follow, or if the block was synced
  uint32_t last_good = 0;
  for (uint32_t first = 0; first < blocks; first += per_piece) {
    const uint32_t piece = std::min(per_piece, blocks - first);
    size_t got = 0;
    STEPWELL_RETURN_IF_ERROR(segment.file->Pread(data.get(), size_t{piece} * geometry.BlockBytes(),
                                                 geometry.BlockOffset(first), &got));
    std::memset(data.get() + got, 0, size_t{piece} * geometry.BlockBytes() - got);
    for (uint32_t block = first; block < first + piece; ++block) {
      const std::byte* at = data.get() + size_t{block - first} * geometry.BlockBytes();
      const uint64_t page0 = geometry.BlockOffset(block) / kPageBytes;
      uint32_t records = 0;
      bool any = false;
      for (uint32_t page = 0; page < geometry.block_pages; ++page) {
        const std::byte* p = at + page * kPageBytes;
        good[page] = PageIsGood(p, PageKind::kData, segment.number(), page0 + page);
        if (good[page]) {
          records = HeaderOf(p).records;
          any = true;
        } else if (pending.empty()) {
          pending = CheckPage(p, PageKind::kData, segment.number(), page0 + page, segment.path()).message();
        }
      }
      if (!any && block >= synced_blocks) continue;
      last_good = block + 1;
      if (damage != nullptr && damage->empty()) *damage = pending;
      for (uint32_t i = 0; i < std::min(records, geometry.records_per_block); ++i) {
        const uint32_t stream = i * geometry.stored_bytes;
        bool readable = true;
        for (uint32_t page = stream / kPayloadBytes; page <= (stream + geometry.stored_bytes - 1) / kPayloadBytes;
             ++page) {
          readable = readable && good[page];
        }
        if (!readable) continue;
        const RecordView view{at, stream};
        const RecordKey key = view.key();
        view.CopyRecord(record.data(), geometry.record_bytes);
        (*entries)[size_t{block} * geometry.records_per_block + i] =
            FooterEntry{key.id, key.word, IsTombstone(key.word) ? 0 : FieldOr(record.data(), step_offset, UINT32_MAX)};
      }
    }
  }
  if (good_blocks != nullptr) *good_blocks = last_good;
  return Status::Ok();
}

Status Log::LoadEntries(Segment& segment, std::vector<FooterEntry>* entries) {
  Status status = segment.damaged ? Status(Code::kCorrupt, "") : ReadFooter(geometry_, segment, entries);
  if (status.code() != Code::kCorrupt) return status;
  if (!status.message().empty()) {
    ++counters_.checksum_failures;
    Warn(status.message());
  }
  return ScanPages(geometry_, segment, segment.places / geometry_.records_per_block, options_.step_offset, 0, entries,
                   nullptr, nullptr);
}

// What a log's opening needs and the log does not keep.
class Recovery {
 public:
  explicit Recovery(Log& log) : log_(log), marker_(log.marker_.current()) {}

  Status Run() {
    std::vector<std::string> names;
    STEPWELL_RETURN_IF_ERROR(log_.env_->List(log_.options_.directory, &names));
    for (const std::string& name : names) {
      uint64_t number;
      if (name.size() > 4 && name.compare(name.size() - 4, 4, ".tmp") == 0) {
        STEPWELL_RETURN_IF_ERROR(log_.env_->Unlink(log_.options_.directory + "/" + name));
      } else if (ParseSegmentName(name, &number)) {
        STEPWELL_RETURN_IF_ERROR(Load(number));
      }
    }
    for (auto& loaded : loaded_) {
      STEPWELL_RETURN_IF_ERROR(log_.segments_.Add(loaded.segment));
      by_slot_.resize(std::max<size_t>(by_slot_.size(), loaded.segment->slot + 1));
    }
    STEPWELL_RETURN_IF_ERROR(IndexAll());
    return NoteVoids();
  }

 private:
  struct Loaded {
    std::shared_ptr<Segment> segment;
    bool scan = false;  // the footer is missing or damaged
  };
  // The words of a segment's places while the index is built; table bits left out.
  struct Words {
    uint64_t base = 0;
    std::vector<uint32_t> narrow;
    std::vector<uint64_t> wide;  // instead, when seqs lie far apart
    uint64_t At(uint32_t place) const { return wide.empty() ? base + narrow[place] : wide[place]; }
  };
  static uint64_t Rank(uint64_t word) { return SeqOfWord(word) << 1 | IsTombstone(word); }

  std::string Path(uint64_t number) const { return log_.options_.directory + "/" + SegmentName(number); }

  bool Exists(uint64_t word) const {
    return word != 0 && SeqOfWord(word) <= marker_.synced_seq && !IsVoid(log_.voids_, SeqOfWord(word));
  }

  Status CheckHeader(const SegmentHeader& header, const std::string& path) const {
    const SsdOptions& options = log_.options_;
    if (header.record_bytes == options.record_bytes && header.fingerprint == options.fingerprint) return Status::Ok();
    return Status(Code::kFormat, path + ": offset 0: holds records of " + std::to_string(header.record_bytes) +
                                     " bytes of row layout " + std::to_string(header.fingerprint) + ", expected " +
                                     std::to_string(options.record_bytes) + " bytes of layout " +
                                     std::to_string(options.fingerprint) + "; it belongs to another store");
  }

  Status Load(uint64_t number) {
    const std::string path = Path(number);
    log_.segments_.ReserveNumbers(number + 1);
    Loaded loaded;
    loaded.segment = std::make_shared<Segment>();
    Segment& segment = *loaded.segment;
    STEPWELL_RETURN_IF_ERROR(log_.env_->Open(path, Env::Mode::kReadWrite, log_.options_.direct, &segment.file));
    uint64_t bytes = 0;
    STEPWELL_RETURN_IF_ERROR(segment.file->Size(&bytes));
    AlignedBytes page = AllocateAligned(kPageBytes);
    size_t got = 0;
    STEPWELL_RETURN_IF_ERROR(segment.file->Pread(page.get(), kPageBytes, 0, &got));
    if (got < kPageBytes) std::memset(page.get() + got, 0, kPageBytes - got);
    const Status header = CheckPage(page.get(), PageKind::kSegment, number, 0, path);
    if (header.code() == Code::kFormat) return header;
    SegmentTrailer trailer{};
    const Status sealed = ReadTrailer(*segment.file, number, &trailer);
    if (!sealed.ok() && sealed.code() != Code::kCorrupt) return sealed;
    if (header.ok()) {
      segment.header = GetPayload<SegmentHeader>(page.get());
    } else if (sealed.ok()) {
      segment.header = trailer.header;
      Damaged(header.message());
    } else if (number >= marker_.next_segment) {
      return log_.env_->Unlink(path);  // made and never synced: it holds nothing that counts
    } else {
      segment.header = SegmentHeader{number,
                                     0,
                                     log_.options_.fingerprint,
                                     log_.options_.record_bytes,
                                     log_.options_.count_offset,
                                     log_.options_.step_offset,
                                     0};
      Damaged(header.message());
    }
    STEPWELL_RETURN_IF_ERROR(CheckHeader(segment.header, path));
    log_.SetDiskBytes(segment, bytes);
    const Geometry& geometry = log_.geometry_;
    if (sealed.ok()) {
      segment.places = static_cast<uint32_t>(trailer.places);
    } else {
      STEPWELL_RETURN_IF_ERROR(LoadUnsealed(segment, bytes, sealed, &loaded.scan));
      if (segment.file == nullptr) return Status::Ok();  // it held nothing that counts and is gone
    }
    if (segment.places > geometry.max_places) {
      return Status(Code::kInvalid, path + ": holds " + std::to_string(segment.places.load()) +
                                        " records, segment_bytes " + std::to_string(log_.options_.segment_bytes) +
                                        " allow " + std::to_string(geometry.max_places) + "; set at least " +
                                        std::to_string(std::max(bytes, marker_.segment_bytes)));
    }
    segment.written_blocks = segment.places / geometry.records_per_block;
    segment.sealed = true;
    loaded_.push_back(std::move(loaded));
    return Status::Ok();
  }

  // A segment without a good trailer. Either it was open when the log stopped: it is cut after its last synced record
  // and sealed. Or it was sealed and its trailer is damaged or gone: then it stays as it is (a cut may share the file).
  // A segment that holds synced records was sealed before the marker was written, unless the marker says it was open.
  Status LoadUnsealed(Segment& segment, uint64_t bytes, const Status& trailer, bool* scan) {
    const Geometry& geometry = log_.geometry_;
    const auto blocks = static_cast<uint32_t>(
        std::min<uint64_t>(geometry.max_blocks, bytes < kPageBytes ? 0 : (bytes / kPageBytes - 1) / geometry.block_pages));
    std::vector<FooterEntry> entries;
    std::string damage;
    uint32_t good_blocks = 0;
    const uint64_t synced = segment.number() == marker_.open_segment ? marker_.open_blocks : 0;
    STEPWELL_RETURN_IF_ERROR(ScanPages(geometry, segment, blocks, log_.options_.step_offset,
                                       static_cast<uint32_t>(std::min<uint64_t>(synced, blocks)), &entries, &damage,
                                       &good_blocks));
    if (!damage.empty()) Damaged(damage);
    if (synced > blocks) Damaged(Cut(segment.path(), bytes, geometry.BlockOffset(static_cast<uint32_t>(synced))));
    if (bytes >= 2 * kPageBytes && (segment.header.compacted != 0 || WasSealed(segment, bytes))) {
      Damaged(trailer.message());
      segment.places = good_blocks * geometry.records_per_block;
      segment.damaged = true;
      *scan = true;
      return Status::Ok();
    }
    // Blocks that were synced and cannot be read stay in the segment, for the checker to find and to repair.
    auto keep = static_cast<uint32_t>(std::min<uint64_t>(synced, geometry.max_blocks)) * geometry.records_per_block;
    for (uint32_t place = keep; place < good_blocks * geometry.records_per_block; ++place) {
      if (Exists(entries[place].word)) keep = place + 1;
    }
    const std::string path = segment.path();
    const bool was_open = marker_.open_blocks > 0 && segment.number() == marker_.open_segment;
    if (keep > 0 && !was_open) {
      Damaged(EndIsGone(path, bytes));
      segment.places = good_blocks * geometry.records_per_block;
      segment.damaged = true;
      *scan = true;
      return Status::Ok();
    }
    if (keep == 0) {
      log_.SetDiskBytes(segment, 0);
      segment.file.reset();
      return log_.env_->Unlink(path);
    }
    keep = (keep + geometry.records_per_block - 1) / geometry.records_per_block * geometry.records_per_block;
    entries.resize(keep);
    STEPWELL_RETURN_IF_ERROR(WriteFooter(geometry, segment, entries));
    STEPWELL_RETURN_IF_ERROR(segment.file->Datasync());
    log_.SetDiskBytes(segment, geometry.FileBytes(keep));
    return Status::Ok();
  }

  static std::string Cut(const std::string& path, uint64_t bytes, uint64_t synced_bytes) {
    return path + ": offset " + std::to_string(bytes) + ": the file ends, and was synced up to " +
           std::to_string(synced_bytes) + "; run `stepwell store check` on the directory";
  }

  // Space set aside reads as zeros; something else in the last page was a trailer.
  bool WasSealed(Segment& segment, uint64_t bytes) {
    AlignedBytes page = AllocateAligned(kPageBytes);
    size_t got = 0;
    if (!segment.file->Pread(page.get(), kPageBytes, bytes / kPageBytes * kPageBytes - kPageBytes, &got).ok()) {
      return true;
    }
    if (PageIsGood(page.get(), PageKind::kData, segment.number(), bytes / kPageBytes - 1)) return false;
    return std::any_of(page.get(), page.get() + got, [](std::byte byte) { return byte != std::byte{0}; });
  }

  void Damaged(const std::string& what) {
    ++log_.counters_.checksum_failures;
    log_.Warn(what);
  }

  Status IndexAll() {
    std::mutex mutex;
    Status error;
    const auto run = [&](size_t i) {
      const Status status = IndexOne(loaded_[i]);
      std::lock_guard<std::mutex> lock(mutex);
      if (!status.ok() && error.ok()) error = status;
    };
    if (log_.pool_ != nullptr) {
      log_.pool_->Run(loaded_.size(), run);
    } else {
      for (size_t i = 0; i < loaded_.size(); ++i) run(i);
    }
    STEPWELL_RETURN_IF_ERROR(error);
    Settle();
    return Status::Ok();
  }

  Status IndexOne(const Loaded& loaded) {
    Segment& segment = *loaded.segment;
    std::vector<FooterEntry> entries;
    STEPWELL_RETURN_IF_ERROR(log_.LoadEntries(segment, &entries));
    Summarize(entries, &segment);
    Words& words = by_slot_[segment.slot];
    words.base = segment.min_seq == UINT64_MAX ? 0 : segment.min_seq << 1;
    const bool wide = segment.max_seq > segment.min_seq && segment.max_seq - segment.min_seq >= (1u << 31) - 1;
    if (wide) words.wide.resize(entries.size());
    if (!wide) words.narrow.resize(entries.size());
    std::map<uint32_t, std::vector<uint32_t>> places;  // by table
    for (uint32_t place = 0; place < entries.size(); ++place) {
      const uint64_t word = entries[place].word;
      if (word == 0) continue;
      if (!Exists(word)) {
        segment.has_void = true;
        continue;
      }
      if (TableOfWord(word) >= Tables::kNumTables) continue;
      if (wide) words.wide[place] = Rank(word);
      if (!wide) words.narrow[place] = static_cast<uint32_t>(Rank(word) - words.base);
      places[TableOfWord(word)].push_back(place);
    }
    std::atomic<bool> no_memory{false};
    for (const auto& [table, list] : places) {
      TableState& state = *log_.tables_.GetOrMake(table);
      const ByShard parts(list.size(), [&, at = &list](size_t i) { return KeyOfId(entries[(*at)[i]].id); });
      parts.ForShards(nullptr, [&, at = &list](uint32_t shard) {
        auto& of = state.index.shard(shard);
        ExclusiveGuard guard(of.lock);
        parts.ForIds(state.index, shard, [&](uint32_t i, uint64_t rest) {
          const uint32_t place = (*at)[parts.index(i)];
          const uint32_t location = log_.segments_.Location(segment, place);
          uint32_t* value = of.FindMutable(rest);
          if (value == nullptr) {
            if (!of.Insert(rest, location)) no_memory = true;
          } else if (Newer(location, *value)) {
            *value = location;
          }
        });
      });
    }
    return no_memory ? Status(Code::kFull, "no memory for the index; free some and open again") : Status::Ok();
  }

  uint64_t RankAt(uint32_t location) const {
    const Segment& segment = *log_.segments_.At(location);
    return by_slot_[segment.slot].At(log_.segments_.PlaceOf(location));
  }
  bool Newer(uint32_t a, uint32_t b) const {
    const uint64_t rank_a = RankAt(a), rank_b = RankAt(b);
    if (rank_a != rank_b) return rank_a > rank_b;
    const uint64_t number_a = log_.segments_.At(a)->number(), number_b = log_.segments_.At(b)->number();
    return number_a != number_b ? number_a > number_b : a > b;
  }

  // Takes tombstones out of the index and counts the rows of each segment.
  void Settle() {
    log_.tables_.ForEach([&](uint32_t, TableState& state) {
      const auto settle = [&](size_t number) {
        auto& shard = state.index.shard(static_cast<uint32_t>(number));
        ExclusiveGuard guard(shard.lock);
        std::vector<uint64_t> gone;
        shard.ForEach([&](uint64_t rest, uint32_t& location) {
          if (RankAt(location) & 1) {
            gone.push_back(rest);
          } else {
            log_.segments_.At(location)->live.fetch_add(1, std::memory_order_relaxed);
          }
        });
        uint32_t ignored;
        for (const uint64_t rest : gone) shard.Erase(rest, &ignored);
        log_.live_ += shard.size();
      };
      if (log_.pool_ != nullptr) {
        log_.pool_->Run(kNumShards, settle);
      } else {
        for (size_t shard = 0; shard < kNumShards; ++shard) settle(shard);
      }
    });
  }

  // Seqs that are on disk and not synced must never count, whatever is synced later.
  Status NoteVoids() {
    uint64_t last = marker_.synced_seq;
    for (const Loaded& loaded : loaded_) last = std::max(last, loaded.segment->max_seq);
    Marker marker = marker_;
    if (last > marker.synced_seq) log_.voids_.push_back(VoidRange{marker.synced_seq + 1, last});
    std::erase_if(log_.voids_, [&](const VoidRange& range) {
      return std::none_of(loaded_.begin(), loaded_.end(), [&](const Loaded& loaded) {
        return loaded.segment->min_seq <= range.last && loaded.segment->max_seq >= range.first;
      });
    });
    if (log_.voids_.size() > kMaxVoidRanges) {
      return Status(Code::kFull, log_.options_.directory + ": " + std::to_string(log_.voids_.size()) +
                                     " crashes left records that were not synced; open it where it may compact");
    }
    marker.synced_seq = last;
    marker.next_segment = log_.segments_.next_number();
    marker.segment_bytes = log_.options_.segment_bytes;
    marker.num_voids = static_cast<uint32_t>(log_.voids_.size());
    std::fill(std::begin(marker.voids), std::end(marker.voids), VoidRange{});
    std::copy(log_.voids_.begin(), log_.voids_.end(), marker.voids);
    log_.last_seq_ = last;
    log_.synced_seq_ = last;
    const bool same = last == marker_.synced_seq && marker.num_voids == marker_.num_voids &&
                      marker.next_segment == marker_.next_segment && marker.segment_bytes == marker_.segment_bytes;
    return same ? Status::Ok() : log_.marker_.Write(marker);
  }

  Log& log_;
  const Marker marker_;
  std::vector<Loaded> loaded_;
  std::vector<Words> by_slot_;
};

Status Log::OpenMarker() {
  const std::string path = options_.directory + "/" + kMarkerName;
  if (env_->Exists(path)) {
    std::string damaged_slot;
    STEPWELL_RETURN_IF_ERROR(marker_.Open(env_, options_.directory, options_.direct, &damaged_slot));
    if (!damaged_slot.empty()) {
      ++counters_.checksum_failures;
      Warn(damaged_slot);
    }
    const Marker marker = marker_.current();
    if (marker.record_bytes != options_.record_bytes || marker.fingerprint != options_.fingerprint ||
        marker.count_offset != options_.count_offset || marker.step_offset != options_.step_offset) {
      const auto describe = [](uint32_t bytes, uint32_t count, uint32_t step, uint64_t fingerprint) {
        return std::to_string(bytes) + " bytes (count at " + std::to_string(count) + ", last step at " +
               std::to_string(step) + ", layout " + std::to_string(fingerprint) + ")";
      };
      return Status(Code::kFormat,
                    path + ": the log holds records of " +
                        describe(marker.record_bytes, marker.count_offset, marker.step_offset, marker.fingerprint) +
                        ", expected " +
                        describe(options_.record_bytes, options_.count_offset, options_.step_offset,
                                 options_.fingerprint) +
                        "; open it with its own row layout or choose another directory");
    }
    voids_.assign(marker.voids, marker.voids + std::min(marker.num_voids, kMaxVoidRanges));
    return Status::Ok();
  }
  std::vector<std::string> names;
  STEPWELL_RETURN_IF_ERROR(env_->List(options_.directory, &names));
  for (const std::string& name : names) {
    uint64_t number;
    if (!ParseSegmentName(name, &number)) continue;
    return Status(Code::kCorrupt, path + ": is missing, but " + name +
                                      " is there: run `stepwell store check --repair`, which keeps every intact record");
  }
  if (!options_.create) {
    return Status(Code::kInvalid, options_.directory + ": holds no log; name the right directory, or let it be created");
  }
  Marker marker{};
  marker.fingerprint = options_.fingerprint;
  marker.segment_bytes = options_.segment_bytes;
  marker.record_bytes = options_.record_bytes;
  marker.count_offset = options_.count_offset;
  marker.step_offset = options_.step_offset;
  return marker_.Create(env_, options_.directory, options_.direct, marker);
}

Status Log::Recover() { return Recovery(*this).Run(); }

}  // namespace stepwell::ssd
