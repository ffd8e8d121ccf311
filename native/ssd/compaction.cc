// Compaction: segments that are mostly stale are rewritten without what is stale, and deleted.
//
// The rows of a group of victims that fit one segment are read in small pieces, sorted by (last step, id) so that rows
// last used together lie together, and written to a segment of their own with the seqs they have. Only when that is on
// disk does the index move, row by row and only where it still names the old place.
#include <algorithm>
#include <cassert>

#include "ssd/log.h"

namespace stepwell::ssd {
namespace {

constexpr size_t kSliceRows = 1024;         // read at once, and
constexpr uint32_t kReadDepth = 4;          // reads in flight: the device belongs to others,
constexpr size_t kPressedSliceRows = 8192;  // unless somebody waits for room
constexpr size_t kWriteBytes = 256 << 10;  // written at once
constexpr double kHalf = 0.5;
constexpr double kLeastUnderPressure = 1.0 / 32;  // less stale is not worth a rewrite even when space is short
constexpr size_t kManySmall = 8;                  // segments below an eighth of the size are merged from so many on

}  // namespace

struct Log::Group {
  struct Item {
    int64_t id;
    uint64_t word;
    uint32_t last_step;
    uint32_t location;  // where it was; kAbsent: a tombstone
    uint32_t row;       // in rows
  };
  std::vector<Item> items;
  std::vector<Item> expired;
  std::vector<std::byte> rows;
  uint64_t created_seq = 0;
};

void Log::Pace() {
  const auto now = std::chrono::steady_clock::now();
  const auto spent = now - paced_;
  if (pressed_.load() == 0 && readers_.any()) {
    // As long as somebody reads, half of the time is theirs alone.
    std::this_thread::sleep_for(std::min<std::chrono::steady_clock::duration>(spent, std::chrono::milliseconds(5)));
  }
  paced_ = std::chrono::steady_clock::now();
}

uint64_t Log::TombstonesNeededFrom(const Segment& segment) const {
  uint64_t oldest = UINT64_MAX;
  for (const auto& other : segments_.All()) {
    if (other.get() != &segment) oldest = std::min(oldest, other->header.created_seq);
  }
  return oldest;
}

uint64_t Log::Kept(const Segment& segment) {
  uint64_t keep = segment.live.load();
  for (const TableSteps& steps : segment.steps) {
    TableState* state = tables_.Get(steps.table);
    const auto rule = state == nullptr ? nullptr : state->rule();
    if (rule != nullptr && steps.max_step < rule->live_from_step) keep -= std::min<uint64_t>(keep, steps.records);
  }
  if (segment.tombstones.load() > 0 && segment.max_tombstone_seq.load() > TombstonesNeededFrom(segment)) {
    keep += segment.tombstones.load();
  }
  return keep;
}

std::vector<std::shared_ptr<Segment>> Log::PickVictims(Pick pick, bool* any_urgent) {
  struct Candidate {
    double order;
    bool wanted;  // by itself, not only to be merged with others
    bool urgent;  // even where that frees nothing yet
    std::shared_ptr<Segment> segment;
  };
  std::vector<Candidate> candidates;
  std::vector<std::shared_ptr<Segment>> sealed;
  uint64_t tombstones = 0;
  for (const auto& segment : segments_.All()) {
    tombstones += segment->tombstones.load();
    if (!segment->sealed.load(std::memory_order_acquire) || segment->retired || segment->damaged) continue;
    sealed.push_back(segment);
  }
  size_t small = 0;
  for (const auto& segment : sealed) small += segment->places.load() < geometry_.max_places / 8;
  const bool merge = small >= kManySmall;
  // Tombstones stay as long as segments older than they are, so when there are many the oldest segments go first.
  uint64_t oldest = UINT64_MAX;
  if (tombstones * 4 > live_.load() + geometry_.max_places) {
    for (const auto& segment : sealed) oldest = std::min(oldest, segment->header.created_seq);
  }
  for (const auto& segment : sealed) {
    const uint64_t kept = Kept(*segment);
    const uint32_t places = segment->places.load();
    const double share = 1 - static_cast<double>(kept) / std::max<double>(1, places);
    // A block's unused end is stale as well, but a rewrite may leave it as it is.
    const bool shrinks = (kept + geometry_.records_per_block - 1) / geometry_.records_per_block <
                         places / geometry_.records_per_block;
    const bool small_one = merge && places < geometry_.max_places / 8;
    const bool urgent = segment->has_void || (segment->header.created_seq == oldest && oldest < last_seq_.load());
    bool wanted = urgent || (shrinks && share >= kHalf);
    if (pick == Pick::kPressed) wanted = wanted || (shrinks && share >= kLeastUnderPressure);
    if (pick == Pick::kDesperate) wanted = wanted || shrinks;
    if (pick == Pick::kAll) wanted = wanted || shrinks || kept < segment->records;
    if (wanted || small_one) candidates.push_back({share + (urgent || small_one ? 1 : 0), wanted, urgent, segment});
  }
  std::sort(candidates.begin(), candidates.end(),
            [](const Candidate& a, const Candidate& b) { return a.order > b.order; });
  const uint64_t used = disk_bytes_.load();
  const uint64_t room = HardLimit() > used ? HardLimit() - used : 0;
  std::vector<std::shared_ptr<Segment>> victims;
  uint64_t records = 0;
  bool any_wanted = false;
  for (const Candidate& candidate : candidates) {
    const uint64_t more = candidate.segment->live.load() + candidate.segment->tombstones.load();
    if (records + more > geometry_.max_places) continue;
    if (geometry_.FileBytes(static_cast<uint32_t>(records + more)) + kPageBytes > room) continue;
    records += more;
    any_wanted = any_wanted || candidate.wanted;
    *any_urgent = *any_urgent || candidate.urgent;
    victims.push_back(candidate.segment);
  }
  if (!any_wanted && victims.size() < 2) victims.clear();
  return victims;
}

Status Log::Gather(Segment& victim, Group* group) {
  std::vector<FooterEntry> entries;
  STEPWELL_RETURN_IF_ERROR(LoadEntries(victim, &entries));
  const uint64_t needed_from = TombstonesNeededFrom(victim);
  std::vector<Want> wants;
  std::vector<Group::Item> items;
  const auto read = [&] {
    const size_t first_row = group->rows.size() / geometry_.record_bytes;
    group->rows.resize((first_row + items.size()) * geometry_.record_bytes);
    std::vector<uint8_t> state(items.size());
    Status status = ReadRecords(
        &wants,
        [&](const Want& want, const RecordView& view) {
          Group::Item& item = items[want.index];
          item.row = static_cast<uint32_t>(first_row + want.index);
          std::byte* row = group->rows.data() + size_t{item.row} * geometry_.record_bytes;
          view.CopyRecord(row, geometry_.record_bytes);
          const RecordKey key = view.key();
          if (key.id != item.id || key.word != item.word) return;
          TableState* table = tables_.Get(TableOfWord(item.word));
          const auto rule = table->rule();
          const bool expired = rule != nullptr && rule->Expired(KeyOfId(item.id), FieldOr(row, options_.count_offset, 1),
                                                                FieldOr(row, options_.step_offset, UINT32_MAX));
          state[want.index] = expired ? 2 : 1;
        },
        [](const Want&) {}, pressed_.load() > 0 ? 0 : kReadDepth, &counters_.compaction_reads);
    for (size_t i = 0; i < items.size(); ++i) {
      if (state[i] == 0) victim.damaged = true;
      if (state[i] == 1) group->items.push_back(items[i]);
      if (state[i] == 2) group->expired.push_back(items[i]);
    }
    wants.clear();
    items.clear();
    Pace();
    return status.code() == Code::kCorrupt ? Status::Ok() : status;
  };
  for (uint32_t place = 0; place < entries.size(); ++place) {
    const FooterEntry& entry = entries[place];
    if (entry.word == 0 || TableOfWord(entry.word) >= Tables::kNumTables) continue;
    if (IsTombstone(entry.word)) {
      const uint64_t seq = SeqOfWord(entry.word);
      if (seq > needed_from && !IsVoid(voids_, seq)) {
        group->items.push_back({entry.id, entry.word, 0, SsdLog::kAbsent, 0});
      }
      continue;
    }
    TableState* table = tables_.Get(TableOfWord(entry.word));
    if (table == nullptr) continue;
    const uint32_t location = segments_.Location(victim, place);
    const uint64_t key = KeyOfId(entry.id);
    {
      auto& shard = table->index.shard(ShardOfKey(key));
      SharedGuard guard(shard.lock);
      const uint32_t* value = shard.Find(RestOfKey(key));
      if (value == nullptr || *value != location) continue;
    }
    wants.push_back({location, static_cast<uint32_t>(items.size())});
    items.push_back({entry.id, entry.word, entry.last_step, location, 0});
    if (items.size() >= (pressed_.load() > 0 ? kPressedSliceRows : kSliceRows)) STEPWELL_RETURN_IF_ERROR(read());
  }
  return items.empty() ? Status::Ok() : read();
}

Status Log::WriteOutput(Group& group, std::shared_ptr<Segment>* output) {
  assert(group.items.size() <= geometry_.max_places);  // or places would be those of the next slot
  auto made = std::make_shared<Segment>();
  made->header = SegmentHeader{segments_.NewNumber(), group.created_seq, options_.fingerprint, geometry_.record_bytes,
                               options_.count_offset, options_.step_offset, 1};
  const std::string path = options_.directory + "/" + SegmentName(made->number());
  const uint32_t per_block = geometry_.records_per_block;
  const auto blocks = static_cast<uint32_t>((group.items.size() + per_block - 1) / per_block);
  const uint32_t per_piece = std::max<uint32_t>(1, static_cast<uint32_t>(kWriteBytes / geometry_.BlockBytes()));
  std::vector<FooterEntry> entries(size_t{blocks} * per_block);
  const auto write = [&]() -> Status {
    STEPWELL_RETURN_IF_ERROR(env_->Open(path + ".tmp", Env::Mode::kCreate, options_.direct, &made->file));
    STEPWELL_RETURN_IF_ERROR(GrowDisk(made.get(), geometry_.FileBytes(blocks * per_block), HardLimit()));
    STEPWELL_RETURN_IF_ERROR(WriteHeader(*made->file, made->header));
    AlignedBytes data = AllocateAligned(size_t{per_piece} * geometry_.BlockBytes());
    if (data == nullptr) return Status(Code::kIoError, "no memory for compaction's buffer");
    for (uint32_t first = 0; first < blocks; first += per_piece) {
      const uint32_t piece = std::min(per_piece, blocks - first);
      for (uint32_t block = first; block < first + piece; ++block) {
        std::byte* at = data.get() + size_t{block - first} * geometry_.BlockBytes();
        uint32_t records = 0;
        for (; records < per_block && size_t{block} * per_block + records < group.items.size(); ++records) {
          const size_t i = size_t{block} * per_block + records;
          const Group::Item& item = group.items[i];
          const RecordKey key{item.id, item.word};
          const uint32_t stream = records * geometry_.stored_bytes;
          CopyIn(at, stream, &key, sizeof(key));
          if (item.location == SsdLog::kAbsent) {
            ZeroIn(at, stream + sizeof(key), geometry_.record_bytes);
          } else {
            CopyIn(at, stream + sizeof(key), group.rows.data() + size_t{item.row} * geometry_.record_bytes,
                   geometry_.record_bytes);
          }
          entries[i] = FooterEntry{item.id, item.word, item.last_step};
        }
        SealBlock(geometry_, made->number(), block, at, records);
      }
      STEPWELL_RETURN_IF_ERROR(made->file->Pwrite(data.get(), size_t{piece} * geometry_.BlockBytes(),
                                                  geometry_.BlockOffset(first)));
      Pace();
    }
    STEPWELL_RETURN_IF_ERROR(WriteFooter(geometry_, *made, entries));
    STEPWELL_RETURN_IF_ERROR(made->file->Datasync());
    STEPWELL_RETURN_IF_ERROR(env_->Rename(path + ".tmp", path));
    STEPWELL_RETURN_IF_ERROR(env_->Open(path, Env::Mode::kReadWrite, options_.direct, &made->file));
    made->written_blocks = blocks;
    made->live = static_cast<uint32_t>(std::count_if(
        group.items.begin(), group.items.end(), [](const auto& item) { return item.location != SsdLog::kAbsent; }));
    STEPWELL_RETURN_IF_ERROR(env_->SyncDirectory(options_.directory));
    made->sealed = true;
    return Status::Ok();
  };
  const Status status = write();
  if (!status.ok()) {
    (void)env_->Unlink(env_->Exists(path) ? path : path + ".tmp");
    SetDiskBytes(*made, 0);
    return status;
  }
  counters_.bytes_rewritten += made->disk_bytes.load();
  *output = std::move(made);
  return Status::Ok();
}

void Log::MoveIndex(Group& group, Segment* output) {
  for (size_t i = 0; i < group.items.size(); ++i) {
    const Group::Item& item = group.items[i];
    if (item.location == SsdLog::kAbsent) continue;
    const uint64_t key = KeyOfId(item.id);
    auto& shard = tables_.Get(TableOfWord(item.word))->index.shard(ShardOfKey(key));
    ExclusiveGuard guard(shard.lock);
    uint32_t* value = shard.FindMutable(RestOfKey(key));
    if (value != nullptr && *value == item.location) {
      *value = segments_.Location(*output, static_cast<uint32_t>(i));
      segments_.At(item.location)->live.fetch_sub(1);
    } else {
      // Superseded meanwhile, by a seq that the victim's dead_seq has; the copy must not outlive that either.
      output->live.fetch_sub(1);
      const uint64_t dead_seq = segments_.At(item.location)->dead_seq.load();
      if (output->dead_seq.load() < dead_seq) output->dead_seq = dead_seq;
    }
  }
  for (const Group::Item& item : group.expired) {
    const uint64_t key = KeyOfId(item.id);
    auto& shard = tables_.Get(TableOfWord(item.word))->index.shard(ShardOfKey(key));
    ExclusiveGuard guard(shard.lock);
    const uint32_t* value = shard.FindMutable(RestOfKey(key));
    if (value == nullptr || *value != item.location) continue;
    uint32_t ignored;
    shard.Erase(RestOfKey(key), &ignored);
    segments_.At(item.location)->live.fetch_sub(1);
    live_.fetch_sub(1);
    ++counters_.expired_dropped;
  }
}

Status Log::Rewrite(const std::vector<std::shared_ptr<Segment>>& victims) {
  paced_ = std::chrono::steady_clock::now();
  Group group;
  group.created_seq = last_seq_.load();  // before anything is found to be live: invariant 3
  size_t rows = 0;
  for (const auto& victim : victims) rows += victim->live.load();
  group.rows.reserve(rows * geometry_.record_bytes);
  for (const auto& victim : victims) STEPWELL_RETURN_IF_ERROR(Gather(*victim, &group));
  std::sort(group.items.begin(), group.items.end(), [](const Group::Item& a, const Group::Item& b) {
    return a.last_step != b.last_step ? a.last_step < b.last_step : a.id < b.id;
  });
  std::shared_ptr<Segment> output;
  if (!group.items.empty()) STEPWELL_RETURN_IF_ERROR(WriteOutput(group, &output));
  {
    std::lock_guard<std::mutex> lock(move_mutex_);
    const Status added = output == nullptr ? Status::Ok() : segments_.Add(output);
    if (!added.ok()) {
      (void)env_->Unlink(output->path());
      SetDiskBytes(*output, 0);
      return added;
    }
    MoveIndex(group, output.get());
  }
  // Needed tombstones are in the output. A victim may live on: its last rows were laid down by a call that the index
  // does not show yet. The next rewrite meets its tombstones again, so they still count.
  for (const auto& victim : victims) {
    if (victim->live.load() == 0) victim->tombstones = 0;
  }
  ++counters_.compactions;
  return Status::Ok();
}

void Log::RetireDead() {
  for (const auto& segment : segments_.All()) {
    if (!segment->sealed.load(std::memory_order_acquire) || segment->retired || segment->live.load() != 0) continue;
    if (segment->tombstones.load() > 0 && segment->max_tombstone_seq.load() > TombstonesNeededFrom(*segment)) continue;
    segment->retired = true;
    retired_bytes_ += segment->disk_bytes.load();
    retired_.push_back(segment);
  }
}

Status Log::DeleteRetired(bool sync, bool* freed) {
  *freed = false;
  const auto waits = [&](const auto& segment) { return segment->dead_seq.load() > synced_seq_.load(); };
  if (sync && std::any_of(retired_.begin(), retired_.end(), waits)) {
    STEPWELL_RETURN_IF_ERROR(Sync());
    ++counters_.implicit_syncs;
  }
  const auto first_waiting = std::partition(retired_.begin(), retired_.end(), [&](const auto& s) { return !waits(s); });
  if (first_waiting == retired_.begin()) return Status::Ok();
  for (auto at = retired_.begin(); at != first_waiting; ++at) segments_.Hide(**at);
  readers_.Drain();
  Status status;
  std::vector<std::shared_ptr<Segment>> left(first_waiting, retired_.end());
  for (auto at = retired_.begin(); at != first_waiting; ++at) {
    const std::shared_ptr<Segment>& segment = *at;
    const Status unlinked = env_->Unlink(segment->path());
    if (!unlinked.ok() && env_->Exists(segment->path())) {
      status = unlinked;
      segments_.Show(segment);
      left.push_back(segment);
      continue;
    }
    segments_.FreeSlot(*segment);
    retired_bytes_ -= segment->disk_bytes.load();
    SetDiskBytes(*segment, 0);
    *freed = true;
  }
  retired_ = std::move(left);
  STEPWELL_RETURN_IF_ERROR(status);
  return env_->SyncDirectory(options_.directory);
}

Status Log::CompactOnce(Pick pick, bool* progress) {
  const bool pressed = pick == Pick::kPressed || pick == Pick::kDesperate;
  const bool sync = pressed || Pressed();
  bool freed = false;
  *progress = false;
  RetireDead();
  STEPWELL_RETURN_IF_ERROR(DeleteRetired(sync, &freed));
  if (freed) {
    *progress = true;
    return Status::Ok();
  }
  bool urgent = false;
  const std::vector<std::shared_ptr<Segment>> victims = PickVictims(pick, &urgent);
  if (victims.empty()) return Status::Ok();
  const uint64_t before = disk_bytes_.load();
  STEPWELL_RETURN_IF_ERROR(Rewrite(victims));
  RetireDead();
  STEPWELL_RETURN_IF_ERROR(DeleteRetired(sync, &freed));
  *progress = !pressed || urgent || disk_bytes_.load() < before;
  return Status::Ok();
}

Status Log::Compact(bool all) {
  STEPWELL_RETURN_IF_ERROR(CheckTable(0));
  std::lock_guard<std::mutex> compaction_lock(compaction_mutex_);
  if (all) {
    {
      std::lock_guard<std::mutex> lock(append_mutex_);
      SealOpen();
    }
    STEPWELL_RETURN_IF_ERROR(Sync());
  }
  for (bool progress = true; progress;) {
    STEPWELL_RETURN_IF_ERROR(CompactOnce(all ? Pick::kAll : Pressed() ? Pick::kPressed : Pick::kHalfStale, &progress));
    if (all) STEPWELL_RETURN_IF_ERROR(Sync());
  }
  return Status::Ok();
}

void Log::CompactInBackground() {
  std::unique_lock<std::mutex> lock(background_mutex_);
  while (!stop_) {
    background_wake_.wait_for(lock, std::chrono::milliseconds(100), [this] { return stop_ || nudged_; });
    if (stop_) return;
    nudged_ = false;
    lock.unlock();
    bool progress = true;
    Status status;
    while (progress && status.ok()) {
      {
        std::lock_guard<std::mutex> compaction_lock(compaction_mutex_);
        status = CompactOnce(Pressed() ? Pick::kPressed : Pick::kHalfStale, &progress);
      }
      std::lock_guard<std::mutex> stop_lock(background_mutex_);
      if (stop_) return;
    }
    if (!status.ok() && status.code() != Code::kClosed) Warn("compaction: " + status.message());
    lock.lock();
    // Where a disk is full or failing, trying again at once would not help.
    if (!status.ok()) background_wake_.wait_for(lock, std::chrono::seconds(1), [this] { return stop_; });
  }
}

}  // namespace stepwell::ssd
