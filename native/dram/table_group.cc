#include "dram/table_group.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <string>

#include "dram/for_shards.h"

namespace stepwell {

namespace {

constexpr size_t kChunk = 2048;     // ids whose shards are locked together
constexpr size_t kLeastRun = 1024;  // positions that are worth a task
constexpr size_t kGroup = 32;       // ids whose memory is asked for at a time
constexpr size_t kAhead = 16;       // rows asked for before the one that is used

// The shards that a chunk of keys needs, locked together, so that keys need not be sorted by shard. Whoever holds several
// locks holds them shared, and those who lock exclusively hold one: nobody waits in a circle.
template <class Index>
class ShardsOf {
 public:
  ShardsOf(Index& index, const uint64_t* keys, size_t n) : index_(index) {
    for (size_t i = 0; i < n; ++i) wanted_[keys[i] >> 62] |= uint64_t{1} << ((keys[i] >> 56) & 63);
    ForEach([](auto& shard) { shard.lock.LockShared(); });
  }
  ~ShardsOf() {
    ForEach([](auto& shard) { shard.lock.UnlockShared(); });
  }
  ShardsOf(const ShardsOf&) = delete;
  ShardsOf& operator=(const ShardsOf&) = delete;

 private:
  template <class Visit>
  void ForEach(Visit&& visit) {
    for (uint32_t word = 0; word < 4; ++word) {
      for (uint64_t bits = wanted_[word]; bits != 0; bits &= bits - 1) {
        visit(index_.shard(word * 64 + static_cast<uint32_t>(std::countr_zero(bits))));
      }
    }
  }
  Index& index_;
  uint64_t wanted_[4] = {};
};

// visit(i, value pointer or nullptr) for each key, then after_group(first, last): by then what visit asked for is near.
// Requires: the keys' shards are locked.
template <class Index, class Visit, class AfterGroup>
void FindKeys(Index& index, const uint64_t* keys, size_t n, Visit&& visit, AfterGroup&& after_group) {
  using Line = std::remove_pointer_t<decltype(index.shard(0).Ask(0))>;
  struct Group {
    Line* lines[kGroup];
    uint32_t behind[kGroup];  // positions of keys that are not in their home lines
    size_t num_behind = 0;
  };
  Group groups[2];
  const auto ask = [&](size_t first, Group& group) {
    for (size_t i = first; i < std::min(first + kGroup, n); ++i) {
      auto& shard = index.shard(ShardOfKey(keys[i]));
      group.lines[i - first] = shard.size() == 0 ? nullptr : shard.Ask(RestOfKey(keys[i]));
    }
  };
  const auto look_behind = [&](Group& group) {
    for (size_t s = 0; s < group.num_behind; ++s) {
      const size_t i = group.behind[s];
      visit(i, index.shard(ShardOfKey(keys[i])).FindMutable(RestOfKey(keys[i])));
    }
    group.num_behind = 0;
  };
  ask(0, groups[0]);
  size_t turn = 0;
  for (size_t first = 0; first < n; first += kGroup, turn ^= 1) {
    Group& now = groups[turn];
    Group& other = groups[turn ^ 1];  // the one before, then the next
    look_behind(other);
    ask(first + kGroup, other);
    for (size_t i = first; i < std::min(first + kGroup, n); ++i) {
      Line* line = now.lines[i - first];
      bool spilled = false;
      const uint32_t* value = nullptr;
      if (line != nullptr) value = index.shard(ShardOfKey(keys[i])).FindAtHome(line, RestOfKey(keys[i]), &spilled);
      if (spilled) {
        now.behind[now.num_behind++] = static_cast<uint32_t>(i);
      } else {
        visit(i, value);
      }
    }
    if (first > 0) after_group(first - kGroup, first);
  }
  look_behind(groups[turn ^ 1]);
  if (n > 0) after_group((n - 1) / kGroup * kGroup, n);
}

}  // namespace

void TableGroup::ForRuns(const int64_t* starts, const std::function<void(size_t, size_t, size_t)>& visit) const {
  const size_t n = static_cast<size_t>(starts[members_.size()]);
  if (n == 0) return;
  const size_t threads = static_cast<size_t>(pool_->num_threads());
  const size_t tasks = threads == 1 ? 1 : std::min(threads * 4, (n + kLeastRun - 1) / kLeastRun);
  pool_->Run(tasks, [&](size_t task) {
    size_t at = n * task / tasks;
    const size_t end = n * (task + 1) / tasks;
    size_t m = static_cast<size_t>(std::upper_bound(starts, starts + members_.size() + 1, static_cast<int64_t>(at)) -
                                   starts) - 1;
    for (; at < end; ++m) {
      const size_t last = std::min(end, static_cast<size_t>(starts[m + 1]));
      if (at < last) visit(m, at, last);
      at = last;
    }
  });
}

size_t TableGroup::Pin(const Batch& batch, uint64_t* addresses) const {
  std::atomic<size_t> absent{0};
  ForRuns(batch.starts, [&](size_t m, size_t first, size_t last) {
    DramTable& core = *members_[m].core;
    auto& index = core.tables_[members_[m].table]->index;
    RowArena& arena = *core.arena_;
    uint64_t keys[kChunk];
    uint32_t positions[kChunk];
    size_t missing = 0;
    while (first < last) {
      size_t n = 0;
      for (; first < last && n < kChunk; ++first) {
        if (batch.slots[first] != kNoSlot) continue;
        keys[n] = KeyOfId(batch.ids[first]);
        positions[n++] = static_cast<uint32_t>(first);
      }
      const ShardsOf lock(index, keys, n);
      FindKeys(
          index, keys, n,
          [&](size_t i, const uint32_t* value) {
            if (value == nullptr) {
              ++missing;
              return;
            }
            arena.AskForMark(*value);
            batch.slots[positions[i]] = *value;
          },
          [&](size_t from, size_t to) {
            for (size_t i = from; i < to; ++i) {
              const uint32_t slot = batch.slots[positions[i]];
              if (slot == kNoSlot) continue;
              arena.Pin(slot);
              addresses[positions[i]] = reinterpret_cast<uint64_t>(arena.row(slot));
            }
          });
    }
    absent += missing;
  });
  return absent;
}

Status TableGroup::Place(const Batch& batch, const uint32_t* positions, const uint64_t* sources, size_t n,
                         uint64_t* addresses, size_t* fresh_clean, size_t* fresh_new) const {
  *fresh_clean = *fresh_new = 0;
  struct Part {  // of positions
    size_t member, first, last;
  };
  std::vector<Part> parts;
  for (size_t m = 0, at = 0; m < members_.size() && at < n; ++m) {
    const size_t first = at;
    at = static_cast<size_t>(std::lower_bound(positions + at, positions + n,
                                              static_cast<uint64_t>(batch.starts[m + 1])) - positions);
    if (at > first) parts.push_back({m, first, at});
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    const size_t rows = parts[i].last - parts[i].first;
    RowArena& arena = *members_[parts[i].member].core->arena_;
    if (arena.Reserve(rows)) continue;
    for (size_t j = 0; j < i; ++j) {
      members_[parts[j].member].core->arena_->Unreserve(parts[j].last - parts[j].first);
    }
    return Status(Code::kFull, "the DRAM tier has room for " + std::to_string(arena.rows_left()) + " of " +
                                   std::to_string(rows) + " rows of " + std::to_string(arena.stride()) +
                                   " bytes (it holds " + std::to_string(arena.max_rows()) +
                                   "); raise its budget_bytes or let rows expire");
  }
  // A large part is shared by the threads, each with shards of its own.
  const size_t threads = static_cast<size_t>(pool_->num_threads());
  const size_t split = std::bit_ceil(std::min<size_t>(threads, std::max<size_t>(1, n / (8 * kLeastRun))));
  std::atomic<size_t> clean{0}, born{0};
  std::atomic<bool> no_memory{false};
  pool_->Run(parts.size() * split, [&](size_t task) {
    const Part& part = parts[task / split];
    const size_t mine = task % split;
    DramTable& core = *members_[part.member].core;
    DramTable::Table& table = *core.tables_[members_[part.member].table];
    RowArena& arena = *core.arena_;
    struct Row {
      uint64_t key;
      size_t at;  // in positions
    };
    std::vector<Row> rows;
    rows.reserve(part.last - part.first);
    for (size_t at = part.first; at < part.last; ++at) {
      const uint64_t key = KeyOfId(batch.ids[positions[at]]);
      if (ShardOfKey(key) * split / kNumShards == mine) rows.push_back({key, at});
    }
    if (rows.empty()) return;
    std::sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.key < b.key; });
    std::vector<uint32_t> slots(rows.size());
    arena.Take(slots.size(), slots.data());
    // Rows are whole before the index names them.
    std::vector<int64_t> new_ids;
    std::vector<std::byte*> new_rows;
    for (size_t i = 0; i < rows.size(); ++i) {
      if (sources[rows[i].at] == 0) {
        new_ids.push_back(batch.ids[positions[rows[i].at]]);
        new_rows.push_back(arena.row(slots[i]));
      } else {
        std::memcpy(arena.row(slots[i]), reinterpret_cast<const std::byte*>(sources[rows[i].at]), arena.stride());
      }
    }
    core.PlaceFirstValues(table, new_ids.data(), new_rows.data(), new_ids.size());
    std::vector<uint32_t> unused;
    size_t placed_clean = 0, placed_new = 0;
    for (size_t i = 0; i < rows.size();) {
      const uint32_t number = ShardOfKey(rows[i].key);
      auto& shard = table.index.shard(number);
      ExclusiveGuard guard(shard.lock);
      for (; i < rows.size() && ShardOfKey(rows[i].key) == number; ++i) {
        const uint64_t rest = RestOfKey(rows[i].key);
        const uint32_t position = positions[rows[i].at];
        uint32_t slot = slots[i];
        if (const uint32_t* there = shard.Find(rest); there != nullptr) {
          unused.push_back(slot);
          slot = *there;
        } else if (shard.Insert(rest, slot)) {
          ++(sources[rows[i].at] == 0 ? placed_new : placed_clean);
        } else {
          unused.push_back(slot);
          no_memory = true;
          continue;
        }
        arena.Pin(slot);
        batch.slots[position] = slot;
        addresses[position] = reinterpret_cast<uint64_t>(arena.row(slot));
      }
    }
    arena.Free(unused.data(), unused.size());
    clean += placed_clean;
    born += placed_new;
  });
  *fresh_clean = clean;
  *fresh_new = born;
  if (no_memory) return Status(Code::kFull, "the system has no memory for the index of the DRAM tier");
  return Status::Ok();
}

