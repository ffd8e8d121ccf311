// The core's first weights and rounding: frozen bits, and the same bits from every instruction set.
#include "rows/initializer.h"

#include <bit>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <random>
#include <string_view>
#include <vector>

#include "rows/rounding.h"
#include "tests/check.h"

namespace stepwell {
namespace {

constexpr uint64_t kKey = 0x954e6b31b6a372c9u;
constexpr int64_t kIds[5] = {0, 1, -1, std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()};

struct Golden {
  const char* name;
  InitProgram program;
  uint32_t fp32[5][5];
  uint16_t bf16[5][5];
  uint16_t fp16[5][5];
};
constexpr Golden kGolden[] = {
#include "rows/initializer_golden.inc"
};
constexpr uint32_t kGoldenDraws[5][5] = {
    {0xf3970f15, 0xb054d95b, 0x7721c7e1, 0xd4a2b3b5, 0x89febd18},
    {0x1f67e108, 0xdcc343e3, 0x1e9b1125, 0xf3304655, 0xeff42a89},
    {0x2e6a708b, 0xb2174c8f, 0x40027c70, 0x2b4d6ebe, 0xe924e4e4},
    {0xf7ca3e6b, 0x5ca7b95e, 0xb86f2845, 0x9b80ad0b, 0x373082b5},
    {0x3bde3d99, 0xbe111a6f, 0xe5ccfe17, 0xc091cfb0, 0xf197a701},
};
constexpr uint32_t kGoldenAdmission[5] = {0xb037741f, 0xf79e69f5, 0xd05e762e, 0x964a5c2e, 0x94afa1d4};

std::vector<Isa> SupportedIsas() {
  std::vector<Isa> isas;
  for (Isa isa : {Isa::kScalar, Isa::kAvx2, Isa::kAvx512}) {
    if (IsaSupported(isa)) isas.push_back(isa);
  }
  return isas;
}

// Rows of `dim` weights with 16 bytes of 0xEE after each, which nothing may write.
struct Rows {
  Rows(size_t n, uint32_t dim, int dtype) : stride(size_t{dtype == 0 ? 4u : 2u} * dim + 16), bytes(n * stride) {
    std::memset(bytes.data(), 0xEE, bytes.size());
    for (size_t i = 0; i < n; ++i) at.push_back(bytes.data() + i * stride);
  }
  size_t stride;
  std::vector<std::byte> bytes;
  std::vector<std::byte*> at;
};

void TestPhiloxKnownAnswers() {
  const PhiloxBlock zeros = Philox4x32(0, 0, 0, 0, 0);
  CHECK_EQ(zeros.word[0], 0x6627e8d5u);
  CHECK_EQ(zeros.word[1], 0xe169c58du);
  CHECK_EQ(zeros.word[2], 0xbc57ac4cu);
  CHECK_EQ(zeros.word[3], 0x9b00dbd8u);
  const uint32_t ff = 0xFFFFFFFFu;
  const PhiloxBlock ones = Philox4x32(ff, ff, ff, ff, ~uint64_t{0});
  CHECK_EQ(ones.word[0], 0x408f276du);
  CHECK_EQ(ones.word[1], 0x41c83b0eu);
  CHECK_EQ(ones.word[2], 0xa20bc7c6u);
  CHECK_EQ(ones.word[3], 0x6d5451fdu);
}

void TestGoldenWeights() {
  for (Isa isa : SupportedIsas()) {
    for (const Golden& golden : kGolden) {
      const void* expected[3] = {golden.fp32, golden.bf16, golden.fp16};
      for (int dtype = 0; dtype < 3; ++dtype) {
        CHECK(ValidInitProgram(golden.program, 5, dtype));
        const size_t row_bytes = dtype == 0 ? 20 : 10;
        Rows rows(5, 5, dtype);
        InitialWeightsWith(isa, golden.program, kKey, kIds, 5, 5, dtype, rows.at.data());
        for (size_t i = 0; i < 5; ++i) {
          const auto* row = static_cast<const std::byte*>(expected[dtype]) + i * row_bytes;
          CHECK_EQ(std::memcmp(rows.at[i], row, row_bytes), 0);
        }
      }
    }
  }
  for (size_t i = 0; i < 5; ++i) {
    uint32_t draws[5];
    StochasticRoundBits(kKey, kIds[i], 9, 5, draws);
    CHECK_EQ(std::memcmp(draws, kGoldenDraws[i], sizeof(draws)), 0);
    CHECK_EQ(AdmissionDraw(kKey, kIds[i], 9), kGoldenAdmission[i]);
    std::byte row[20];
    InitialRow(kGolden[0].program, kKey, kIds[i], 5, 0, row);
    CHECK_EQ(std::memcmp(row, kGolden[0].fp32[i], sizeof(row)), 0);
  }
}

std::vector<uint32_t> Dims() {
  std::vector<uint32_t> dims;
  for (uint32_t dim = 1; dim <= 72; ++dim) dims.push_back(dim);
  for (uint32_t dim : {96u, 127u, 128u, 255u, 256u, 257u, 300u, 515u}) dims.push_back(dim);
  return dims;
}

void TestEveryIsaGivesTheSameWeights() {
  const InitProgram programs[] = {
      {0, 0, 0, 0, 0},
      {1, 0, 0, 0, -2.75f},
      {2, 0x1p-25f, -(1 << 24), 1 << 24, 0},
      {2, 3e-9f, 5, 5, 0},
      {3, 1e-7f, 0, 0, 0},
      {3, 1e-10f, 0, 0, 0},  // fp16 subnormals
      {4, 1e-7f, 0, 214038, 0},
      {4, 1e-7f, 0, 107019, 0},
      {4, 1e-7f, 0, 100, 0},  // beyond what a spec allows, so that attempts run out and clamp
      {4, 1e-7f, 0, kMaxS2, 0},
  };
  std::mt19937_64 random(1);
  for (uint32_t dim : Dims()) {
    int64_t ids[7];
    for (int64_t& id : ids) id = static_cast<int64_t>(random());
    const uint64_t key = random();
    for (const InitProgram& program : programs) {
      for (int dtype = 0; dtype < 3; ++dtype) {
        CHECK(ValidInitProgram(program, dim, dtype));
        Rows expected(7, dim, dtype);
        InitialWeightsWith(Isa::kScalar, program, key, ids, 7, dim, dtype, expected.at.data());
        for (const std::byte* row : expected.at) CHECK(row[expected.stride - 16] == std::byte{0xEE});
        for (Isa isa : SupportedIsas()) {
          Rows rows(7, dim, dtype);
          InitialWeightsWith(isa, program, key, ids, 7, dim, dtype, rows.at.data());
          CHECK(rows.bytes == expected.bytes);
        }
      }
    }
  }
}

void TestEveryIsaRoundsTheSame() {
  std::mt19937_64 random(2);
  for (uint32_t dim : Dims()) {
    int64_t ids[5];
    for (int64_t& id : ids) id = static_cast<int64_t>(random());
    std::vector<float> weights(5 * dim);
    for (size_t i = 0; i < weights.size(); ++i) {
      const float small = static_cast<float>(static_cast<int32_t>(random())) * 1e-11f;
      weights[i] = i % 3 == 0 ? std::bit_cast<float>(static_cast<uint32_t>(random())) : small;  // NaN, inf, subnormal
    }
    weights[0] = std::numeric_limits<float>::infinity();
    weights[weights.size() / 2] = std::numeric_limits<float>::quiet_NaN();
    for (int dtype = 0; dtype < 3; ++dtype) {
      Rows expected(5, dim, dtype);
      StochasticRoundRowsWith(Isa::kScalar, kKey, ids, 5, 77, dim, dtype, weights.data(), expected.at.data());
      std::vector<uint32_t> draws(dim);
      for (size_t i = 0; i < 5; ++i) {
        StochasticRoundBits(kKey, ids[i], 77, dim, draws.data());
        for (uint32_t c = 0; c < dim && dtype != 0; ++c) {
          const float weight = weights[i * dim + c];
          uint16_t stored;
          std::memcpy(&stored, expected.at[i] + 2 * c, 2);
          CHECK_EQ(stored, dtype == 1 ? Bf16Stochastic(weight, draws[c]) : Fp16Stochastic(weight, draws[c]));
        }
      }
      for (Isa isa : SupportedIsas()) {
        Rows rows(5, dim, dtype);
        StochasticRoundRowsWith(isa, kKey, ids, 5, 77, dim, dtype, weights.data(), rows.at.data());
        CHECK(rows.bytes == expected.bytes);
      }
    }
  }
}

void TestRoundingKeepsExactValues() {
  for (uint32_t stored = 0; stored < 65536; ++stored) {
    const uint16_t bits = static_cast<uint16_t>(stored);
    for (uint32_t draw : {0u, 0x12345678u, 0xFFFFFFFFu}) {
      const float bf16 = FloatOfBf16(bits), fp16 = FloatOfFp16(bits);
      if (std::isnan(bf16)) {
        CHECK(std::isnan(FloatOfBf16(Bf16Stochastic(bf16, draw))) && std::isnan(FloatOfBf16(Bf16Nearest(bf16))));
      } else {
        CHECK_EQ(Bf16Stochastic(bf16, draw), bits);
        CHECK_EQ(Bf16Nearest(bf16), bits);
      }
      if (std::isnan(fp16)) {
        CHECK(std::isnan(FloatOfFp16(Fp16Stochastic(fp16, draw))) && std::isnan(FloatOfFp16(Fp16Nearest(fp16))));
      } else {
        CHECK_EQ(Fp16Stochastic(fp16, draw), bits);
        CHECK_EQ(Fp16Nearest(fp16), bits);
      }
    }
  }
}

void TestRoundingIsUnbiased() {
  // 0.3 between its neighbours, a subnormal of fp16, and a value below the smallest one.
  for (float value : {0.3f, -0.3f, 3.3e-6f, 2e-8f}) {
    double bf16 = 0, fp16 = 0;
    constexpr int kDraws = 1 << 16;
    for (int i = 0; i < kDraws; ++i) {
      const uint32_t draw = DrawBlock(kKey, i, 0, Stream::kRounding, 1).word[0];
      bf16 += FloatOfBf16(Bf16Stochastic(value, draw));
      fp16 += FloatOfFp16(Fp16Stochastic(value, draw));
    }
    const double unit = std::max(0x1p-24, std::fabs(static_cast<double>(value)) * 0x1p-10);
    CHECK(std::fabs(bf16 / kDraws - value) < std::fabs(value) * 0x1p-8 * 0.01);
    CHECK(std::fabs(fp16 / kDraws - value) < unit * 0.01);
  }
}

void TestInvalidPrograms() {
  const InitProgram uniform = {2, 1.0f, -1, 1, 0};
  CHECK(!ValidInitProgram(uniform, 0, 0));
  CHECK(!ValidInitProgram(uniform, kMaxDim + 1, 0));
  CHECK(!ValidInitProgram(uniform, 8, 3));
  CHECK(!ValidInitProgram({5, 0, 0, 0, 0}, 8, 0));
  CHECK(!ValidInitProgram({2, 1.0f, 1, -1, 0}, 8, 0));
  CHECK(!ValidInitProgram({2, 1.0f, 0, kMaxDrawn + 1, 0}, 8, 0));
  CHECK(!ValidInitProgram({4, 1.0f, 0, -1, 0}, 8, 0));
  CHECK(!ValidInitProgram({1, 0, 0, 0, std::numeric_limits<float>::infinity()}, 8, 0));
}

// `initializer_test bench`: rows per second on one core, into a buffer that fits the cache.
void Bench() {
  constexpr size_t kRows = 4096;
  constexpr uint32_t kDim = 64;
  const char* isa_names[] = {"scalar", "avx2", "avx512"};
  const char* dtype_names[] = {"fp32", "bf16", "fp16"};
  std::vector<int64_t> ids(kRows);
  std::mt19937_64 random(3);
  for (int64_t& id : ids) id = static_cast<int64_t>(random());
  for (Isa isa : SupportedIsas()) {
    for (int dtype = 0; dtype < 3; ++dtype) {
      Rows rows(kRows, kDim, dtype);
      std::vector<float> weights(kRows * kDim, 0.01f);
      const auto time = [&](const char* name, auto&& fill) {
        double best = 0;
        for (int repeat = 0; repeat < 7; ++repeat) {
          const auto start = std::chrono::steady_clock::now();
          for (int i = 0; i < 5; ++i) fill();
          const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
          best = std::max(best, 5 * kRows / seconds.count());
        }
        std::printf("%-7s %s dim %u %-10s %7.2f M rows/s\n", isa_names[static_cast<int>(isa)], dtype_names[dtype],
                    kDim, name, best * 1e-6);
      };
      for (const Golden& golden : kGolden) {
        time(golden.name, [&] {
          InitialWeightsWith(isa, golden.program, kKey, ids.data(), kRows, kDim, dtype, rows.at.data());
        });
      }
      time("rounding", [&] {
        StochasticRoundRowsWith(isa, kKey, ids.data(), kRows, 1, kDim, dtype, weights.data(), rows.at.data());
      });
    }
  }
}

}  // namespace
}  // namespace stepwell

int main(int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]) == "bench") {
    stepwell::Bench();
    return 0;
  }
  stepwell::TestPhiloxKnownAnswers();
  stepwell::TestGoldenWeights();
  stepwell::TestEveryIsaGivesTheSameWeights();
  stepwell::TestEveryIsaRoundsTheSame();
  stepwell::TestRoundingKeepsExactValues();
  stepwell::TestRoundingIsUnbiased();
  stepwell::TestInvalidPrograms();
  return 0;
}
