// float32 to bf16 and fp16, to nearest (ties to even) and stochastically: the same bits as stepwell.rows.rounding.
//
// Stochastic rounding adds a random number below one unit of the kept bits and truncates. Both roundings pass the
// largest finite number to infinity; infinity stays; a NaN stays a quiet NaN. Exact values never change.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace stepwell {

inline constexpr uint32_t kFloatExponent = 0x7F800000u;
inline constexpr uint32_t kFloatAbs = 0x7FFFFFFFu;

// `added` is below 2^16: a half unit less one plus the kept bit's parity, or a draw.
inline uint16_t AddAndTruncateToBf16(uint32_t bits, uint32_t added) {
  if ((bits & kFloatExponent) == kFloatExponent) {
    return static_cast<uint16_t>((bits >> 16) | ((bits & kFloatAbs) > kFloatExponent ? 0x40u : 0u));
  }
  return static_cast<uint16_t>((bits + added) >> 16);
}

inline uint16_t Bf16Nearest(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  return AddAndTruncateToBf16(bits, 0x7FFFu + ((bits >> 16) & 1u));
}

inline uint16_t Bf16Stochastic(float x, uint32_t draw) {
  return AddAndTruncateToBf16(std::bit_cast<uint32_t>(x), draw & 0xFFFFu);
}

inline float FloatOfBf16(uint16_t stored) { return std::bit_cast<float>(static_cast<uint32_t>(stored) << 16); }

// The fp16 of a float's bits where Added(dropped) is what is added, below 2^dropped, before the low `dropped` bits go.
template <class Added>
inline uint16_t AddAndTruncateToFp16(uint32_t bits, Added added) {
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & kFloatAbs;
  const int exponent = static_cast<int>(magnitude >> 23) - 127;
  uint64_t half;
  if (magnitude > kFloatExponent) {
    return static_cast<uint16_t>(sign | 0x7E00u | ((magnitude >> 13) & 0x3FFu));
  }
  if (exponent >= -14) {  // normal in fp16; the exponent is rebased first so that a carry moves it up
    const uint64_t rebased = magnitude - (112u << 23);
    half = std::min<uint64_t>((rebased + added(13, rebased)) >> 13, 0x7C00u);
  } else {  // subnormal: significand * 2^(exponent + 1) in units of 2^-24
    const uint64_t significand = (magnitude & 0x7FFFFFu) | (magnitude >> 23 ? 0x800000u : 0u);
    const int dropped = std::min(-1 - exponent, 63);
    const int excess = std::max(dropped - 32, 0);  // draws have 32 bits; what is beyond is below 2^-32 units
    const uint64_t kept = significand >> excess;
    half = (kept + added(dropped - excess, kept)) >> (dropped - excess);
  }
  return static_cast<uint16_t>(sign | half);
}

inline uint16_t Fp16Nearest(float x) {
  return AddAndTruncateToFp16(std::bit_cast<uint32_t>(x), [](int dropped, uint64_t value) {
    return (uint64_t{1} << (dropped - 1)) - 1 + ((value >> dropped) & 1);
  });
}

inline uint16_t Fp16Stochastic(float x, uint32_t draw) {
  return AddAndTruncateToFp16(std::bit_cast<uint32_t>(x),
                              [draw](int dropped, uint64_t) { return draw & ((uint64_t{1} << dropped) - 1); });
}

inline float FloatOfFp16(uint16_t stored) {
  const uint32_t sign = static_cast<uint32_t>(stored & 0x8000u) << 16;
  const uint32_t magnitude = stored & 0x7FFFu;
  if (magnitude >= 0x7C00u) {
    return std::bit_cast<float>(sign | kFloatExponent | ((magnitude & 0x3FFu) << 13));
  }
  if (magnitude >= 0x400u) {
    return std::bit_cast<float>(sign | ((magnitude << 13) + (112u << 23)));
  }
  const float value = static_cast<float>(magnitude) * 0x1p-24f;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(value) | sign);
}

}  // namespace stepwell
