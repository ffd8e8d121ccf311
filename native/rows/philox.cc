#include "rows/philox.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <algorithm>
#include <cstring>

#include "rows/philox_x86.h"
#include "rows/rounding.h"

namespace stepwell {
namespace {

#if defined(__x86_64__)
// Not every compiler's __builtin_cpu_supports knows this name.
bool HasF16c() {
  unsigned int eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}
#endif

constexpr uint32_t kChunk = 256;  // columns whose draws wait on the stack; a multiple of 4 and of 16

void ScalarDraws(uint64_t table_key, int64_t id, uint32_t step, uint32_t first_column, uint32_t columns,
                 uint32_t* draws) {
  for (uint32_t done = 0; done < columns; done += 4) {
    const PhiloxBlock block = DrawBlock(table_key, id, (first_column + done) / 4, Stream::kRounding, step);
    std::memcpy(draws + done, block.word, sizeof(uint32_t) * std::min(4u, columns - done));
  }
}

struct Scalar {
  struct Key {
    uint64_t table_key;
  };
  static void Draws(const Key& key, int64_t id, uint32_t step, uint32_t first_column, uint32_t columns,
                    uint32_t* draws) {
    ScalarDraws(key.table_key, id, step, first_column, columns, draws);
  }
  static void Bf16(const float* in, const uint32_t* draws, uint32_t n, uint16_t* out) {
    for (uint32_t i = 0; i < n; ++i) out[i] = Bf16Stochastic(in[i], draws[i]);
  }
};

#if defined(__x86_64__)

// Whole groups of 16 in the vector code, the rest one by one.
#define STEPWELL_ROUNDING(name, target, lanes)                                                                 \
  struct name {                                                                                                \
    using Key = lanes::Key;                                                                                    \
    target static void Draws(const Key& key, int64_t id, uint32_t step, uint32_t first_column, uint32_t columns, \
                             uint32_t* draws) {                                                                \
      lanes::RoundingDraws(key, id, step, first_column, columns, draws);                                       \
    }                                                                                                          \
    target static void Bf16(const float* in, const uint32_t* draws, uint32_t n, uint16_t* out) {               \
      uint32_t i = 0;                                                                                          \
      for (; i + 16 <= n; i += 16) lanes::Bf16Stochastic16(in + i, draws + i, out + i);                        \
      for (; i < n; ++i) out[i] = Bf16Stochastic(in[i], draws[i]);                                             \
    }                                                                                                          \
  };
STEPWELL_ROUNDING(Avx2, STEPWELL_AVX2, avx2)
STEPWELL_ROUNDING(Avx512, STEPWELL_AVX512, avx512)
#undef STEPWELL_ROUNDING

#endif

template <class Code>
void RoundRows(uint64_t table_key, const int64_t* ids, size_t n, uint32_t step, uint32_t dim, int weight_dtype,
               const float* weights, std::byte* const* rows) {
  const typename Code::Key key{table_key};
  uint32_t draws[kChunk];
  uint16_t rounded[kChunk];
  for (size_t i = 0; i < n; ++i, weights += dim) {
    for (uint32_t column = 0; column < dim; column += kChunk) {
      const uint32_t columns = std::min(kChunk, dim - column);
      Code::Draws(key, ids[i], step, column, columns, draws);
      if (weight_dtype == 1) {
        Code::Bf16(weights + column, draws, columns, rounded);
      } else {
        for (uint32_t c = 0; c < columns; ++c) rounded[c] = Fp16Stochastic(weights[column + c], draws[c]);
      }
      std::memcpy(rows[i] + size_t{2} * column, rounded, size_t{2} * columns);
    }
  }
}

}  // namespace

bool IsaSupported(Isa isa) {
#if defined(__x86_64__)
  __builtin_cpu_init();  // a static constructor may ask
  switch (isa) {
    case Isa::kScalar:
      return true;
    case Isa::kAvx2:
      return __builtin_cpu_supports("avx2") && HasF16c();
    case Isa::kAvx512:
      return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  }
  return false;
#else
  return isa == Isa::kScalar;
#endif
}

Isa BestIsa() {
  static const Isa best = IsaSupported(Isa::kAvx512) ? Isa::kAvx512
                          : IsaSupported(Isa::kAvx2) ? Isa::kAvx2
                                                     : Isa::kScalar;
  return best;
}

void StochasticRoundBits(uint64_t table_key, int64_t id, uint32_t step, uint32_t dim, uint32_t* draws) {
  switch (BestIsa()) {
#if defined(__x86_64__)
    case Isa::kAvx512:
      return Avx512::Draws(avx512::Key(table_key), id, step, 0, dim, draws);
    case Isa::kAvx2:
      return Avx2::Draws(avx2::Key(table_key), id, step, 0, dim, draws);
#endif
    default:
      return ScalarDraws(table_key, id, step, 0, dim, draws);
  }
}

void StochasticRoundRows(uint64_t table_key, const int64_t* ids, size_t n, uint32_t step, uint32_t dim,
                         int weight_dtype, const float* weights, std::byte* const* rows) {
  StochasticRoundRowsWith(BestIsa(), table_key, ids, n, step, dim, weight_dtype, weights, rows);
}

void StochasticRoundRowsWith(Isa isa, uint64_t table_key, const int64_t* ids, size_t n, uint32_t step, uint32_t dim,
                             int weight_dtype, const float* weights, std::byte* const* rows) {
  if (weight_dtype == 0) {
    for (size_t i = 0; i < n; ++i) std::memcpy(rows[i], weights + i * dim, sizeof(float) * dim);
    return;
  }
  switch (isa) {
#if defined(__x86_64__)
    case Isa::kAvx512:
      return RoundRows<Avx512>(table_key, ids, n, step, dim, weight_dtype, weights, rows);
    case Isa::kAvx2:
      return RoundRows<Avx2>(table_key, ids, n, step, dim, weight_dtype, weights, rows);
#endif
    default:
      return RoundRows<Scalar>(table_key, ids, n, step, dim, weight_dtype, weights, rows);
  }
}

}  // namespace stepwell
