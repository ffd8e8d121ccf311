// crc32c (Castagnoli), with the processor's instruction where it has one; which is decided at run time.
#pragma once

#include <cstddef>
#include <cstdint>

namespace stepwell {

// The checksum of `bytes` bytes that follow those whose checksum is `crc` (0: none).
uint32_t Crc32c(const void* data, size_t bytes, uint32_t crc = 0);

const char* Crc32cKind();  // "sse4.2", "arm64" or "table"

// The version without instructions, for tests and for comparison.
uint32_t Crc32cTable(const void* data, size_t bytes, uint32_t crc = 0);

}  // namespace stepwell
