// Tables: per table the exact index from id to location, and its expiry rule. ByShard: a batch's ids in the order of
// the index's shards, so that a shard's lock is taken once a batch.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "rows/expiry.h"
#include "util/id_hash.h"
#include "util/id_index.h"
#include "util/thread_pool.h"

namespace stepwell::ssd {

using Index = IdIndex<23>;

class TableState {
 public:
  Index index;

  std::shared_ptr<const ExpiryRule> rule() {
    std::lock_guard<std::mutex> lock(mutex_);
    return rule_;
  }
  void SetRule(std::shared_ptr<const ExpiryRule> rule) {
    std::lock_guard<std::mutex> lock(mutex_);
    rule_ = std::move(rule);
  }

 private:
  std::mutex mutex_;
  std::shared_ptr<const ExpiryRule> rule_;  // guarded by mutex_
};

class Tables {
 public:
  static constexpr uint32_t kNumTables = 32767;

  ~Tables() {
    for (auto& table : at_) delete table.load();
  }
  // nullptr: nothing was ever written to it.
  TableState* Get(uint32_t table) const { return at_[table].load(std::memory_order_acquire); }
  TableState* GetOrMake(uint32_t table) {
    if (TableState* state = Get(table)) return state;
    std::lock_guard<std::mutex> lock(mutex_);
    if (TableState* state = Get(table)) return state;
    auto* made = new TableState();
    at_[table].store(made, std::memory_order_release);
    return made;
  }
  template <class Visit>
  void ForEach(Visit&& visit) {
    for (uint32_t table = 0; table < kNumTables; ++table) {
      if (TableState* state = Get(table)) visit(table, *state);
    }
  }

 private:
  std::array<std::atomic<TableState*>, kNumTables> at_ = {};
  std::mutex mutex_;
};

class ByShard {
 public:
  // key_of(i) for i in [0, n). Within a shard the order of i is kept.
  template <class KeyOf>
  ByShard(size_t n, KeyOf&& key_of) : order_(n), keys_(n), begin_{} {
    std::vector<uint8_t> shards(n);
    for (size_t i = 0; i < n; ++i) {
      const uint8_t shard = static_cast<uint8_t>(ShardOfKey(key_of(i)));
      shards[i] = shard;
      ++begin_[shard + 1];
    }
    for (int shard = 0; shard < kNumShards; ++shard) begin_[shard + 1] += begin_[shard];
    uint32_t at[kNumShards];
    std::copy(begin_.begin(), begin_.end() - 1, at);
    for (size_t i = 0; i < n; ++i) {
      const uint32_t place = at[shards[i]]++;
      order_[place] = static_cast<uint32_t>(i);
      keys_[place] = key_of(i);
    }
  }

  uint32_t begin(uint32_t shard) const { return begin_[shard]; }
  uint32_t end(uint32_t shard) const { return begin_[shard + 1]; }
  uint32_t index(uint32_t at) const { return order_[at]; }  // i of the at-th
  uint64_t key(uint32_t at) const { return keys_[at]; }

  // visit(shard) for every shard that has ids, on the pool's threads if there are enough ids.
  template <class Visit>
  void ForShards(ThreadPool* pool, Visit&& visit) const {
    if (pool == nullptr || pool->num_threads() == 1 || order_.size() < 4096) {
      for (uint32_t shard = 0; shard < kNumShards; ++shard) {
        if (begin(shard) != end(shard)) visit(shard);
      }
      return;
    }
    constexpr uint32_t kShardsPerTask = 16;
    pool->Run(kNumShards / kShardsPerTask, [&](size_t task) {
      const uint32_t first = static_cast<uint32_t>(task) * kShardsPerTask;
      for (uint32_t shard = first; shard < first + kShardsPerTask; ++shard) {
        if (begin(shard) != end(shard)) visit(shard);
      }
    });
  }
  // visit(at, rest) for a shard's ids, each some steps after its index line was asked for. Requires: the shard's lock.
  template <class Visit>
  void ForIds(Index& index, uint32_t shard, Visit&& visit) const {
    constexpr uint32_t kAhead = 6;
    auto& of = index.shard(shard);
    const uint32_t last = end(shard);
    const auto ask = [&](uint32_t at) {
      if (of.size() > 0) of.Ask(RestOfKey(key(at)));
    };
    for (uint32_t at = begin(shard); at < std::min(begin(shard) + kAhead, last); ++at) ask(at);
    for (uint32_t at = begin(shard); at < last; ++at) {
      if (at + kAhead < last) ask(at + kAhead);
      visit(at, RestOfKey(key(at)));
    }
  }

 private:
  std::vector<uint32_t> order_;
  std::vector<uint64_t> keys_;
  std::array<uint32_t, kNumShards + 1> begin_;
};

}  // namespace stepwell::ssd
