// For the log's tests: a directory that goes away, and rows whose bytes are a function of id, count and step.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>

#include "tests/check.h"

namespace stepwell::ssd_test {

class TestDir {
 public:
  TestDir() {
    std::string name = (std::filesystem::current_path() / "ssd_test_XXXXXX").string();
    CHECK(mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~TestDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Requires: bytes >= 8. Count at 0, step at 4.
inline void MakeRow(std::byte* row, uint32_t bytes, int64_t id, uint32_t count, uint32_t step) {
  std::memcpy(row, &count, 4);
  std::memcpy(row + 4, &step, 4);
  uint64_t state = static_cast<uint64_t>(id) * 0x9E3779B97F4A7C15ull + count * 31u + step;
  for (uint32_t i = 8; i < bytes; ++i) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    row[i] = static_cast<std::byte>(state >> 56);
  }
}

inline bool IsRow(const std::byte* row, uint32_t bytes, int64_t id) {
  uint32_t count, step;
  std::memcpy(&count, row, 4);
  std::memcpy(&step, row + 4, 4);
  std::string expected(bytes, '\0');
  MakeRow(reinterpret_cast<std::byte*>(expected.data()), bytes, id, count, step);
  return std::memcmp(row, expected.data(), bytes) == 0;
}

}  // namespace stepwell::ssd_test
