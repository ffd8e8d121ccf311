// XXH64, the project's hash of a string: bit-equal to rows.xxh64 in Python, on any machine.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace stepwell {

namespace xxh64_detail {

static_assert(std::endian::native == std::endian::little, "words are read as they lie");

inline constexpr uint64_t kP1 = 0x9E3779B185EBCA87, kP2 = 0xC2B2AE3D27D4EB4F, kP3 = 0x165667B19E3779F9,
                          kP4 = 0x85EBCA77C2B2AE63, kP5 = 0x27D4EB2F165667C5;

template <class Word>
inline Word Load(const uint8_t* at) {
  Word word;
  std::memcpy(&word, at, sizeof(word));
  return word;
}

inline uint64_t Lane(uint64_t sum, uint64_t word) { return std::rotl(sum + word * kP2, 31) * kP1; }
inline uint64_t AddWord(uint64_t hash, uint64_t word) { return std::rotl(hash ^ Lane(0, word), 27) * kP1 + kP4; }

inline uint64_t Finish(uint64_t hash) {
  hash = (hash ^ (hash >> 33)) * kP2;
  hash = (hash ^ (hash >> 29)) * kP3;
  return hash ^ (hash >> 32);
}

inline uint64_t Stripes(const uint8_t*& at, const uint8_t* end, uint64_t seed) {
  uint64_t lanes[4] = {seed + kP1 + kP2, seed + kP2, seed, seed - kP1};
  for (; end - at >= 32; at += 32) {
    for (int i = 0; i < 4; ++i) lanes[i] = Lane(lanes[i], Load<uint64_t>(at + 8 * i));
  }
  uint64_t hash =
      std::rotl(lanes[0], 1) + std::rotl(lanes[1], 7) + std::rotl(lanes[2], 12) + std::rotl(lanes[3], 18);
  for (uint64_t lane : lanes) hash = (hash ^ Lane(0, lane)) * kP1 + kP4;
  return hash;
}

}  // namespace xxh64_detail

inline uint64_t Xxh64(const uint8_t* data, size_t size, uint64_t seed) {
  using namespace xxh64_detail;
  const uint8_t* at = data;
  const uint8_t* const end = data + size;
  uint64_t hash = (size >= 32 ? Stripes(at, end, seed) : seed + kP5) + size;
  for (; end - at >= 8; at += 8) hash = AddWord(hash, Load<uint64_t>(at));
  if (end - at >= 4) {
    hash = std::rotl(hash ^ (Load<uint32_t>(at) * kP1), 23) * kP2 + kP3;
    at += 4;
  }
  for (; at != end; ++at) hash = std::rotl(hash ^ (*at * kP5), 11) * kP1;
  return Finish(hash);
}

}  // namespace stepwell
