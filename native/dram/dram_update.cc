// The verbs of DramTable that place and change rows.
#include <cstring>
#include <string>

#include "dram/for_shards.h"

namespace stepwell {

namespace {

// Of positions in batch order, keeps the first of each id.
void KeepFirstOfEach(const ShardOrder& order, std::vector<uint32_t>* positions) {
  const auto by_key = [&](uint32_t a, uint32_t b) {
    return order.key(a) != order.key(b) ? order.key(a) < order.key(b) : a < b;
  };
  std::sort(positions->begin(), positions->end(), by_key);
  const auto same = [&](uint32_t a, uint32_t b) { return order.key(a) == order.key(b); };
  positions->erase(std::unique(positions->begin(), positions->end(), same), positions->end());
}

}  // namespace

// A few rows at a time, so that their lines are still in the first cache when the weights come, and on their way for the
// next ones. The weights' bytes are written once.
void DramTable::PlaceFirstValues(Table& table, const int64_t* ids, std::byte* const* rows, size_t n) {
  constexpr size_t kRowsAtOnce = 16;
  const size_t weights = size_t{table.init.dim} * (table.init.weight_dtype == 0 ? 4 : 2);
  for (size_t done = 0; done < n; done += kRowsAtOnce) {
    const size_t end = std::min(n, done + kRowsAtOnce);
    for (size_t i = end; i < std::min(n, end + kRowsAtOnce); ++i) {
      for (size_t at = 0; at < std::min<size_t>(options_.record_bytes, 1024); at += 64) {
        __builtin_prefetch(rows[i] + at, 1);
      }
    }
    for (size_t i = done; i < end; ++i) {
      std::memcpy(rows[i] + weights, table.init.blank.data() + weights, options_.record_bytes - weights);
    }
    InitialWeights(table.init.program, table.init.key, ids + done, end - done, table.init.dim,
                   table.init.weight_dtype, rows + done);
  }
}

// Sets room aside for a batch: for n rows when that much is left, else for the absent ids as counted (`exact`).
Status DramTable::ReserveFor(Table& table, const int64_t* ids, size_t n, Room* room) {
  room->exact = !arena_->Reserve(n);
  if (!room->exact) {
    room->rows = n;
    return Status::Ok();
  }
  const ShardOrder order(ids, n);
  std::atomic<uint64_t> absent{0};
  ForShards(table, order, [&](uint32_t number, Shard& shard) {
    std::vector<uint64_t> missing;
    SharedGuard guard(shard.lock);
    ProbeShard(shard, order, number, [&](const uint32_t* value, uint32_t k) {
      if (value == nullptr) missing.push_back(order.rest(k));
    });
    std::sort(missing.begin(), missing.end());
    absent += static_cast<uint64_t>(std::unique(missing.begin(), missing.end()) - missing.begin());
  });
  room->rows = absent;
  if (arena_->Reserve(absent)) return Status::Ok();
  return Status(Code::kFull, "the DRAM tier has room for " + std::to_string(arena_->rows_left()) + " of " +
                                 std::to_string(absent.load()) + " new rows of " +
                                 std::to_string(options_.record_bytes) + " bytes (it holds " +
                                 std::to_string(options_.max_rows) + "); raise its budget_bytes or let rows expire");
}

template <class Fill>
Status DramTable::InsertAbsent(Table& table, const int64_t* ids, size_t n, bool pin, int64_t* slots, uint8_t* fresh,
                               Fill&& fill) {
  Room room;
  STEPWELL_RETURN_IF_ERROR(ReserveFor(table, ids, n, &room));
  const ShardOrder order(ids, n);
  std::atomic<uint64_t> left{room.rows};
  std::atomic<bool> short_of_room{false};
  ForShards(table, order, [&](uint32_t number, Shard& shard) {
    std::vector<uint32_t> placed;  // positions of absent ids, the first of each
    ExclusiveGuard guard(shard.lock);
    ProbeShard(shard, order, number, [&](const uint32_t* value, uint32_t k) {
      const uint32_t position = order.position(k);
      fresh[position] = value == nullptr;
      slots[position] = value == nullptr ? -1 : static_cast<int64_t>(*value);
      if (value == nullptr) placed.push_back(position);
    });
    if (room.exact) KeepFirstOfEach(order, &placed);
    uint64_t have = left.load();
    while (!left.compare_exchange_weak(have, have - std::min<uint64_t>(have, placed.size()))) {
    }
    std::vector<uint32_t> free_slots(std::min<uint64_t>(have, placed.size()));
    arena_->Take(free_slots.size(), free_slots.data());
    size_t next = 0;
    size_t kept = 0;
    for (uint32_t position : placed) {
      const uint64_t rest = RestOfKey(order.key(position));
      if (const uint32_t* twice = shard.Find(rest); twice != nullptr) {  // earlier in this batch
        fresh[position] = 0;
      } else if (next < free_slots.size() && shard.Insert(rest, free_slots[next])) {
        slots[position] = free_slots[next++];
        placed[kept++] = position;
      } else {
        fresh[position] = 0;
        short_of_room = true;
      }
    }
    placed.resize(kept);
    arena_->Free(free_slots.data() + next, free_slots.size() - next);
    for (uint32_t k = order.begin(number); k < order.end(number); ++k) {
      const uint32_t position = order.position(k);
      if (slots[position] < 0) {
        const uint32_t* value = shard.Find(order.rest(k));
        if (value == nullptr) continue;  // short of room
        slots[position] = *value;
        if (room.exact) fresh[position] = 0;  // a later one of equal ids
      }
      if (pin) arena_->Pin(static_cast<uint32_t>(slots[position]));
    }
    fill(number, order, placed);
  });
  arena_->Unreserve(left);
  if (!short_of_room) return Status::Ok();
  for (size_t i = 0; pin && i < n; ++i) {
    if (slots[i] >= 0) (void)arena_->Unpin(static_cast<uint32_t>(slots[i]), false);
  }
  return Status(Code::kFull, "another caller erased or evicted rows of this batch while it was placed, or the system "
                             "has no memory for the index; call again");
}

Status DramTable::FindOrInsert(uint32_t table_number, const int64_t* ids, size_t n, bool pin, int64_t* slots,
                               uint8_t* fresh) {
  Table& table = *tables_[table_number];
  return InsertAbsent(
      table, ids, n, pin, slots, fresh, [&](uint32_t, const ShardOrder&, const std::vector<uint32_t>& placed) {
        std::vector<int64_t> new_ids(placed.size());
        std::vector<std::byte*> rows(placed.size());
        for (size_t i = 0; i < placed.size(); ++i) {
          new_ids[i] = ids[placed[i]];
          rows[i] = arena_->row(static_cast<uint32_t>(slots[placed[i]]));
        }
        PlaceFirstValues(table, new_ids.data(), rows.data(), rows.size());
      });
}

Status DramTable::InsertClean(uint32_t table_number, const int64_t* ids, const std::byte* records, size_t stride,
                              size_t n, bool pin, int64_t* slots, uint8_t* fresh) {
  return InsertAbsent(*tables_[table_number], ids, n, pin, slots, fresh,
                      [&](uint32_t, const ShardOrder&, const std::vector<uint32_t>& placed) {
                        for (uint32_t position : placed) {
                          std::memcpy(arena_->row(static_cast<uint32_t>(slots[position])),
                                      records + position * stride, options_.record_bytes);
                        }
                      });
}

Status DramTable::InsertOrAssign(uint32_t table_number, const int64_t* ids, const std::byte* records, size_t stride,
                                 size_t n, uint8_t* fresh) {
  std::vector<int64_t> slots(n);
  return InsertAbsent(*tables_[table_number], ids, n, false, slots.data(), fresh,
                      [&](uint32_t number, const ShardOrder& order, const std::vector<uint32_t>&) {
                        // In batch order, new rows and old ones: the last of equal ids stays.
                        for (uint32_t k = order.begin(number); k < order.end(number); ++k) {
                          const uint32_t position = order.position(k);
                          if (slots[position] < 0) continue;
                          const uint32_t slot = static_cast<uint32_t>(slots[position]);
                          std::memcpy(arena_->row(slot), records + position * stride, options_.record_bytes);
                          arena_->SetDirty(slot);
                        }
                      });
}

void DramTable::Erase(uint32_t table_number, const int64_t* ids, size_t n, uint8_t* erased) {
  Table& table = *tables_[table_number];
  const std::shared_ptr<const ExpiryRule> rule = Rule(table);
  const ShardOrder order(ids, n);
  ForShards(table, order, [&](uint32_t number, Shard& shard) {
    std::vector<uint64_t> rests;
    ExclusiveGuard guard(shard.lock);
    ProbeShard(shard, order, number, [&](const uint32_t* value, uint32_t k) {
      const uint32_t position = order.position(k);
      erased[position] = 0;
      if (value == nullptr) return;
      std::byte* row = arena_->row(*value);
      erased[position] = Live(*rule, order.key(position), row);
      CountOf(row) = 0;  // a second position of this id finds it gone
      arena_->ClearDirty(*value);
      if (arena_->pinned(*value)) {
        PlaceFirstValues(table, &ids[position], &row, 1);
      } else {
        rests.push_back(order.rest(k));
      }
    });
    FreeRows(shard, rests);
  });
}

size_t DramTable::FreeRows(Shard& shard, const std::vector<uint64_t>& rests) {
  std::vector<uint32_t> slots;
  slots.reserve(rests.size());
  for (uint64_t rest : rests) {
    uint32_t slot = 0;
    if (shard.Erase(rest, &slot)) slots.push_back(slot);
  }
  arena_->Free(slots.data(), slots.size());
  return slots.size();
}

}  // namespace stepwell