size_t TableGroup::Begin(const Batch& batch) const {
  std::atomic<size_t> reborn{0};
  ForRuns(batch.starts, [&](size_t m, size_t first, size_t last) {
    DramTable& core = *members_[m].core;
    DramTable::Table& table = *core.tables_[members_[m].table];
    const std::shared_ptr<const ExpiryRule> rule = core.Rule(table);
    if (rule->empty()) return;
    for (size_t i = first; i < last; ++i) {
      if (i + kAhead < last) core.PrefetchRow(batch.slots[i + kAhead], core.options_.count_offset, 8);
      std::byte* row = core.arena_->row(batch.slots[i]);
      const uint64_t key = KeyOfId(batch.ids[i]);
      if (core.CountOf(row) == 0 || core.Live(*rule, key, row)) continue;
      // Readers who know an older rule may be copying it.
      ExclusiveGuard guard(table.index.shard(ShardOfKey(key)).lock);
      core.PlaceFirstValues(table, &batch.ids[i], &row, 1);
      core.arena_->ClearDirty(batch.slots[i]);
      ++reborn;
    }
  });
  return reborn;
}

std::vector<uint32_t> TableGroup::Unborn(const Batch& batch, const uint8_t* wanted) const {
  std::vector<uint32_t> positions;
  for (size_t m = 0; m < members_.size(); ++m) {
    if (wanted[m] == 0) continue;
    DramTable& core = *members_[m].core;
    const size_t last = static_cast<size_t>(batch.starts[m + 1]);
    for (size_t i = static_cast<size_t>(batch.starts[m]); i < last; ++i) {
      if (i + kAhead < last) core.PrefetchRow(batch.slots[i + kAhead], core.options_.count_offset, 8);
      if (core.CountOf(core.arena_->row(batch.slots[i])) == 0) positions.push_back(static_cast<uint32_t>(i));
    }
  }
  return positions;
}

