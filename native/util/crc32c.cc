#include "util/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_acle.h>
#include <sys/auxv.h>
#endif

namespace stepwell {
namespace {

constexpr uint32_t kPolynomial = 0x82F63B78u;

using Table = std::array<std::array<uint32_t, 256>, 8>;

constexpr Table MakeTable() {
  Table table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) ? kPolynomial : 0);
    table[0][i] = crc;
  }
  for (uint32_t i = 0; i < 256; ++i) {
    for (int k = 1; k < 8; ++k) table[k][i] = (table[k - 1][i] >> 8) ^ table[0][table[k - 1][i] & 0xff];
  }
  return table;
}
constexpr Table kTable = MakeTable();

uint32_t ExtendTable(uint32_t crc, const uint8_t* p, size_t n) {
  for (; n >= 8; n -= 8, p += 8) {
    uint64_t word = 0;
    for (int i = 0; i < 8; ++i) word |= static_cast<uint64_t>(p[i]) << (8 * i);
    word ^= crc;
    crc = 0;
    for (int i = 0; i < 8; ++i) crc ^= kTable[7 - i][(word >> (8 * i)) & 0xff];
  }
  for (; n > 0; --n, ++p) crc = (crc >> 8) ^ kTable[0][(crc ^ *p) & 0xff];
  return crc;
}

#if defined(__x86_64__) || defined(__aarch64__)
// The instruction has a latency of three cycles and a throughput of one, so three stripes run side by side. Three
// stripes of 1360 bytes are a page but for its last 12 bytes. The stripes are joined by the (linear) effect that 1360
// zero bytes have on a checksum, kept as four tables.
constexpr size_t kStripe = 1360;
using Shift = std::array<std::array<uint32_t, 256>, 4>;

Shift MakeShift() {
  std::array<uint32_t, 32> column{};
  const uint8_t zeros[kStripe] = {};
  for (int bit = 0; bit < 32; ++bit) column[bit] = ExtendTable(uint32_t{1} << bit, zeros, kStripe);
  Shift shift{};
  for (int byte = 0; byte < 4; ++byte) {
    for (uint32_t value = 0; value < 256; ++value) {
      for (int bit = 0; bit < 8; ++bit) {
        if ((value >> bit) & 1) shift[byte][value] ^= column[8 * byte + bit];
      }
    }
  }
  return shift;
}

inline uint32_t OverStripe(const Shift& shift, uint32_t crc) {
  return shift[0][crc & 0xff] ^ shift[1][(crc >> 8) & 0xff] ^ shift[2][(crc >> 16) & 0xff] ^ shift[3][crc >> 24];
}

inline uint64_t Load64(const uint8_t* p) {
  uint64_t word;
  std::memcpy(&word, p, sizeof(word));
  return word;
}
#endif

#if defined(__x86_64__)
#define STEPWELL_CRC_TARGET __attribute__((target("sse4.2")))
#define STEPWELL_CRC_WORD(crc, word) _mm_crc32_u64(crc, word)
#define STEPWELL_CRC_BYTE(crc, byte) _mm_crc32_u8(static_cast<uint32_t>(crc), byte)
bool HasInstruction() { return __builtin_cpu_supports("sse4.2"); }
constexpr const char* kInstruction = "sse4.2";
#elif defined(__aarch64__)
#define STEPWELL_CRC_TARGET __attribute__((target("+crc")))
#define STEPWELL_CRC_WORD(crc, word) __crc32cd(static_cast<uint32_t>(crc), word)
#define STEPWELL_CRC_BYTE(crc, byte) __crc32cb(static_cast<uint32_t>(crc), byte)
bool HasInstruction() { return (getauxval(AT_HWCAP) & (1u << 7)) != 0; }  // HWCAP_CRC32
constexpr const char* kInstruction = "arm64";
#endif

#if defined(STEPWELL_CRC_TARGET)
STEPWELL_CRC_TARGET uint32_t ExtendInstruction(uint32_t start, const uint8_t* p, size_t n) {
  static const Shift shift = MakeShift();
  uint64_t crc = start;
  while (n >= 3 * kStripe) {
    uint64_t second = 0, third = 0;
    for (size_t i = 0; i < kStripe; i += 8) {
      crc = STEPWELL_CRC_WORD(crc, Load64(p + i));
      second = STEPWELL_CRC_WORD(second, Load64(p + kStripe + i));
      third = STEPWELL_CRC_WORD(third, Load64(p + 2 * kStripe + i));
    }
    crc = OverStripe(shift, static_cast<uint32_t>(crc)) ^ second;
    crc = OverStripe(shift, static_cast<uint32_t>(crc)) ^ third;
    p += 3 * kStripe;
    n -= 3 * kStripe;
  }
  for (; n >= 8; n -= 8, p += 8) crc = STEPWELL_CRC_WORD(crc, Load64(p));
  for (; n > 0; --n, ++p) crc = STEPWELL_CRC_BYTE(crc, *p);
  return static_cast<uint32_t>(crc);
}
#else
bool HasInstruction() { return false; }
constexpr const char* kInstruction = "table";
uint32_t ExtendInstruction(uint32_t crc, const uint8_t* p, size_t n) { return ExtendTable(crc, p, n); }
#endif

}  // namespace

uint32_t Crc32c(const void* data, size_t bytes, uint32_t crc) {
  static const bool instruction = HasInstruction();
  const auto* p = static_cast<const uint8_t*>(data);
  return ~(instruction ? ExtendInstruction(~crc, p, bytes) : ExtendTable(~crc, p, bytes));
}

const char* Crc32cKind() { return HasInstruction() ? kInstruction : "table"; }

uint32_t Crc32cTable(const void* data, size_t bytes, uint32_t crc) {
  return ~ExtendTable(~crc, static_cast<const uint8_t*>(data), bytes);
}

}  // namespace stepwell
