// How DramTable's verbs go through a batch. Included by dram/*.cc only.
#pragma once

#include <algorithm>

#include "dram/dram_table.h"
#include "dram/shard_order.h"

namespace stepwell {

// Ids whose index lines are asked for before the first of them is looked at: enough to hide memory behind, few enough
// to stay in the first cache.
inline constexpr uint32_t kProbesAtOnce = 32;

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

// visit(value pointer or nullptr, k) for each of a shard's positions, those of one id in their order. The visitor must
// not insert or erase. Requires: the shard's lock is held.
template <class Shard, class Visit>
void ProbeShard(Shard& shard, const ShardOrder& order, uint32_t number, Visit&& visit) {
  typename Shard::Line* lines[kProbesAtOnce];
  uint32_t behind[kProbesAtOnce];
  const uint32_t end = order.end(number);
  for (uint32_t k = order.begin(number); k < end;) {
    const uint32_t some = std::min(kProbesAtOnce, end - k);
    if (shard.size() == 0) {
      for (uint32_t i = 0; i < some; ++i) visit(static_cast<uint32_t*>(nullptr), k + i);
    } else {
      for (uint32_t i = 0; i < some; ++i) lines[i] = shard.Ask(order.rest(k + i));
      uint32_t num_behind = 0;
      for (uint32_t i = 0; i < some; ++i) {
        bool spilled;
        const uint32_t* value = shard.FindAtHome(lines[i], order.rest(k + i), &spilled);
        if (spilled) {
          behind[num_behind++] = k + i;
        } else {
          visit(value, k + i);
        }
      }
      for (uint32_t i = 0; i < num_behind; ++i) visit(shard.Find(order.rest(behind[i])), behind[i]);
    }
    k += some;
  }
}

}  // namespace stepwell
