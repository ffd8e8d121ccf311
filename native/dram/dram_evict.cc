// What leaves memory, and what is read out of it shard by shard.
#include <algorithm>
#include <cstring>
#include <random>
#include <unordered_set>
#include <utility>

#include "dram/for_shards.h"

namespace stepwell {

namespace {
constexpr int kSamples = 1024;       // the sampled threshold is within 3% of the share asked for
constexpr uint64_t kSweepLines = 64;  // lines of a shard swept under one lock, some 300 rows
constexpr uint64_t kLineMask = (uint64_t{1} << 40) - 1;
}  // namespace

uint64_t DramTable::Score(const VictimOrder& order, const ExpiryRule& rule, uint64_t key, std::byte* row) const {
  const uint32_t count = CountOf(row);
  const uint32_t step = StepOf(row);
  if (count == 0 || rule.Expired(key, count, step)) return 0;
  if (!order.by_count) return step;
  return (static_cast<uint64_t>(DecayedCount(count, step, order.now, order.decay_steps)) << 32) | step;
}

// The score below which about `share` of the table's unpinned rows lie.
uint64_t DramTable::SampleThreshold(Table& table, const VictimOrder& order, const ExpiryRule& rule, double share) {
  std::minstd_rand random(static_cast<uint32_t>(table.hand) | 1);  // which rows leave never changes a value
  std::vector<uint64_t> scores;
  for (int tries = 0; tries < kSamples && scores.size() < kSamples; ++tries) {
    const uint32_t number = random() % kNumShards;
    Shard& shard = table.index.shard(number);
    SharedGuard guard(shard.lock);
    if (shard.num_lines() == 0) continue;
    const uint64_t line = ((static_cast<uint64_t>(random()) << 31) ^ random()) % shard.num_lines();
    shard.ForLine(line, [&](uint64_t rest, uint32_t slot) {
      if (!arena_->pinned(slot)) {
        scores.push_back(Score(order, rule, KeyOfShardAndRest(number, rest), arena_->row(slot)));
      }
    });
  }
  if (scores.empty()) return UINT64_MAX;
  const size_t at = std::min(scores.size() - 1, static_cast<size_t>(share * static_cast<double>(scores.size())));
  std::nth_element(scores.begin(), scores.begin() + static_cast<ptrdiff_t>(at), scores.end());
  return scores[at];
}

size_t DramTable::TakeVictims(uint32_t table_number, size_t want, const VictimOrder& order, int64_t* ids,
                              std::byte* records, uint8_t* need_store) {
  Table& table = *tables_[table_number];
  std::lock_guard<std::mutex> sweep(sweep_mutex_);
  const uint64_t size = table.index.size();
  if (size == 0 || want == 0) return 0;
  const std::shared_ptr<const ExpiryRule> rule = Rule(table);
  const double share = static_cast<double>(want) / static_cast<double>(size);
  // Twice the share: the sweep then ends within half a turn on average instead of a whole one.
  uint64_t threshold = share > 0.4 ? UINT64_MAX : SampleThreshold(table, order, *rule, share * 2);
  size_t got = 0;
  bool again = false;                 // the sweep is where it was before
  std::unordered_set<int64_t> taken;  // then: what it took
  const auto consider = [&](uint32_t number, uint64_t rest, uint32_t slot) {
    if (got == want || arena_->pinned(slot)) return;
    std::byte* row = arena_->row(slot);
    const uint64_t key = KeyOfShardAndRest(number, rest);
    if (Score(order, *rule, key, row) > threshold) return;
    const int64_t id = IdOfKey(key);
    if (again && !taken.insert(id).second) return;
    ids[got] = id;
    need_store[got] = arena_->ClearDirty(slot) && Live(*rule, key, row);
    if (need_store[got] != 0) std::memcpy(records + got * options_.record_bytes, row, options_.record_bytes);
    ++got;
  };
  // Shards from the hand on, the hand's own one again at the end of a turn. The second turn takes whatever has no pin.
  for (int turn = 0; turn < 2 && got < want; ++turn) {
    const uint32_t first = static_cast<uint32_t>(table.hand >> 40);
    uint64_t line = table.hand & kLineMask;
    if (turn == 1) threshold = UINT64_MAX;
    for (uint32_t i = 0; i <= kNumShards && got < want; ++i) {
      const uint32_t number = (first + i) % kNumShards;
      Shard& shard = table.index.shard(number);
      if (i == kNumShards && !again) {
        again = true;
        taken.insert(ids, ids + got);
      }
      for (bool more = true; more && got < want;) {
        SharedGuard guard(shard.lock);
        const uint64_t end = std::min(line + kSweepLines, shard.num_lines());
        for (uint64_t at = line; at < end; ++at) {
          shard.ForLine(at, [&](uint64_t, uint32_t slot) {
            __builtin_prefetch(arena_->row(slot) + options_.count_offset);
          });
        }
        for (; line < end && got < want; ++line) {
          shard.ForLine(line, [&](uint64_t rest, uint32_t slot) { consider(number, rest, slot); });
        }
        more = line < shard.num_lines();
        table.hand = (static_cast<uint64_t>(number) << 40) | line;
      }
      if (got < want) line = 0;
    }
  }
  return got;
}

size_t DramTable::ReleaseClean(uint32_t table_number, const int64_t* ids, size_t n) {
  Table& table = *tables_[table_number];
  const std::shared_ptr<const ExpiryRule> rule = Rule(table);
  const ShardOrder order(ids, n);
  std::atomic<size_t> released{0};
  ForShards(table, order, [&](uint32_t number, Shard& shard) {
    std::vector<uint64_t> rests;
    ExclusiveGuard guard(shard.lock);
    ProbeShard(shard, order, number, [&](const uint32_t* value, uint32_t k) {
      if (value == nullptr || arena_->pinned(*value)) return;
      if (arena_->dirty(*value) && Live(*rule, order.key(order.position(k)), arena_->row(*value))) return;
      rests.push_back(order.rest(k));
    });
    released += FreeRows(shard, rests);
  });
  return released;
}

size_t DramTable::Drop(uint32_t table_number, bool all) {
  Table& table = *tables_[table_number];
  const std::shared_ptr<const ExpiryRule> rule = Rule(table);
  std::atomic<size_t> dropped{0};
  pool_->Run(kNumShards, [&](size_t number) {
    Shard& shard = table.index.shard(static_cast<uint32_t>(number));
    std::vector<uint64_t> rests;
    ExclusiveGuard guard(shard.lock);
    shard.ForEach([&](uint64_t rest, uint32_t slot) {
      if (arena_->pinned(slot)) return;
      const uint64_t key = KeyOfShardAndRest(static_cast<uint32_t>(number), rest);
      if (all || !Live(*rule, key, arena_->row(slot))) rests.push_back(rest);
    });
    dropped += FreeRows(shard, rests);
  });
  return dropped;
}

void DramTable::MarkDirty(uint32_t table_number, const int64_t* ids, size_t n) {
  Table& table = *tables_[table_number];
  const ShardOrder order(ids, n);
  ForShards(table, order, [&](uint32_t number, Shard& shard) {
    SharedGuard guard(shard.lock);
    ProbeShard(shard, order, number, [&](const uint32_t* value, uint32_t) {
      if (value != nullptr) arena_->SetDirty(*value);
    });
  });
}

void DramTable::CopyShard(uint32_t table_number, uint32_t number, bool dirty_only, std::vector<int64_t>* ids,
                          std::vector<uint8_t>* records) {
  Table& table = *tables_[table_number];
  const std::shared_ptr<const ExpiryRule> rule = Rule(table);
  Shard& shard = table.index.shard(number);
  std::vector<std::pair<uint64_t, uint32_t>> rows;  // key, slot
  SharedGuard guard(shard.lock);
  shard.ForEach([&](uint64_t rest, uint32_t& slot) {
    const uint64_t key = KeyOfShardAndRest(number, rest);
    if (!Live(*rule, key, arena_->row(slot))) return;
    if (dirty_only && !arena_->ClearDirty(slot)) return;
    rows.emplace_back(key, slot);
  });
  std::sort(rows.begin(), rows.end());
  ids->resize(rows.size());
  records->resize(rows.size() * options_.record_bytes);
  for (size_t i = 0; i < rows.size(); ++i) {
    (*ids)[i] = IdOfKey(rows[i].first);
    std::memcpy(records->data() + i * options_.record_bytes, arena_->row(rows[i].second), options_.record_bytes);
  }
}

}  // namespace stepwell
