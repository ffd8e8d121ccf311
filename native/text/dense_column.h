// One numeric column into one column of a dense block.
//
// The result has the same bits on every machine and for any batch: float64 additions, multiplications and divisions in a
// fixed order, none of them fused, no call of the C library, one rounding to float32 at the end.
#pragma once

#include <cstddef>
#include <cstdint>

#include "util/thread_pool.h"

namespace stepwell {

struct DenseRule {
  double missing;   // in place of what is not present or NaN
  bool log1p;       // sign(v) * log(1 + |v|)
  double mean, std;  // then (v - mean) / std
  double low, high;  // then bounded
};

// sign(v) * log(1 + |v|) for finite v.
double SignedLog1p(double v);

// Writes out[i * stride] for each of n values. A value that is infinite, or beyond float32 at the end, is bad: bad[i] = 1,
// else 0; returns how many are. `present` may be null: all are.
template <class Number>
size_t TransformDense(const Number* values, const uint8_t* present, size_t n, const DenseRule& rule, float* out,
                      size_t stride, uint8_t* bad, ThreadPool* pool);

}  // namespace stepwell
