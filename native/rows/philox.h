// The generator: every random bit of a row is a function of (table key, id, column, attempt or step) alone.
// Philox 4x32-10; the same bits as stepwell.rows.generator, whose docstring defines key, counter and streams.
//
// Thread safety: all functions are pure.
#pragma once

#include <cstddef>
#include <cstdint>

namespace stepwell {

// Instruction sets that have their own code. All give the same bits; tests force each.
enum class Isa : int { kScalar = 0, kAvx2 = 1, kAvx512 = 2 };

bool IsaSupported(Isa isa);  // by this processor and operating system
Isa BestIsa();               // the last one supported

enum class Stream : uint32_t { kUniform = 0, kNormal = 1, kTruncated = 2, kRounding = 3, kAdmission = 4 };

inline constexpr uint32_t kMaxDim = 1u << 24;  // a column block has 24 bits of its counter word
inline constexpr uint32_t kPhiloxM0 = 0xD2511F53u, kPhiloxM1 = 0xCD9E8D57u;
inline constexpr uint32_t kPhiloxW0 = 0x9E3779B9u, kPhiloxW1 = 0xBB67AE85u;
inline constexpr int kPhiloxRounds = 10;

struct PhiloxBlock {
  uint32_t word[4];
};

inline PhiloxBlock Philox4x32(uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3, uint64_t key) {
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const uint64_t p0 = uint64_t{kPhiloxM0} * c0;
    const uint64_t p1 = uint64_t{kPhiloxM1} * c2;
    c0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
    c1 = static_cast<uint32_t>(p1);
    c2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c3 = static_cast<uint32_t>(p0);
    k0 += kPhiloxW0;
    k1 += kPhiloxW1;
  }
  return {{c0, c1, c2, c3}};
}

inline PhiloxBlock DrawBlock(uint64_t table_key, int64_t id, uint32_t block, Stream stream, uint32_t c3) {
  const uint64_t bits = static_cast<uint64_t>(id);
  return Philox4x32(static_cast<uint32_t>(bits), static_cast<uint32_t>(bits >> 32),
                    block | static_cast<uint32_t>(stream) << 24, c3, table_key);
}

// A new id is admitted at `step` where its draw is below the policy's threshold.
inline uint32_t AdmissionDraw(uint64_t table_key, int64_t id, uint32_t step) {
  return DrawBlock(table_key, id, 0, Stream::kAdmission, step).word[0];
}

// draws[c], c < dim: what rounds column c of the row of `id` at `step`. See Bf16Stochastic and Fp16Stochastic.
void StochasticRoundBits(uint64_t table_key, int64_t id, uint32_t step, uint32_t dim, uint32_t* draws);

// Rounds `dim` weights into rows of a 2-byte dtype (1 bf16, 2 fp16), with those draws: weights[i * dim + c] to
// column c of rows[i], the row of ids[i]. fp32 (0) is copied: nothing is dropped. Padding is left alone.
// REQUIRES: 0 <= weight_dtype <= 2, 1 <= dim <= kMaxDim.
void StochasticRoundRows(uint64_t table_key, const int64_t* ids, size_t n, uint32_t step, uint32_t dim,
                         int weight_dtype, const float* weights, std::byte* const* rows);
// REQUIRES: IsaSupported(isa).
void StochasticRoundRowsWith(Isa isa, uint64_t table_key, const int64_t* ids, size_t n, uint32_t step, uint32_t dim,
                             int weight_dtype, const float* weights, std::byte* const* rows);

}  // namespace stepwell
