// How DramTable's verbs go through a batch. Included by dram/*.cc only.
#pragma once

#include <algorithm>

#include "dram/dram_table.h"
#include "dram/shard_order.h"

namespace stepwell {

// Ids ahead of the current one whose index line is asked for: a probe takes some 10 ns, memory 100.
inline constexpr uint32_t kProbesAhead = 12;

inline void DramTable::PrefetchRow(uint32_t slot, uint32_t offset, uint32_t length) const {
  const char* row = reinterpret_cast<const char*>(arena_->row(slot)) + offset;
  for (uint32_t at = 0; at < length && at < 1024; at += 64) __builtin_prefetch(row + at);
}

template <class Visit>
void DramTable::ForShards(Table& table, const ShardOrder& order, Visit&& visit) {
  const size_t threads = static_cast<size_t>(pool_->num_threads());
  const std::vector<uint32_t> cut = order.Cut(threads == 1 ? 1 : threads * 4);
  pool_->Run(cut.size() - 1, [&](size_t run) {
    for (uint32_t number = cut[run]; number < cut[run + 1]; ++number) {
      if (order.begin(number) == order.end(number)) continue;
      Shard& shard = table.index.shard(number);
      visit(number, shard);
    }
  });
}

// visit(value pointer or nullptr, k) for each of a shard's positions, lines asked for ahead of their probes.
// Requires: the shard's lock is held.
template <class Shard, class Visit>
void ProbeShard(Shard& shard, const ShardOrder& order, uint32_t number, Visit&& visit) {
  const uint32_t begin = order.begin(number);
  const uint32_t end = order.end(number);
  for (uint32_t k = begin; k < std::min(end, begin + kProbesAhead); ++k) shard.Prefetch(order.rest(k));
  for (uint32_t k = begin; k < end; ++k) {
    if (k + kProbesAhead < end) shard.Prefetch(order.rest(k + kProbesAhead));
    visit(shard.FindMutable(order.rest(k)), k);
  }
}

}  // namespace stepwell
