// The checksum against its published vectors, and the instruction's version against the table's at every length.
#include "util/crc32c.h"

#include <cstring>
#include <vector>

#include "tests/check.h"

using namespace stepwell;

int main() {
  CHECK_EQ(Crc32c("", 0), 0u);
  CHECK_EQ(Crc32c("123456789", 9), 0xE3069283u);
  std::vector<uint8_t> data(32, 0);
  CHECK_EQ(Crc32c(data.data(), 32), 0x8A9136AAu);
  std::memset(data.data(), 0xff, 32);
  CHECK_EQ(Crc32c(data.data(), 32), 0x62A8AB43u);
  for (int i = 0; i < 32; ++i) data[i] = static_cast<uint8_t>(i);
  CHECK_EQ(Crc32c(data.data(), 32), 0x46DD794Eu);

  data.resize(20000);
  uint32_t state = 1;
  for (auto& byte : data) byte = static_cast<uint8_t>((state = state * 1664525u + 1013904223u) >> 24);
  for (size_t n = 0; n < 9000; n = n < 600 ? n + 1 : n + 97) {
    for (size_t offset : {0, 1, 4, 7}) {
      const uint32_t whole = Crc32c(data.data() + offset, n);
      CHECK_EQ(whole, Crc32cTable(data.data() + offset, n));
      CHECK_EQ(whole, Crc32c(data.data() + offset + n / 3, n - n / 3, Crc32c(data.data() + offset, n / 3)));
    }
  }
  return 0;
}
