// Ids from strings and from other ids, in batches. A pool may be null: then the caller does it all.
#pragma once

#include <cstddef>
#include <cstdint>

#include "stepwell/status.h"
#include "util/thread_pool.h"

namespace stepwell {

// String i is data[offsets[i] .. offsets[i + 1]).
struct StringBatch {
  const uint8_t* data;
  size_t data_size;
  const int64_t* offsets;  // [size + 1]
  size_t size;

  Status Validate() const;  // offsets lie in the data and do not fall
};

// All of these REQUIRE a valid batch.

// XXH64 of each string with seed 0, as an id.
void HashStrings(const StringBatch& strings, int64_t* ids, ThreadPool* pool);

// 1 to 16 hex digits of either case, as an id. Where `wanted` (null: everywhere) is not 0 and the string is something
// else, bad[i] = 1 and the id is 0. Returns how many are bad; bad[i] = 0 elsewhere.
size_t ParseHex(const StringBatch& strings, const uint8_t* wanted, int64_t* ids, uint8_t* bad, ThreadPool* pool);

// XXH64, seed 0, over the little-endian bytes of one id of each column, in order of the columns.
void HashColumns(const int64_t* const* columns, size_t num_columns, size_t size, int64_t* ids, ThreadPool* pool);

}  // namespace stepwell
