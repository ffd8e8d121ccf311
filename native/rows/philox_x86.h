// Lanes<Isa> for AVX2 and AVX-512: several Philox blocks at once, one in each 64-bit lane. Private to native/rows.
//
// A counter word lives in the low half of its lane. The high half holds whatever the last operation left: multiplication
// of low halves ignores it, so no step of the ten rounds spends an instruction to clear it or to pack.
//
// Every function carries its instruction set as an attribute, so the rest of the file needs no compiler flag; the code
// both share is in philox_lanes.inc, which is included once for each.
#pragma once

#if defined(__x86_64__)

#include <immintrin.h>

#include <cstdint>

#include "rows/philox.h"

#define STEPWELL_AVX2 __attribute__((target("avx2,f16c")))
#define STEPWELL_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
#define STEPWELL_LANE_OP STEPWELL_TARGET static inline __attribute__((always_inline))

// g++ 12 takes the undefined pass-through operand of its own AVX-512 intrinsics for a use of an unset variable.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

namespace stepwell::avx2 {

#define STEPWELL_TARGET STEPWELL_AVX2

using Wide = __m256i;    // kLanes blocks
using Narrow = __m128i;  // kLanes 32-bit ints
inline constexpr uint32_t kLanes = 4;

STEPWELL_LANE_OP Wide Set(uint64_t x) { return _mm256_set1_epi64x(static_cast<int64_t>(x)); }
STEPWELL_LANE_OP Wide Set32(uint32_t x) { return _mm256_set1_epi32(static_cast<int32_t>(x)); }
STEPWELL_LANE_OP Wide InOrder() { return _mm256_setr_epi64x(0, 1, 2, 3); }
// The order from which InterleaveWords gives consecutive columns.
STEPWELL_LANE_OP Wide Interleaved() { return _mm256_setr_epi64x(0, 2, 1, 3); }
STEPWELL_LANE_OP Wide Add32(Wide a, Wide b) { return _mm256_add_epi32(a, b); }
STEPWELL_LANE_OP Wide And(Wide a, Wide b) { return _mm256_and_si256(a, b); }
STEPWELL_LANE_OP Wide Multiply(Wide a, Wide b) { return _mm256_mul_epu32(a, b); }
STEPWELL_LANE_OP Wide HighHalf(Wide a) { return _mm256_srli_epi64(a, 32); }
STEPWELL_LANE_OP Wide ToHighHalf(Wide a) { return _mm256_slli_epi64(a, 32); }
STEPWELL_LANE_OP Wide Shift16(Wide a) { return _mm256_srli_epi32(a, 16); }
STEPWELL_LANE_OP Wide Xor3(Wide a, Wide b, Wide c) { return _mm256_xor_si256(_mm256_xor_si256(a, b), c); }
STEPWELL_LANE_OP Wide JoinHalves(Wide low, Wide high) { return _mm256_blend_epi32(low, high, 0xAA); }
STEPWELL_LANE_OP Wide InterleaveLow(Wide a, Wide b) { return _mm256_unpacklo_epi64(a, b); }
STEPWELL_LANE_OP Wide InterleaveHigh(Wide a, Wide b) { return _mm256_unpackhi_epi64(a, b); }
STEPWELL_LANE_OP Narrow LowHalves(Wide a) {
  return _mm256_castsi256_si128(_mm256_permutevar8x32_epi32(a, _mm256_setr_epi32(0, 2, 4, 6, 0, 0, 0, 0)));
}

STEPWELL_LANE_OP Wide FirstOf(int32_t count) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
// Stores the first `count` ints, or float32(int) * scale; count may be beyond the vector, or negative for none.
STEPWELL_LANE_OP void StoreInts(void* out, Wide x, int32_t count) {
  if (count >= 8) {
    _mm256_storeu_si256(static_cast<__m256i*>(out), x);
  } else {
    _mm256_maskstore_epi32(static_cast<int*>(out), FirstOf(count), x);
  }
}
STEPWELL_LANE_OP void StoreScaled(float* out, Wide x, float scale, int32_t count) {
  StoreInts(out, _mm256_castps_si256(_mm256_mul_ps(_mm256_cvtepi32_ps(x), _mm256_set1_ps(scale))), count);
}
STEPWELL_LANE_OP void StoreScaled(float* out, Narrow x, float scale, int32_t count) {
  const __m128 value = _mm_mul_ps(_mm_cvtepi32_ps(x), _mm_set1_ps(scale));
  if (count >= 4) {
    _mm_storeu_ps(out, value);
  } else {
    _mm_maskstore_ps(out, _mm256_castsi256_si128(FirstOf(count)), value);
  }
}

STEPWELL_LANE_OP Narrow SetNarrow(int32_t x) { return _mm_set1_epi32(x); }
STEPWELL_LANE_OP Narrow Beyond(Narrow x, Narrow limit) { return _mm_cmpgt_epi32(_mm_abs_epi32(x), limit); }
STEPWELL_LANE_OP bool Any(Narrow mask) { return _mm_movemask_epi8(mask) != 0; }
STEPWELL_LANE_OP Narrow Choose(Narrow mask, Narrow yes, Narrow no) { return _mm_blendv_epi8(no, yes, mask); }
STEPWELL_LANE_OP Narrow Clamp(Narrow x, Narrow limit) {
  return _mm_max_epi32(_mm_min_epi32(x, limit), _mm_sub_epi32(_mm_setzero_si128(), limit));
}

// Sixteen floats at a time, as the functions of rounding.h. To nearest, REQUIRES finite floats.
STEPWELL_LANE_OP void StoreBf16(uint16_t* out, Wide low, Wide high) {
  const Wide packed = _mm256_packus_epi32(Shift16(low), Shift16(high));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), _mm256_permute4x64_epi64(packed, 0xD8));
}
STEPWELL_LANE_OP Wide RoundedUp(Wide bits) {
  const Wide odd = And(Shift16(bits), Set32(1));
  return Add32(bits, Add32(odd, Set32(0x7FFF)));
}
STEPWELL_LANE_OP void Bf16Nearest16(const float* in, uint16_t* out) {
  StoreBf16(out, RoundedUp(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(in))),
            RoundedUp(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(in + 8))));
}
STEPWELL_LANE_OP void Fp16Nearest16(const float* in, uint16_t* out) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm256_cvtps_ph(_mm256_loadu_ps(in), 0));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 8), _mm256_cvtps_ph(_mm256_loadu_ps(in + 8), 0));
}
STEPWELL_LANE_OP Wide WithDraw(const float* in, const uint32_t* draws) {
  const Wide bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(in));
  const Wide draw = And(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(draws)), Set32(0xFFFF));
  const Wide exponent = Set32(0x7F800000);
  const Wide special = _mm256_cmpeq_epi32(And(bits, exponent), exponent);
  const Wide nan = _mm256_cmpgt_epi32(And(bits, Set32(0x7FFFFFFF)), exponent);
  return _mm256_or_si256(Add32(bits, _mm256_andnot_si256(special, draw)), And(nan, Set32(0x400000)));
}
STEPWELL_LANE_OP void Bf16Stochastic16(const float* in, const uint32_t* draws, uint16_t* out) {
  StoreBf16(out, WithDraw(in, draws), WithDraw(in + 8, draws + 8));
}

