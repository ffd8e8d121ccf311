#include "text/dense_column.h"

#include <atomic>
#include <bit>
#include <cmath>
#include <limits>
#include <type_traits>

#include "text/row_blocks.h"

namespace stepwell {

namespace {

// ln 2 in two parts: the first has 32 trailing zero bits, so its product with an exponent is exact.
constexpr double kLn2High = 0x1.62e42feep-1, kLn2Low = 0x1.a39ef35793c76p-33;
constexpr uint64_t kFractionBits = (uint64_t{1} << 52) - 1;
constexpr uint64_t kSqrtHalf = 0x3FE6A09E667F3BCD;  // the bits of sqrt(1/2)

// log(y) + lost / y, for normal y >= 1: y = m * 2^k with m in [sqrt(1/2), sqrt(2)), log(m) = 2 atanh((m - 1) / (m + 1)).
// The series of atanh, cut here, is off by less than 1e-15 of itself.
inline double LogOf(double y, double lost) {
  const uint64_t bits = std::bit_cast<uint64_t>(y);
  const uint64_t shifted = bits - kSqrtHalf;
  const int64_t k = static_cast<int64_t>(shifted) >> 52;
  const double m = std::bit_cast<double>((shifted & kFractionBits) + kSqrtHalf);
  const double s = (m - 1.0) / (m + 1.0);
  const double z = s * s;
  double series = 1.0 / 17.0;
  series = series * z + 1.0 / 15.0;
  series = series * z + 1.0 / 13.0;
  series = series * z + 1.0 / 11.0;
  series = series * z + 1.0 / 9.0;
  series = series * z + 1.0 / 7.0;
  series = series * z + 1.0 / 5.0;
  series = series * z + 1.0 / 3.0;
  const double log_m = 2.0 * s + (2.0 * s) * (z * series);
  const double exponent = static_cast<double>(static_cast<int32_t>(k));
  return exponent * kLn2High + (log_m + (exponent * kLn2Low + lost / y));
}

constexpr size_t kChunk = 128;

}  // namespace

double SignedLog1p(double v) {
  const double size = std::fabs(v);
  const double y = 1.0 + size;
  const double lost = size - (y - 1.0);  // by the addition: exact for |v| < 1, where it counts
  return std::copysign(LogOf(y, lost), v);
}

template <class Number>
size_t TransformDense(const Number* values, const uint8_t* present, size_t n, const DenseRule& rule, float* out,
                      size_t stride, uint8_t* bad, ThreadPool* pool) {
  constexpr double kMax = std::numeric_limits<double>::max();
  std::atomic<size_t> num_bad{0};
  ForRowBlocks(n, pool, [&](size_t begin, size_t end) {
    size_t found = 0;
    for (size_t start = begin; start < end; start += kChunk) {
      const size_t size = std::min(kChunk, end - start);
      double chunk[kChunk];
      uint8_t wrong[kChunk] = {};
      for (size_t i = 0; i < size; ++i) chunk[i] = static_cast<double>(values[start + i]);
      if (present != nullptr) {
        for (size_t i = 0; i < size; ++i) chunk[i] = present[start + i] != 0 ? chunk[i] : rule.missing;
      }
      if constexpr (std::is_floating_point_v<Number>) {
        for (size_t i = 0; i < size; ++i) {
          chunk[i] = chunk[i] == chunk[i] ? chunk[i] : rule.missing;
          wrong[i] = !(std::fabs(chunk[i]) <= kMax);
        }
      }
      if (rule.log1p) {
        for (size_t i = 0; i < size; ++i) chunk[i] = SignedLog1p(chunk[i]);
      }
      for (size_t i = 0; i < size; ++i) {
        double value = (chunk[i] - rule.mean) / rule.std;
        value = value < rule.low ? rule.low : value;
        value = value > rule.high ? rule.high : value;
        const float rounded = static_cast<float>(value);
        wrong[i] |= !(std::fabs(rounded) <= std::numeric_limits<float>::max());
        out[(start + i) * stride] = rounded;
      }
      for (size_t i = 0; i < size; ++i) {
        bad[start + i] = wrong[i];
        found += wrong[i];
      }
    }
    num_bad.fetch_add(found, std::memory_order_relaxed);
  });
  return num_bad.load();
}

#define STEPWELL_TRANSFORM(Number)                                                                                   \
  template size_t TransformDense(const Number*, const uint8_t*, size_t, const DenseRule&, float*, size_t, uint8_t*, \
                                 ThreadPool*);
STEPWELL_TRANSFORM(int32_t)
STEPWELL_TRANSFORM(int64_t)
STEPWELL_TRANSFORM(float)
STEPWELL_TRANSFORM(double)
#undef STEPWELL_TRANSFORM

}  // namespace stepwell
