// A counting filter for admission: how often was an id that has no row seen? Counters are kept per bucket of ids, so
// that they move with their bucket when rows are resharded. A count is never too low; it is too high where ids share
// all three of their counters.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "util/id_hash.h"

namespace stepwell {

inline constexpr size_t kBucketsOfIds = 4096;

// Adds 1 to each id in the order given and writes its count after that. Counters stop at 65535.
// Requires: counters has kBucketsOfIds * width entries.
inline void CountIds(uint16_t* counters, size_t width, const int64_t* ids, size_t n, uint16_t* counts) {
  for (size_t i = 0; i < n; ++i) {
    const uint64_t key = KeyOfId(ids[i]);
    uint16_t* bucket = counters + BucketOfKey(key) * width;
    uint16_t* mine[3];
    uint16_t lowest = UINT16_MAX;
    uint64_t hash = key;
    for (uint16_t*& counter : mine) {
      hash = Mix64(hash + 0x9E3779B97F4A7C15ull);
      counter = bucket + static_cast<size_t>((static_cast<unsigned __int128>(hash) * width) >> 64);
      lowest = std::min(lowest, *counter);
    }
    const uint16_t count = lowest == UINT16_MAX ? lowest : static_cast<uint16_t>(lowest + 1);
    for (uint16_t* counter : mine) *counter = std::max(*counter, count);
    counts[i] = count;
  }
}

}  // namespace stepwell
