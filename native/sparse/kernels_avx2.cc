// The kernels for AVX2: vectors of eight floats.
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
#pragma GCC target("avx2,f16c")  // and no fused multiply-add

namespace stepwell::avx2 {
namespace {

using V = __m256;
using Ints = int32_t __attribute__((vector_size(32)));
constexpr uint32_t kWidth = 8;
constexpr Isa kIsa = Isa::kAvx2;

inline V Set(float x) { return _mm256_set1_ps(x); }
inline V Load(const float* from) { return _mm256_loadu_ps(from); }
inline void Store(float* to, V x) { _mm256_storeu_ps(to, x); }
inline __m256i FirstOf(uint32_t n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int32_t>(n)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
inline V LoadPart(const float* from, uint32_t n) { return _mm256_maskload_ps(from, FirstOf(n)); }
inline void StorePart(float* to, V x, uint32_t n) { _mm256_maskstore_ps(to, FirstOf(n), x); }
inline V Sqrt(V x) { return _mm256_sqrt_ps(x); }
inline float SumLanes(V x) {
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}
inline __m128i LoadHalves(const uint16_t* from, uint32_t n) {
  if (n >= kWidth) return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  uint16_t part[kWidth] = {};
  std::memcpy(part, from, n * sizeof(uint16_t));
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(part));
}
inline V OfBf16(const uint16_t* from, uint32_t n) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(LoadHalves(from, n)), 16));
}
inline V OfFp16(const uint16_t* from, uint32_t n) { return _mm256_cvtph_ps(LoadHalves(from, n)); }

#include "sparse/lookup_lanes.inc"
#include "sparse/update_lanes.inc"

}  // namespace

const Kernels& Table() {
  static const Kernels kernels{&Lookup, &SumRows, &UpdateRows};
  return kernels;
}

}  // namespace stepwell::avx2

#pragma GCC pop_options

#endif  // defined(__x86_64__)
