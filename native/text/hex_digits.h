// Hex digits as numbers, in a table. Private to native/text.
#pragma once

#include <cstddef>
#include <cstdint>

namespace stepwell {

inline constexpr uint8_t kNotHex = 0xFF;

struct HexDigits {
  uint8_t value[256];
  constexpr HexDigits() : value() {
    for (int c = 0; c < 256; ++c) value[c] = kNotHex;
    for (int i = 0; i < 10; ++i) value['0' + i] = static_cast<uint8_t>(i);
    for (int i = 0; i < 6; ++i) value['a' + i] = value['A' + i] = static_cast<uint8_t>(10 + i);
  }
};
inline constexpr HexDigits kHex;

// False where some of the bytes are no hex digits. REQUIRES 1 <= size <= 16.
inline bool ReadHex(const uint8_t* at, size_t size, uint64_t* value) {
  uint64_t bits = 0;
  uint8_t seen = 0;  // a digit is below 16, so its high half is only set by kNotHex
  for (size_t i = 0; i < size; ++i) {
    const uint8_t digit = kHex.value[at[i]];
    seen |= digit;
    bits = bits << 4 | digit;
  }
  *value = bits;
  return (seen & 0xF0) == 0;
}

}  // namespace stepwell
