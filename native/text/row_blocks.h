// Work over rows in blocks: each block runs on one thread of a pool, or all on the caller where there is no pool.
#pragma once

#include <algorithm>
#include <cstddef>

#include "util/thread_pool.h"

namespace stepwell {

inline constexpr size_t kRowsPerBlock = 8192;

// body(begin, end) for blocks that cover 0 .. num_rows once.
template <class Body>
void ForRowBlocks(size_t num_rows, ThreadPool* pool, const Body& body) {
  if (pool == nullptr || num_rows <= kRowsPerBlock) {
    if (num_rows > 0) body(size_t{0}, num_rows);
    return;
  }
  pool->Run((num_rows + kRowsPerBlock - 1) / kRowsPerBlock, [&](size_t block) {
    const size_t begin = block * kRowsPerBlock;
    body(begin, std::min(begin + kRowsPerBlock, num_rows));
  });
}

}  // namespace stepwell