void TableGroup::Commit(const Batch& batch, uint32_t step, const uint8_t* refused, bool unpin, uint8_t* outcomes,
                        uint32_t* old_steps, int64_t* born) const {
  std::fill(born, born + members_.size(), 0);
  ForRuns(batch.starts, [&](size_t m, size_t first, size_t last) {
    DramTable& core = *members_[m].core;
    DramTable::Table& table = *core.tables_[members_[m].table];
    const uint32_t decay_steps = members_[m].decay_steps;
    RowArena& arena = *core.arena_;
    int64_t births = 0;
    for (size_t i = first; i < last; ++i) {
      if (i + kAhead < last) {
        arena.AskForMark(batch.slots[i + kAhead]);
        core.PrefetchRow(batch.slots[i + kAhead], core.options_.count_offset, 8);
      }
      const uint32_t slot = batch.slots[i];
      std::byte* row = arena.row(slot);
      Outcome outcome = kNotStored;
      uint32_t& count = core.CountOf(row);
      uint32_t& last_step = core.StepOf(row);
      if (old_steps != nullptr) old_steps[i] = last_step;
      if (unpin || arena.Stamp(slot)) {
        if (count == 0 && refused != nullptr && refused[i] != 0) {
          core.PlaceFirstValues(table, &batch.ids[i], &row, 1);
          if (!unpin) arena.ClearDirty(slot);
        } else {
          outcome = count == 0 ? kBorn : kStamped;
          births += count == 0;
          const uint32_t decayed = DecayedCount(count, last_step, step, decay_steps);
          count = decayed == UINT32_MAX ? decayed : decayed + 1;
          last_step = step;
        }
      }
      if (unpin) {
        arena.UnpinCommitted(slot, outcome != kNotStored);
        batch.slots[i] = kNoSlot;
      }
      if (outcomes != nullptr) outcomes[i] = outcome;
    }
    if (births != 0) std::atomic_ref<int64_t>(born[m]).fetch_add(births);
  });
}