#include "rows/philox_lanes.inc"
#undef STEPWELL_TARGET

}  // namespace stepwell::avx2

namespace stepwell::avx512 {

#define STEPWELL_TARGET STEPWELL_AVX512

using Wide = __m512i;
using Narrow = __m256i;
inline constexpr uint32_t kLanes = 8;

STEPWELL_LANE_OP Wide Set(uint64_t x) { return _mm512_set1_epi64(static_cast<int64_t>(x)); }
STEPWELL_LANE_OP Wide Set32(uint32_t x) { return _mm512_set1_epi32(static_cast<int32_t>(x)); }
STEPWELL_LANE_OP Wide InOrder() { return _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7); }
STEPWELL_LANE_OP Wide Interleaved() { return _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7); }
STEPWELL_LANE_OP Wide Add32(Wide a, Wide b) { return _mm512_add_epi32(a, b); }
STEPWELL_LANE_OP Wide And(Wide a, Wide b) { return _mm512_and_si512(a, b); }
STEPWELL_LANE_OP Wide Multiply(Wide a, Wide b) { return _mm512_mul_epu32(a, b); }
STEPWELL_LANE_OP Wide HighHalf(Wide a) { return _mm512_srli_epi64(a, 32); }
STEPWELL_LANE_OP Wide ToHighHalf(Wide a) { return _mm512_slli_epi64(a, 32); }
STEPWELL_LANE_OP Wide Shift16(Wide a) { return _mm512_srli_epi32(a, 16); }
STEPWELL_LANE_OP Wide Xor3(Wide a, Wide b, Wide c) { return _mm512_ternarylogic_epi64(a, b, c, 0x96); }
STEPWELL_LANE_OP Wide JoinHalves(Wide low, Wide high) { return _mm512_mask_blend_epi32(0xAAAA, low, high); }
STEPWELL_LANE_OP Wide InterleaveLow(Wide a, Wide b) { return _mm512_unpacklo_epi64(a, b); }
STEPWELL_LANE_OP Wide InterleaveHigh(Wide a, Wide b) { return _mm512_unpackhi_epi64(a, b); }
STEPWELL_LANE_OP Narrow LowHalves(Wide a) { return _mm512_cvtepi64_epi32(a); }

