// The kernels for any processor: vectors of four floats, which every x86-64 and arm64 has.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "rows/rounding.h"
#include "sparse/kernels.h"
#include "sparse/kernel_sets.h"

namespace stepwell::plain {
namespace {

using V = float __attribute__((vector_size(16)));
using Ints = int32_t __attribute__((vector_size(16)));
constexpr uint32_t kWidth = 4;
constexpr Isa kIsa = Isa::kScalar;

inline V Set(float x) { return V{x, x, x, x}; }
inline V Load(const float* from) {
  V x;
  std::memcpy(&x, from, sizeof(x));
  return x;
}
inline void Store(float* to, V x) { std::memcpy(to, &x, sizeof(x)); }
inline V LoadPart(const float* from, uint32_t n) {
  V x = Set(0);
  for (uint32_t i = 0; i < n; ++i) x[i] = from[i];
  return x;
}
inline void StorePart(float* to, V x, uint32_t n) {
  for (uint32_t i = 0; i < n; ++i) to[i] = x[i];
}
inline V Sqrt(V x) { return V{std::sqrt(x[0]), std::sqrt(x[1]), std::sqrt(x[2]), std::sqrt(x[3])}; }
inline float SumLanes(V x) {
  const float even = x[0] + x[2], odd = x[1] + x[3];
  return even + odd;
}
inline V OfBf16(const uint16_t* from, uint32_t n) {
  V x = Set(0);
  for (uint32_t i = 0; i < std::min(n, kWidth); ++i) x[i] = FloatOfBf16(from[i]);
  return x;
}
inline V OfFp16(const uint16_t* from, uint32_t n) {
  V x = Set(0);
  for (uint32_t i = 0; i < std::min(n, kWidth); ++i) x[i] = FloatOfFp16(from[i]);
  return x;
}

#include "sparse/lookup_lanes.inc"
#include "sparse/update_lanes.inc"

}  // namespace

const Kernels& Table() {
  static const Kernels kernels{&Lookup, &SumRows, &UpdateRows};
  return kernels;
}

}  // namespace stepwell::plain
