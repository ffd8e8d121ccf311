#include "text/string_ids.h"

#include <atomic>
#include <string>
#include <vector>

#include "text/hex_digits.h"
#include "text/row_blocks.h"
#include "text/xxh64.h"

namespace stepwell {

Status StringBatch::Validate() const {
  bool rises = offsets[0] >= 0;
  for (size_t i = 0; i < size; ++i) rises &= offsets[i] <= offsets[i + 1];
  if (!rises || static_cast<uint64_t>(offsets[size]) > data_size) {
    return Status(Code::kInvalid, "offsets of strings: expected to rise from 0 or more to at most " +
                                      std::to_string(data_size) + ", the bytes there are; found " +
                                      std::to_string(offsets[0]) + " to " + std::to_string(offsets[size]));
  }
  return Status::Ok();
}

void HashStrings(const StringBatch& strings, int64_t* ids, ThreadPool* pool) {
  ForRowBlocks(strings.size, pool, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      const int64_t from = strings.offsets[i];
      const size_t size = static_cast<size_t>(strings.offsets[i + 1] - from);
      ids[i] = static_cast<int64_t>(Xxh64(strings.data + from, size, 0));
    }
  });
}

size_t ParseHex(const StringBatch& strings, const uint8_t* wanted, int64_t* ids, uint8_t* bad, ThreadPool* pool) {
  std::atomic<size_t> num_bad{0};
  ForRowBlocks(strings.size, pool, [&](size_t begin, size_t end) {
    size_t found = 0;
    for (size_t i = begin; i < end; ++i) {
      const int64_t from = strings.offsets[i];
      const size_t size = static_cast<size_t>(strings.offsets[i + 1] - from);
      uint64_t value = 0;
      const bool is_wanted = wanted == nullptr || wanted[i] != 0;
      const bool ok = !is_wanted || (size >= 1 && size <= 16 && ReadHex(strings.data + from, size, &value));
      ids[i] = ok ? static_cast<int64_t>(value) : 0;
      bad[i] = !ok;
      found += !ok;
    }
    num_bad.fetch_add(found, std::memory_order_relaxed);
  });
  return num_bad.load();
}

void HashColumns(const int64_t* const* columns, size_t num_columns, size_t size, int64_t* ids, ThreadPool* pool) {
  ForRowBlocks(size, pool, [&](size_t begin, size_t end) {
    std::vector<int64_t> together(num_columns);
    for (size_t i = begin; i < end; ++i) {
      for (size_t c = 0; c < num_columns; ++c) together[c] = columns[c][i];
      const auto* bytes = reinterpret_cast<const uint8_t*>(together.data());
      ids[i] = static_cast<int64_t>(Xxh64(bytes, num_columns * sizeof(int64_t), 0));
    }
  });
}

}  // namespace stepwell
