// A batch's positions grouped by the shard of their ids, in batch order inside a shard, so that one thread can take a
// shard's lock once and do all that the batch wants of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "util/id_hash.h"

namespace stepwell {

class ShardOrder {
 public:
  // Requires: n < 2^32.
  ShardOrder(const int64_t* ids, size_t n) : keys_(n), positions_(n), begin_{} {
    for (size_t i = 0; i < n; ++i) {
      keys_[i] = KeyOfId(ids[i]);
      ++begin_[ShardOfKey(keys_[i]) + 1];
    }
    for (int shard = 0; shard < kNumShards; ++shard) begin_[shard + 1] += begin_[shard];
    uint32_t at[kNumShards];
    for (int shard = 0; shard < kNumShards; ++shard) at[shard] = begin_[shard];
    for (size_t i = 0; i < n; ++i) positions_[at[ShardOfKey(keys_[i])]++] = static_cast<uint32_t>(i);
  }

  uint32_t begin(uint32_t shard) const { return begin_[shard]; }
  uint32_t end(uint32_t shard) const { return begin_[shard + 1]; }
  uint32_t position(uint32_t k) const { return positions_[k]; }
  uint64_t key(uint32_t position) const { return keys_[position]; }
  uint64_t rest(uint32_t k) const { return RestOfKey(keys_[positions_[k]]); }

  // Splits the shards into at most `parts` runs of about as many positions each; run i is [cut[i], cut[i + 1]).
  std::vector<uint32_t> Cut(size_t parts) const {
    std::vector<uint32_t> cut{0};
    const uint64_t total = begin_[kNumShards];
    for (uint32_t shard = 1; shard < kNumShards; ++shard) {
      if (begin_[shard] * parts >= total * cut.size() && begin_[shard] > begin_[cut.back()]) cut.push_back(shard);
    }
    cut.push_back(kNumShards);
    return cut;
  }

 private:
  std::vector<uint64_t> keys_;
  std::vector<uint32_t> positions_;
  uint32_t begin_[kNumShards + 1];
};

}  // namespace stepwell
