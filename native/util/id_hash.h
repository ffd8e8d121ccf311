// The hash of an id: a bijection on 64 bits, so that an index that keeps the hash keeps the id, and no two ids can
// ever be taken for each other. The same function as stepwell.rows.generator.mix64.
#pragma once

#include <cstdint>

namespace stepwell {

constexpr uint64_t Mix64(uint64_t x) {
  x ^= x >> 30;
  x *= 0xBF58476D1CE4E5B9ull;
  x ^= x >> 27;
  x *= 0x94D049BB133111EBull;
  x ^= x >> 31;
  return x;
}

constexpr uint64_t Unmix64(uint64_t x) {
  x ^= (x >> 31) ^ (x >> 62);
  x *= 0x319642B2D24D8EC3ull;
  x ^= (x >> 27) ^ (x >> 54);
  x *= 0x96DE1B173F119089ull;
  x ^= (x >> 30) ^ (x >> 60);
  return x;
}

inline constexpr uint64_t KeyOfId(int64_t id) { return Mix64(static_cast<uint64_t>(id)); }
inline constexpr int64_t IdOfKey(uint64_t key) { return static_cast<int64_t>(Unmix64(key)); }

inline constexpr int kNumShards = 256;  // the top 8 bits of a key; an index keeps the other 56
inline constexpr uint64_t kRestMask = (uint64_t{1} << 56) - 1;

inline constexpr uint32_t ShardOfKey(uint64_t key) { return static_cast<uint32_t>(key >> 56); }
inline constexpr uint64_t RestOfKey(uint64_t key) { return key & kRestMask; }
inline constexpr uint64_t KeyOfShardAndRest(uint32_t shard, uint64_t rest) {
  return (static_cast<uint64_t>(shard) << 56) | rest;
}
// One of 4096 fixed classes of ids: the unit of filters, checkpoints and resharding.
inline constexpr uint32_t BucketOfKey(uint64_t key) { return static_cast<uint32_t>(key >> 52); }

}  // namespace stepwell
