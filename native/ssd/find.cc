// Find, Locate, Scan: locations from the index, sorted, joined to extents, read with a deep queue, checked, copied.
#include <algorithm>
#include <set>

#include "ssd/log.h"

namespace stepwell::ssd {
namespace {

constexpr uint32_t kMaxExtentPages = 32;
constexpr size_t kScanRows = 4096;

// Sorts by location: three passes of 11 bits.
void SortWants(std::vector<Want>* wants) {
  if (wants->size() < 256) {
    std::sort(wants->begin(), wants->end(), [](const Want& a, const Want& b) { return a.location < b.location; });
    return;
  }
  std::vector<Want> other(wants->size());
  for (int shift = 0; shift < 33; shift += 11) {
    uint32_t at[2049] = {};
    for (const Want& want : *wants) ++at[((want.location >> shift) & 2047) + 1];
    for (int i = 0; i < 2048; ++i) at[i + 1] += at[i];
    for (const Want& want : *wants) other[at[(want.location >> shift) & 2047]++] = want;
    wants->swap(other);
  }
}

struct Extent {
  Segment* segment;
  uint64_t first_page, end_page;  // of the file
  size_t begin, end;              // wants
};

struct Pages {  // of a record in its file
  uint64_t first, last;
};
Pages PagesOf(const Geometry& geometry, uint32_t place) {
  const uint64_t base = 1 + uint64_t{geometry.BlockOf(place)} * geometry.block_pages;
  const uint32_t stream = geometry.StreamOffset(place);
  return {base + stream / kPayloadBytes, base + (stream + geometry.stored_bytes - 1) / kPayloadBytes};
}

}  // namespace

void Log::Warn(const std::string& text) {
  std::lock_guard<std::mutex> lock(warnings_mutex_);
  constexpr size_t kMaxWarnings = 1000;
  if (warnings_.size() >= kMaxWarnings) return;
  if (std::find(warnings_.begin(), warnings_.end(), text) == warnings_.end()) warnings_.push_back(text);
}

void Log::LookUp(TableState& table, const ByShard& parts, uint32_t* locations) {
  parts.ForShards(pool_, [&](uint32_t shard) {
    auto& of = table.index.shard(shard);
    SharedGuard guard(of.lock);
    parts.ForIds(table.index, shard, [&](uint32_t at, uint64_t rest) {
      const uint32_t* value = of.Find(rest);
      locations[parts.index(at)] = value == nullptr ? SsdLog::kAbsent : *value;
    });
  });
}

Status Log::Locate(uint32_t table, const int64_t* ids, size_t n, uint32_t* locations) {
  STEPWELL_RETURN_IF_ERROR(CheckTable(table));
  TableState* state = tables_.Get(table);
  if (state == nullptr) {
    std::fill(locations, locations + n, SsdLog::kAbsent);
    return Status::Ok();
  }
  LookUp(*state, ByShard(n, [&](size_t i) { return KeyOfId(ids[i]); }), locations);
  return Status::Ok();
}

Status Log::ReadRecords(std::vector<Want>* wants, const std::function<void(const Want&, const RecordView&)>& visit,
                        const std::function<void(const Want&)>& bad, uint32_t depth, ReadCounts* counts) {
  SortWants(wants);
  std::vector<Extent> extents;
  std::vector<ReadExtent> reads;
  uint64_t pages_needed = 0, records_joined = 0;
  const uint32_t max_pages = std::max(kMaxExtentPages, geometry_.block_pages);
  uint64_t last_needed = 0;
  for (size_t i = 0; i < wants->size(); ++i) {
    Segment* segment = segments_.At((*wants)[i].location);
    const uint32_t place = segments_.PlaceOf((*wants)[i].location);
    const uint32_t block = geometry_.BlockOf(place);
    if (block >= segment->written_blocks.load(std::memory_order_acquire)) {
      std::shared_ptr<Chunk> chunk;
      uint32_t first = block / writer_->blocks_per_chunk();
      {
        std::lock_guard<std::mutex> lock(segment->chunk_mutex);
        for (const auto& [number, held] : segment->chunks) {
          if (number == first) chunk = held;
        }
      }
      if (chunk != nullptr) {
        const uint32_t in_chunk = block - first * writer_->blocks_per_chunk();
        visit((*wants)[i], RecordView{chunk->data.get() + size_t{in_chunk} * geometry_.BlockBytes(),
                                      geometry_.StreamOffset(place)});
        continue;
      }  // else it was written in the meantime
    }
    const Pages pages = PagesOf(geometry_, place);
    Extent* last = extents.empty() ? nullptr : &extents.back();
    if (last != nullptr && last->segment == segment && last->end == i &&
        pages.first <= last->end_page + options_.coalesce_gap_pages &&
        std::max(last->end_page, pages.last + 1) - last->first_page <= max_pages) {
      records_joined += pages.first > last_needed;
      pages_needed += pages.last + 1 - std::min(pages.last + 1, std::max(pages.first, last_needed + 1));
      last->end_page = std::max(last->end_page, pages.last + 1);
      last->end = i + 1;
    } else {
      extents.push_back(Extent{segment, pages.first, pages.last + 1, i, i + 1});
      pages_needed += pages.last - pages.first + 1;
    }
    last_needed = pages.last;
  }
  uint64_t bytes = 0;
  for (const Extent& extent : extents) {
    const auto size = static_cast<uint32_t>((extent.end_page - extent.first_page) * kPageBytes);
    reads.push_back(ReadExtent{extent.segment->file.get(), extent.first_page * kPageBytes, size});
    bytes += size;
  }

  std::mutex error_mutex;
  Status error;
  const auto fail = [&](const Status& status) {
    if (status.code() == Code::kCorrupt) ++counters_.checksum_failures;
    Warn(status.message());
    std::lock_guard<std::mutex> lock(error_mutex);
    if (error.ok()) error = status;
  };
  // The wants of [begin, end) from pages that start at first_page.
  const auto take = [&](const Extent& extent, const std::byte* data, uint64_t first_page, size_t begin, size_t end) {
    uint64_t checked = UINT64_MAX;
    Status checked_status;
    for (size_t i = begin; i < end; ++i) {
      const Want& want = (*wants)[i];
      const uint32_t place = segments_.PlaceOf(want.location);
      const Pages pages = PagesOf(geometry_, place);
      bool good = true;
      for (uint64_t page = pages.first; page <= pages.last; ++page) {
        if (page != checked) {
          const std::byte* at = data + (page - first_page) * kPageBytes;
          checked = page;
          checked_status = PageIsGood(at, PageKind::kData, extent.segment->number(), page)
                               ? Status::Ok()
                               : CheckPage(at, PageKind::kData, extent.segment->number(), page, extent.segment->path());
          if (!checked_status.ok()) fail(checked_status);
        }
        good = good && checked_status.ok();
      }
      if (!good) {
        bad(want);
        continue;
      }
      const uint64_t block_page = 1 + uint64_t{geometry_.BlockOf(place)} * geometry_.block_pages;
      const auto ahead = static_cast<ptrdiff_t>(block_page) - static_cast<ptrdiff_t>(first_page);
      visit(want, RecordView{data + ahead * static_cast<ptrdiff_t>(kPageBytes), geometry_.StreamOffset(place)});
    }
  };
  reader_->Read(
      reads,
      [&](size_t number, const std::byte* data, const Status& status) {
        const Extent& extent = extents[number];
        if (status.ok()) {
          take(extent, data, extent.first_page, extent.begin, extent.end);
          return;
        }
        // One bad page must not take its neighbours along: every record's pages once more by themselves.
        AlignedBytes own = AllocateAligned(max_pages * kPageBytes);
        for (size_t i = extent.begin; i < extent.end; ++i) {
          const Pages pages = PagesOf(geometry_, segments_.PlaceOf((*wants)[i].location));
          const size_t size = (pages.last - pages.first + 1) * kPageBytes;
          size_t got = 0;
          Status once_more =
              own == nullptr ? status : extent.segment->file->Pread(own.get(), size, pages.first * kPageBytes, &got);
          if (once_more.ok() && got != size) once_more = status;
          if (once_more.ok()) {
            take(extent, own.get(), pages.first, i, i + 1);
          } else {
            fail(once_more);
            bad((*wants)[i]);
          }
        }
      },
      depth);
  counts->requests += reads.size();
  counts->bytes += bytes;
  counts->pages += pages_needed;
  counts->coalesced += records_joined;
  return error;
}

Status Log::Find(const std::vector<IdsOf>& parts, std::byte* out, size_t out_stride, uint8_t* found,
                 uint32_t* locations) {
  std::vector<uint64_t> starts{0};  // of each part's rows
  for (const IdsOf& part : parts) {
    STEPWELL_RETURN_IF_ERROR(CheckTable(part.table));
    starts.push_back(starts.back() + part.n);
  }
  const uint64_t n = starts.back();
  if (n > UINT32_MAX) return Status(Code::kInvalid, "a call takes at most 2^32 - 1 ids, found " + std::to_string(n));
  if (n == 0) return Status::Ok();
  if (out_stride < geometry_.record_bytes) {
    return Status(Code::kInvalid, "the output's rows are " + std::to_string(out_stride) +
                                      " bytes apart, expected at least " + std::to_string(geometry_.record_bytes));
  }
  std::vector<uint32_t> own_locations;
  if (locations == nullptr) {
    own_locations.resize(n);
    locations = own_locations.data();
  }
  const auto clear = [&](size_t i, RowState state) {
    std::memset(out + i * out_stride, 0, geometry_.record_bytes);
    found[i] = state;
  };
  Readers::Ticket ticket(readers_);
  std::vector<std::shared_ptr<const ExpiryRule>> rules(parts.size());
  for (size_t p = 0; p < parts.size(); ++p) {
    STEPWELL_RETURN_IF_ERROR(Locate(parts[p].table, parts[p].ids, parts[p].n, locations + starts[p]));
    if (TableState* state = tables_.Get(parts[p].table); state != nullptr) rules[p] = state->rule();
  }
  std::vector<Want> wants;
  wants.reserve(n);
  for (size_t i = 0; i < n; ++i) {
    if (locations[i] == SsdLog::kAbsent) {
      clear(i, kRowAbsent);
    } else {
      wants.push_back(Want{locations[i], static_cast<uint32_t>(i)});
    }
  }
  if (wants.empty()) return Status::Ok();
  counters_.rows_read += wants.size();
  std::mutex error_mutex;
  Status misplaced;
  const Status status = ReadRecords(
      &wants,
      [&](const Want& want, const RecordView& view) {
        const size_t i = want.index;
        const size_t p = static_cast<size_t>(std::upper_bound(starts.begin(), starts.end(), i) - starts.begin()) - 1;
        const uint32_t table = parts[p].table;
        const int64_t id = parts[p].ids[i - starts[p]];
        const RecordKey key = view.key();
        if (key.id != id || TableOfWord(key.word) != table || IsTombstone(key.word)) {
          clear(i, kRowUnreadable);
          Segment& segment = *segments_.At(want.location);
          const Pages pages = PagesOf(geometry_, segments_.PlaceOf(want.location));
          std::lock_guard<std::mutex> lock(error_mutex);
          misplaced = Status(Code::kCorrupt, segment.path() + ": offset " + std::to_string(pages.first * kPageBytes) +
                                                 ": found id " + std::to_string(key.id) + " of table " +
                                                 std::to_string(TableOfWord(key.word)) + ", expected id " +
                                                 std::to_string(id) + " of table " + std::to_string(table) +
                                                 "; run `stepwell store check` on the directory");
          return;
        }
        std::byte* row = out + i * out_stride;
        view.CopyRecord(row, geometry_.record_bytes);
        found[i] = kRowFound;
        if (rules[p] != nullptr && rules[p]->Expired(KeyOfId(id), FieldOr(row, options_.count_offset, 1),
                                                     FieldOr(row, options_.step_offset, UINT32_MAX))) {
          clear(i, kRowAbsent);  // its location stays: Locate gives it too
        }
      },
      [&](const Want& want) { clear(want.index, kRowUnreadable); }, 0, &counters_.reads);
  if (!status.ok()) return status;
  if (!misplaced.ok()) {
    ++counters_.checksum_failures;
    Warn(misplaced.message());
  }
  return misplaced;
}

Status Log::Scan(int64_t table, const std::function<Status(const ScanBatch&)>& visitor) {
  STEPWELL_RETURN_IF_ERROR(CheckTable(table < 0 ? 0 : static_cast<uint32_t>(table)));
  Readers::Ticket ticket(readers_);
  Status damage;
  std::vector<FooterEntry> footer;
  std::vector<std::byte> rows(kScanRows * geometry_.record_bytes);
  std::vector<int64_t> ids(kScanRows);
  std::vector<std::shared_ptr<Segment>> all;
  {
    std::lock_guard<std::mutex> lock(move_mutex_);  // or a row could be met at both its places
    all = segments_.All();
  }
  std::set<std::pair<uint64_t, int64_t>> followed;  // records read from places outside of `all`
  std::set<uint64_t> numbers;
  for (const auto& segment : all) numbers.insert(segment->number());
  for (const std::shared_ptr<Segment>& segment : all) {
    std::shared_ptr<std::vector<FooterEntry>> open_entries;
    uint32_t places = 0;
    {
      // The entries of an open segment grow under append_mutex_; those below `places` do not change any more.
      std::lock_guard<std::mutex> lock(append_mutex_);
      std::lock_guard<std::mutex> chunk_lock(segment->chunk_mutex);
      open_entries = segment->entries;
      places = segment->places.load();
    }
    if (places == 0) continue;
    if (open_entries == nullptr) {
      const Status status = LoadEntries(*segment, &footer);
      if (!status.ok()) {
        if (damage.ok()) damage = status;
        continue;
      }
    }
    const FooterEntry* entries = open_entries == nullptr ? footer.data() : open_entries->data();
    for (uint32_t begin = 0; begin < places; begin += kScanRows) {
      const uint32_t end = std::min<uint32_t>(places, begin + kScanRows);
      // By table: a batch handed out is of one table.
      std::map<uint32_t, std::vector<Want>> wants;
      std::map<uint32_t, std::vector<uint64_t>> words;
      for (uint32_t place = begin; place < end; ++place) {
        const FooterEntry entry = entries[place];
        if (entry.word == 0 || IsTombstone(entry.word)) continue;
        const uint32_t of = TableOfWord(entry.word);
        if (table >= 0 && of != static_cast<uint64_t>(table)) continue;
        TableState* state = tables_.Get(of);
        if (state == nullptr) continue;
        const uint64_t key = KeyOfId(entry.id);
        auto& shard = state->index.shard(ShardOfKey(key));
        SharedGuard guard(shard.lock);
        const uint32_t* value = shard.Find(RestOfKey(key));
        if (value == nullptr) continue;
        // Compaction may have moved the row to a segment that is not in `all`; it is then read from there.
        const bool here = *value == segments_.Location(*segment, place);
        const bool moved = !here && numbers.count(segments_.At(*value)->number()) == 0;
        // A victim that waits for its deletion names the row as well, hence once only.
        if (here || (moved && followed.emplace(uint64_t{entry.word}, int64_t{entry.id}).second)) {
          words[of].push_back(uint64_t{entry.word});
          wants[of].push_back(Want{*value, 0});
        }
      }
      for (auto& [of, list] : wants) {
        const std::vector<uint64_t>& expected = words[of];
        const std::shared_ptr<const ExpiryRule> rule = tables_.Get(of)->rule();
        for (size_t i = 0; i < list.size(); ++i) list[i].index = static_cast<uint32_t>(i);
        std::vector<uint8_t> good(list.size());
        const Status status = ReadRecords(
            &list,
            [&](const Want& want, const RecordView& view) {
              std::byte* row = rows.data() + size_t{want.index} * geometry_.record_bytes;
              view.CopyRecord(row, geometry_.record_bytes);
              const RecordKey found = view.key();
              ids[want.index] = found.id;
              if (found.word != expected[want.index]) return;  // a newer record; it is not of this moment
              good[want.index] = rule == nullptr || !rule->Expired(KeyOfId(ids[want.index]),
                                                                   FieldOr(row, options_.count_offset, 1),
                                                                   FieldOr(row, options_.step_offset, UINT32_MAX));
            },
            [](const Want&) {}, 0, &counters_.reads);
        if (!status.ok() && damage.ok()) damage = status;
        size_t n = 0;
        for (size_t i = 0; i < good.size(); ++i) {
          if (!good[i]) continue;
          ids[n] = ids[i];
          if (n != i) {
            std::memcpy(rows.data() + n * geometry_.record_bytes, rows.data() + i * geometry_.record_bytes,
                        geometry_.record_bytes);
          }
          ++n;
        }
        if (n > 0) STEPWELL_RETURN_IF_ERROR(visitor(ScanBatch{of, n, ids.data(), rows.data()}));
      }
    }
  }
  return damage;
}

}  // namespace stepwell::ssd
