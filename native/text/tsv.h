// Lines of tab-separated fields into columns of 64-bit integers.
//
// A line ends with \n or \r\n; the last one may end with the data. A field is empty (missing), a decimal integer that
// fits 64 bits with sign, or 1 to 16 hex digits, whose value is the 64 bits. Anything else makes the line a bad one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "util/thread_pool.h"

namespace stepwell {

enum class TsvKind : int32_t { kSkip = -1, kDecimal = 0, kHex = 1 };

struct TsvField {
  TsvKind kind;
  int64_t* values;  // one per line; null where the field is skipped. 0 where missing or in a bad line
  uint8_t* valid;   // likewise; 1 where the field is there
};

constexpr int16_t kWrongNumberOfFields = -1;

size_t CountLines(const uint8_t* data, size_t size);

// For each of the CountLines lines: bad is 0, or 1 + the number of the first field that is not what its kind says, or
// kWrongNumberOfFields. Returns how many lines are bad. `pool` may be null.
size_t DecodeTsv(const uint8_t* data, size_t size, const std::vector<TsvField>& fields, int16_t* bad,
                 ThreadPool* pool);

}  // namespace stepwell
