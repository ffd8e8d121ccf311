#include "rows/initializer.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "rows/philox_x86.h"
#include "rows/rounding.h"

namespace stepwell {
namespace {

constexpr uint32_t kChunk = 256;  // columns that wait on the stack to be rounded; a multiple of 16

int32_t SumOfHalves(const PhiloxBlock& block) {
  uint32_t sum = 0;
  for (uint32_t word : block.word) sum += (word & 0xFFFFu) + (word >> 16);
  return 2 * static_cast<int32_t>(sum) - kMaxS2;
}

int32_t TruncatedDraw(uint64_t table_key, int64_t id, uint32_t column, int32_t limit) {
  int32_t drawn = 0;
  for (uint32_t attempt = 0; attempt < kMaxAttempts; ++attempt) {
    drawn = SumOfHalves(DrawBlock(table_key, id, column, Stream::kTruncated, attempt));
    if (std::abs(drawn) <= limit) return drawn;
  }
  return std::clamp(drawn, -limit, limit);
}

// Calls store(column, weight) for each column.
template <class Store>
void ScalarRow(const InitProgram& program, uint64_t table_key, int64_t id, uint32_t dim, Store store) {
  switch (static_cast<InitKind>(program.kind)) {
    case InitKind::kUniform: {
      const uint64_t span = static_cast<uint32_t>(program.b - program.a);
      PhiloxBlock block{};
      for (uint32_t c = 0; c < dim; ++c) {
        if (c % 4 == 0) block = DrawBlock(table_key, id, c / 4, Stream::kUniform, 0);
        const int32_t drawn = program.a + static_cast<int32_t>((block.word[c % 4] * span) >> 32);
        store(c, static_cast<float>(drawn) * program.scale);
      }
      return;
    }
    case InitKind::kNormal:
      for (uint32_t c = 0; c < dim; ++c) {
        const int32_t drawn = SumOfHalves(DrawBlock(table_key, id, c, Stream::kNormal, 0));
        store(c, static_cast<float>(drawn) * program.scale);
      }
      return;
    case InitKind::kTruncated:
      for (uint32_t c = 0; c < dim; ++c) {
        store(c, static_cast<float>(TruncatedDraw(table_key, id, c, program.b)) * program.scale);
      }
      return;
    case InitKind::kZeros:
    case InitKind::kConstant:
      for (uint32_t c = 0; c < dim; ++c) store(c, program.constant);
      return;
  }
}

void ScalarRows(const InitProgram& program, uint64_t table_key, const int64_t* ids, size_t n, uint32_t dim,
                int weight_dtype, std::byte* const* rows) {
  for (size_t i = 0; i < n; ++i) {
    std::byte* const row = rows[i];
    if (weight_dtype == 0) {
      ScalarRow(program, table_key, ids[i], dim,
                [row](uint32_t c, float weight) { std::memcpy(row + size_t{4} * c, &weight, 4); });
    } else {
      ScalarRow(program, table_key, ids[i], dim, [row, weight_dtype](uint32_t c, float weight) {
        const uint16_t rounded = weight_dtype == 1 ? Bf16Nearest(weight) : Fp16Nearest(weight);
        std::memcpy(row + size_t{2} * c, &rounded, 2);
      });
    }
  }
}

}  // namespace

#if defined(__x86_64__)

namespace avx2 {
namespace {
#define STEPWELL_TARGET STEPWELL_AVX2
#include "rows/initializer_lanes.inc"
#undef STEPWELL_TARGET
}  // namespace
}  // namespace avx2

namespace avx512 {
namespace {
#define STEPWELL_TARGET STEPWELL_AVX512
#include "rows/initializer_lanes.inc"
#undef STEPWELL_TARGET
}  // namespace
}  // namespace avx512

#endif

bool ValidInitProgram(const InitProgram& program, uint32_t dim, int weight_dtype) {
  if (dim < 1 || dim > kMaxDim || weight_dtype < 0 || weight_dtype > 2) return false;
  if (!std::isfinite(program.scale) || !std::isfinite(program.constant)) return false;
  switch (static_cast<InitKind>(program.kind)) {
    case InitKind::kZeros:
      return program.constant == 0;
    case InitKind::kConstant:
    case InitKind::kNormal:
      return true;
    case InitKind::kUniform:
      return -kMaxDrawn <= program.a && program.a <= program.b && program.b <= kMaxDrawn;
    case InitKind::kTruncated:
      return 0 <= program.b && program.b <= kMaxS2;
  }
  return false;
}

void InitialWeights(const InitProgram& program, uint64_t table_key, const int64_t* ids, size_t n, uint32_t dim,
                    int weight_dtype, std::byte* const* rows) {
  InitialWeightsWith(BestIsa(), program, table_key, ids, n, dim, weight_dtype, rows);
}

void InitialWeightsWith(Isa isa, const InitProgram& program, uint64_t table_key, const int64_t* ids, size_t n,
                        uint32_t dim, int weight_dtype, std::byte* const* rows) {
  if (program.kind == static_cast<int>(InitKind::kZeros)) {
    const size_t bytes = (weight_dtype == 0 ? size_t{4} : size_t{2}) * dim;
    for (size_t i = 0; i < n; ++i) std::memset(rows[i], 0, bytes);
    return;
  }
  const bool drawn = program.kind != static_cast<int>(InitKind::kConstant);
#if defined(__x86_64__)
  if (drawn && isa == Isa::kAvx512) return avx512::DrawRows(program, table_key, ids, n, dim, weight_dtype, rows);
  if (drawn && isa == Isa::kAvx2) return avx2::DrawRows(program, table_key, ids, n, dim, weight_dtype, rows);
#else
  (void)isa;
  (void)drawn;
#endif
  ScalarRows(program, table_key, ids, n, dim, weight_dtype, rows);
}

}  // namespace stepwell
