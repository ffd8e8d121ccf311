// Ids of strings, jagged ids and dense columns: exact buffers, so that a sanitizer sees a byte too many; one thread's
// results against several threads'.
#include "text/string_ids.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "tests/check.h"
#include "text/dense_column.h"
#include "text/jagged_ids.h"
#include "text/xxh64.h"

using namespace stepwell;

namespace {

struct Batch {
  std::vector<uint8_t> data;
  std::vector<int64_t> offsets{0};
  void Add(const std::string& text) {
    data.insert(data.end(), text.begin(), text.end());
    offsets.push_back(static_cast<int64_t>(data.size()));
  }
  StringBatch view() const { return {data.data(), data.size(), offsets.data(), offsets.size() - 1}; }
};

void TestHash() {
  CHECK_EQ(Xxh64(nullptr, 0, 0), 0xEF46DB3751D8E999u);
  const std::string text = "Call me Ishmael. Some years ago--never mind how long precisely-";
  CHECK_EQ(Xxh64(reinterpret_cast<const uint8_t*>(text.data()), text.size(), 0), 0x02A2E85470D6FD96u);
  Batch batch;
  for (size_t size = 0; size < 20000; ++size) batch.Add(std::string(size % 71, static_cast<char>(size)));
  CHECK_OK(batch.view().Validate());
  std::vector<int64_t> alone(20000), pooled(20000);
  ThreadPool pool(3);
  HashStrings(batch.view(), alone.data(), nullptr);
  HashStrings(batch.view(), pooled.data(), &pool);
  CHECK(alone == pooled);
  for (size_t size = 0; size < 71; ++size) {
    const std::vector<uint8_t> exact(size, static_cast<uint8_t>(size));
    CHECK_EQ(static_cast<uint64_t>(alone[size]), Xxh64(exact.data(), size, 0));
  }
  const int64_t* columns[] = {alone.data(), pooled.data()};
  std::vector<int64_t> crossed(20000), again(20000);
  HashColumns(columns, 2, 20000, crossed.data(), nullptr);
  HashColumns(columns, 2, 20000, again.data(), &pool);
  CHECK(crossed == again);
  const int64_t pair[] = {alone[9], pooled[9]};
  CHECK_EQ(static_cast<uint64_t>(crossed[9]), Xxh64(reinterpret_cast<const uint8_t*>(pair), 16, 0));
}

void TestHex() {
  Batch batch;
  for (const char* text : {"0", "fFfFfFfFfFfFfFfF", "12xz", "", "00000000000000000", "1a"}) batch.Add(text);
  int64_t ids[6];
  uint8_t bad[6];
  CHECK_EQ(ParseHex(batch.view(), nullptr, ids, bad, nullptr), 3u);
  const int64_t expected[] = {0, -1, 0, 0, 0, 26};
  const uint8_t expected_bad[] = {0, 0, 1, 1, 1, 0};
  CHECK(std::memcmp(ids, expected, sizeof(ids)) == 0 && std::memcmp(bad, expected_bad, sizeof(bad)) == 0);
  const uint8_t wanted[] = {1, 0, 0, 1, 0, 1};
  CHECK_EQ(ParseHex(batch.view(), wanted, ids, bad, nullptr), 1u);
  CHECK_EQ(ids[1], 0);
}

void TestBadOffsets() {
  const uint8_t data[4] = {};
  for (const std::vector<int64_t>& offsets : {std::vector<int64_t>{0, 5}, {-1, 2}, {2, 1, 3}}) {
    CHECK(!(StringBatch{data, 4, offsets.data(), offsets.size() - 1}.Validate().ok()));
  }
  const int64_t values[3] = {}, falling[] = {0, 2, 1, 3}, from_one[] = {1, 2, 3, 3};
  IdColumn column{values, 3, falling, nullptr, nullptr, false, 0, 1, Keep::kAll};
  CHECK(!column.Validate(3).ok());
  column.offsets = from_one;
  CHECK(!column.Validate(3).ok());
  column.offsets = nullptr;
  CHECK(!column.Validate(2).ok());
  CHECK_OK(column.Validate(3));
}

void TestJagged() {
  const int64_t values[] = {1, 2, 3, 4, 5}, offsets[] = {0, 3, 3, 5};
  const float weights[] = {.1f, .2f, .3f, .4f, .5f};
  IdColumn column{values, 5, offsets, nullptr, weights, true, -9, 2, Keep::kLast};
  size_t num_ids = 0, num_longer = 0;
  column.Count(3, &num_ids, &num_longer);
  CHECK_EQ(num_ids, 5u);
  CHECK_EQ(num_longer, 1u);
  std::vector<int64_t> out(num_ids), ends(3);
  std::vector<float> out_weights(num_ids);
  column.Pack(3, 100, out.data(), out_weights.data(), ends.data());
  CHECK((out == std::vector<int64_t>{2, 3, -9, 4, 5}));
  CHECK((out_weights == std::vector<float>{.2f, .3f, 1.f, .4f, .5f}));
  CHECK((ends == std::vector<int64_t>{102, 103, 105}));
}

void TestDense() {
  const size_t n = 20001;
  std::vector<double> values(n);
  for (size_t i = 0; i < n; ++i) values[i] = std::ldexp(static_cast<double>(i * 2654435761u % 100003), i % 60) - 5e4;
  values[5] = std::numeric_limits<double>::quiet_NaN();
  values[6] = std::numeric_limits<double>::infinity();
  const double inf = std::numeric_limits<double>::infinity();
  const DenseRule rule{3.0, true, 0.5, 2.0, -inf, inf};
  std::vector<float> alone(3 * n), pooled(3 * n);
  std::vector<uint8_t> bad(n);
  ThreadPool pool(3);
  CHECK_EQ(TransformDense(values.data(), nullptr, n, rule, alone.data() + 1, 3, bad.data(), nullptr), 1u);
  CHECK_EQ(bad[6], 1);
  CHECK_EQ(TransformDense(values.data(), nullptr, n, rule, pooled.data() + 1, 3, bad.data(), &pool), 1u);
  CHECK(std::memcmp(alone.data(), pooled.data(), alone.size() * sizeof(float)) == 0);
  CHECK_EQ(alone[3 * 5 + 1], static_cast<float>((SignedLog1p(3.0) - 0.5) / 2.0));
  for (size_t i = 7; i < n; ++i) {
    const double expected = std::copysign(std::log1p(std::fabs(values[i])), values[i]);
    CHECK(std::fabs(SignedLog1p(values[i]) - expected) <= 2e-15 * std::fabs(expected));
    CHECK_EQ(alone[3 * i], 0.0f);
  }
}

}  // namespace

int main() {
  TestHash();
  TestHex();
  TestBadOffsets();
  TestJagged();
  TestDense();
  return 0;
}
