// Memory aligned to a page, as O_DIRECT wants it.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>

#include "io/env.h"

namespace stepwell {

struct FreeAligned {
  void operator()(std::byte* p) const { std::free(p); }
};
using AlignedBytes = std::unique_ptr<std::byte[], FreeAligned>;

// Not zeroed; empty when there is no memory.
inline AlignedBytes AllocateAligned(size_t bytes) {
  const size_t rounded = (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  return AlignedBytes(static_cast<std::byte*>(std::aligned_alloc(kPageBytes, rounded)));
}

}  // namespace stepwell