void TableGroup::Unpin(const Batch& batch) const {
  ForRuns(batch.starts, [&](size_t m, size_t first, size_t last) {
    RowArena& arena = *members_[m].core->arena_;
    for (size_t i = first; i < last; ++i) {
      if (i + kAhead < last && batch.slots[i + kAhead] != kNoSlot) arena.AskForMark(batch.slots[i + kAhead]);
      if (batch.slots[i] == kNoSlot) continue;
      arena.UnpinStamped(batch.slots[i]);
      batch.slots[i] = kNoSlot;
    }
  });
}

void TableGroup::Read(const int64_t* starts, const int64_t* ids, std::byte* buffer, uint64_t* addresses,
                      uint8_t* found) const {
  std::vector<uint64_t> begin(members_.size());  // of each member's copies
  uint64_t at = reinterpret_cast<uint64_t>(buffer);
  for (size_t m = 0; m < members_.size(); ++m) {
    begin[m] = at;
    at += static_cast<uint64_t>(starts[m + 1] - starts[m]) * members_[m].core->options_.record_bytes;
  }
  ForRuns(starts, [&](size_t m, size_t first, size_t last) {
    DramTable& core = *members_[m].core;
    DramTable::Table& table = *core.tables_[members_[m].table];
    const std::shared_ptr<const ExpiryRule> rule = core.Rule(table);
    const RowArena& arena = *core.arena_;
    uint64_t keys[kChunk];
    uint32_t slots[kChunk];
    for (; first < last; first += std::min(kChunk, last - first)) {
      const size_t n = std::min(kChunk, last - first);
      for (size_t i = 0; i < n; ++i) keys[i] = KeyOfId(ids[first + i]);
      const ShardsOf lock(table.index, keys, n);
      FindKeys(
          table.index, keys, n,
          [&](size_t i, const uint32_t* value) {
            slots[i] = value == nullptr ? kNoSlot : *value;
            if (value != nullptr) core.PrefetchRow(*value, 0, arena.stride());
          },
          [&](size_t from, size_t to) {
            for (size_t i = from; i < to; ++i) {
              const size_t position = first + i;
              std::byte* to_row = reinterpret_cast<std::byte*>(
                  begin[m] + (position - static_cast<size_t>(starts[m])) * arena.stride());
              addresses[position] = reinterpret_cast<uint64_t>(to_row);
              found[position] = slots[i] != kNoSlot && core.Live(*rule, keys[i], arena.row(slots[i]));
              if (found[position] != 0) std::memcpy(to_row, arena.row(slots[i]), arena.stride());
            }
          });
    }
  });
}

void TableGroup::FirstValues(const int64_t* starts, const int64_t* ids, const uint32_t* positions, size_t n,
                             const uint64_t* addresses) const {
  for (size_t m = 0, at = 0; m < members_.size() && at < n; ++m) {
    std::vector<int64_t> some;
    std::vector<std::byte*> rows;
    for (; at < n && positions[at] < static_cast<uint64_t>(starts[m + 1]); ++at) {
      some.push_back(ids[positions[at]]);
      rows.push_back(reinterpret_cast<std::byte*>(addresses[positions[at]]));
    }
    DramTable& core = *members_[m].core;
    core.PlaceFirstValues(*core.tables_[members_[m].table], some.data(), rows.data(), some.size());
  }
}

}  // namespace stepwell
