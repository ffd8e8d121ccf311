// The kernels for AVX-512: vectors of sixteen floats.
#if defined(__x86_64__)

#include <immintrin.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "rows/rounding.h"
#include "sparse/kernel_sets.h"
#include "sparse/kernels.h"

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl")
// g++ 12 takes the undefined pass-through operand of its own AVX-512 intrinsics for a use of an unset variable.
#if !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

namespace stepwell::avx512 {
namespace {

using V = __m512;
using Ints = int32_t __attribute__((vector_size(64)));
constexpr uint32_t kWidth = 16;
constexpr Isa kIsa = Isa::kAvx512;

inline V Set(float x) { return _mm512_set1_ps(x); }
inline V Load(const float* from) { return _mm512_loadu_ps(from); }
inline void Store(float* to, V x) { _mm512_storeu_ps(to, x); }
inline __mmask16 FirstOf(uint32_t n) { return static_cast<__mmask16>(n >= kWidth ? 0xFFFFu : (1u << n) - 1u); }
inline V LoadPart(const float* from, uint32_t n) { return _mm512_maskz_loadu_ps(FirstOf(n), from); }
inline void StorePart(float* to, V x, uint32_t n) { _mm512_mask_storeu_ps(to, FirstOf(n), x); }
inline V Sqrt(V x) { return _mm512_sqrt_ps(x); }
inline float SumLanes(V x) {
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}
inline V OfBf16(const uint16_t* from, uint32_t n) {
  const __m512i wide = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(FirstOf(n), from));
  return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}
inline V OfFp16(const uint16_t* from, uint32_t n) {
  return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(FirstOf(n), from));
}

#include "sparse/lookup_lanes.inc"
#include "sparse/update_lanes.inc"

}  // namespace

const Kernels& Table() {
  static const Kernels kernels{&Lookup, &SumRows, &UpdateRows};
  return kernels;
}

}  // namespace stepwell::avx512

#if !defined(__clang__)
#pragma GCC diagnostic pop
#endif
#pragma GCC pop_options

#endif  // defined(__x86_64__)
