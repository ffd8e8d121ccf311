// The first weights of rows: the same bits as stepwell.rows.initializers, at the speed of the core.
//
// A weight is float32(drawn int) * scale: one exact conversion and one multiplication, then rounding to nearest where
// the weight's dtype is narrower. There is no addition, so no compiler can fuse one and change bits.
//
// Thread safety: all functions are pure but for the rows they write.
#pragma once

#include <cstddef>
#include <cstdint>

#include "rows/philox.h"

namespace stepwell {

enum class InitKind : int { kZeros = 0, kConstant = 1, kUniform = 2, kNormal = 3, kTruncated = 4 };

struct InitProgram {
  int kind;        // InitKind
  float scale;     // uniform, normal, truncated
  int32_t a, b;    // uniform: the drawn int v has a <= v < b, or v = a where a = b. truncated: |v| <= b
  float constant;  // constant
};

inline constexpr int kMaxAttempts = 32;        // of a truncated normal; then it is clamped
inline constexpr int32_t kMaxS2 = 8 * 65535;   // |v| of a normal
inline constexpr int32_t kMaxDrawn = 1 << 24;  // |a|, |b| of a uniform: what float32 holds exactly

// Whether the functions below may be given these: known kind and dtype, finite floats, ints that convert exactly.
bool ValidInitProgram(const InitProgram& program, uint32_t dim, int weight_dtype);

// Writes the `dim` first weights of each ids[i] to rows[i], in weight_dtype 0 fp32, 1 bf16 or 2 fp16. Padding is left
// alone. Rows need no alignment and must not overlap. REQUIRES: ValidInitProgram.
void InitialWeights(const InitProgram& program, uint64_t table_key, const int64_t* ids, size_t n, uint32_t dim,
                    int weight_dtype, std::byte* const* rows);
// REQUIRES: IsaSupported(isa).
void InitialWeightsWith(Isa isa, const InitProgram& program, uint64_t table_key, const int64_t* ids, size_t n,
                        uint32_t dim, int weight_dtype, std::byte* const* rows);

inline void InitialRow(const InitProgram& program, uint64_t table_key, int64_t id, uint32_t dim, int weight_dtype,
                       std::byte* row) {
  InitialWeights(program, table_key, &id, 1, dim, weight_dtype, &row);
}

}  // namespace stepwell