STEPWELL_LANE_OP uint32_t FirstOf(int32_t count) { return count <= 0 ? 0u : (1u << (count & 31)) - 1u; }
STEPWELL_LANE_OP void StoreInts(void* out, Wide x, int32_t count) {
  if (count >= 16) {
    _mm512_storeu_si512(out, x);
  } else {
    _mm512_mask_storeu_epi32(out, static_cast<__mmask16>(FirstOf(count)), x);
  }
}
STEPWELL_LANE_OP void StoreScaled(float* out, Wide x, float scale, int32_t count) {
  StoreInts(out, _mm512_castps_si512(_mm512_mul_ps(_mm512_cvtepi32_ps(x), _mm512_set1_ps(scale))), count);
}
STEPWELL_LANE_OP void StoreScaled(float* out, Narrow x, float scale, int32_t count) {
  const __m256 value = _mm256_mul_ps(_mm256_cvtepi32_ps(x), _mm256_set1_ps(scale));
  if (count >= 8) {
    _mm256_storeu_ps(out, value);
  } else {
    _mm256_mask_storeu_ps(out, static_cast<__mmask8>(FirstOf(count)), value);
  }
}

STEPWELL_LANE_OP Narrow SetNarrow(int32_t x) { return _mm256_set1_epi32(x); }
STEPWELL_LANE_OP Narrow Beyond(Narrow x, Narrow limit) { return _mm256_cmpgt_epi32(_mm256_abs_epi32(x), limit); }
STEPWELL_LANE_OP bool Any(Narrow mask) { return _mm256_movemask_epi8(mask) != 0; }
STEPWELL_LANE_OP Narrow Choose(Narrow mask, Narrow yes, Narrow no) { return _mm256_blendv_epi8(no, yes, mask); }
STEPWELL_LANE_OP Narrow Clamp(Narrow x, Narrow limit) {
  return _mm256_max_epi32(_mm256_min_epi32(x, limit), _mm256_sub_epi32(_mm256_setzero_si256(), limit));
}

STEPWELL_LANE_OP void StoreBf16(uint16_t* out, Wide bits) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), _mm512_cvtepi32_epi16(Shift16(bits)));
}
STEPWELL_LANE_OP void Bf16Nearest16(const float* in, uint16_t* out) {
  const Wide bits = _mm512_loadu_si512(in);
  StoreBf16(out, Add32(bits, Add32(And(Shift16(bits), Set32(1)), Set32(0x7FFF))));
}
STEPWELL_LANE_OP void Fp16Nearest16(const float* in, uint16_t* out) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), _mm512_cvtps_ph(_mm512_loadu_ps(in), 0));
}
STEPWELL_LANE_OP void Bf16Stochastic16(const float* in, const uint32_t* draws, uint16_t* out) {
  const Wide bits = _mm512_loadu_si512(in);
  const Wide draw = And(_mm512_loadu_si512(draws), Set32(0xFFFF));
  const Wide exponent = Set32(0x7F800000);
  const __mmask16 finite = _mm512_cmpneq_epi32_mask(And(bits, exponent), exponent);
  const __mmask16 nan = _mm512_cmpgt_epi32_mask(And(bits, Set32(0x7FFFFFFF)), exponent);
  const Wide rounded = _mm512_mask_add_epi32(bits, finite, bits, draw);
  StoreBf16(out, _mm512_mask_or_epi32(rounded, nan, rounded, Set32(0x400000)));
}

#include "rows/philox_lanes.inc"
#undef STEPWELL_TARGET

}  // namespace stepwell::avx512

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif

#endif  // defined(__x86_64__)
