#include "text/tsv.h"

#include <random>
#include <string>
#include <vector>

#include "tests/check.h"

namespace stepwell {
namespace {

struct Decoded {
  std::vector<std::vector<int64_t>> values;
  std::vector<std::vector<uint8_t>> valid;
  std::vector<int16_t> bad;
  size_t num_bad;
};

Decoded Decode(const std::string& text, const std::vector<TsvKind>& kinds, ThreadPool* pool = nullptr) {
  const auto* data = reinterpret_cast<const uint8_t*>(text.data());
  const size_t lines = CountLines(data, text.size());
  Decoded out{std::vector<std::vector<int64_t>>(kinds.size(), std::vector<int64_t>(lines, -7)),
              std::vector<std::vector<uint8_t>>(kinds.size(), std::vector<uint8_t>(lines, 7)),
              std::vector<int16_t>(lines, 7), 0};
  std::vector<TsvField> fields;
  for (size_t f = 0; f < kinds.size(); ++f) {
    const bool skip = kinds[f] == TsvKind::kSkip;
    fields.push_back({kinds[f], skip ? nullptr : out.values[f].data(), skip ? nullptr : out.valid[f].data()});
  }
  out.num_bad = DecodeTsv(data, text.size(), fields, out.bad.data(), pool);
  return out;
}

constexpr TsvKind kInt = TsvKind::kDecimal, kId = TsvKind::kHex, kNone = TsvKind::kSkip;

void ReadsWhatFieldsMay() {
  const Decoded got = Decode(
      "1\t-3\t0a1b2c3D\tx\n"
      "\t9223372036854775807\tffffffffffffffff\t\r\n"
      "0\t-9223372036854775808\t7\ty y",
      {kInt, kInt, kId, kNone});
  CHECK_EQ(got.num_bad, size_t{0});
  CHECK((got.bad == std::vector<int16_t>{0, 0, 0}));
  CHECK((got.values[0] == std::vector<int64_t>{1, 0, 0}));
  CHECK((got.valid[0] == std::vector<uint8_t>{1, 0, 1}));
  CHECK((got.values[1] == std::vector<int64_t>{-3, INT64_MAX, INT64_MIN}));
  CHECK((got.values[2] == std::vector<int64_t>{0x0a1b2c3d, -1, 7}));
  CHECK((got.valid[2] == std::vector<uint8_t>{1, 1, 1}));
}

void SaysWhatIsWrong() {
  const struct {
    const char* line;
    int16_t bad;
  } cases[] = {{"1\tff\n", 0},        {"\t\n", 0},          {"1\n", -1},         {"\n", -1},
               {"1\tff\t\n", -1},     {"x\tff\n", 1},       {"1\tfg\n", 2},      {"-\tff\n", 1},
               {"1.5\tff\n", 1},      {"+1\tff\n", 1},      {" 1\tff\n", 1},     {"9223372036854775808\tff\n", 1},
               {"1\t12345678z\n", 2}, {"1\t1234567g\n", 2}, {"x\tg\n", 1},       {"-9223372036854775809\t\n", 1},
               {"1\t123456789\n", 0}, {"1\t00000000000000001\n", 2}, {"12345678901234567890\t\n", 1}};
  for (const auto& each : cases) {
    const Decoded got = Decode(each.line, {kInt, kId});
    CHECK_EQ(got.bad[0], each.bad);
    CHECK_EQ(got.num_bad, size_t{each.bad != 0});
    if (each.bad != 0) CHECK(got.valid[0][0] == 0 && got.valid[1][0] == 0 && got.values[1][0] == 0);
  }
  CHECK(Decode("", {kInt}).bad.empty());
}

// Lines of all lengths, over many chunks, the same on any number of threads.
void ChunksAreSeamless() {
  std::mt19937_64 rng(1);
  std::string text;
  std::vector<int64_t> numbers, ids;
  for (int i = 0; i < 60000; ++i) {
    numbers.push_back(static_cast<int64_t>(rng()) >> (rng() % 64));
    ids.push_back(static_cast<int64_t>(rng() >> (rng() % 64)));
    char hex[17];
    std::snprintf(hex, sizeof(hex), "%llx", static_cast<unsigned long long>(ids.back()));
    text += std::to_string(numbers.back()) + "\t" + hex + "\t" + std::string(rng() % 40, 'k');
    text += i % 1000 == 0 ? "\t\n" : "\n";
  }
  for (const int threads : {1, 2, 4}) {
    ThreadPool pool(threads);
    const Decoded got = Decode(text, {kInt, kId, kNone}, threads == 1 ? nullptr : &pool);
    CHECK_EQ(got.num_bad, size_t{60});
    for (size_t i = 0; i < numbers.size(); ++i) {
      const bool bad = i % 1000 == 0;
      CHECK_EQ(got.bad[i], bad ? kWrongNumberOfFields : 0);
      CHECK_EQ(got.values[0][i], bad ? 0 : numbers[i]);
      CHECK_EQ(got.values[1][i], bad ? 0 : ids[i]);
      CHECK_EQ(got.valid[1][i], bad ? 0 : 1);
    }
  }
}

}  // namespace
}  // namespace stepwell

int main() {
  stepwell::ReadsWhatFieldsMay();
  stepwell::SaysWhatIsWrong();
  stepwell::ChunksAreSeamless();
  return 0;
}
