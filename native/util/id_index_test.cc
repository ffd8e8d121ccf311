// The index against std::unordered_map, with random verbs, and with ids made to share one home line.
#include "util/id_index.h"

#include <random>
#include <unordered_map>
#include <vector>

#include "tests/check.h"

namespace stepwell {
namespace {

template <int K>
void Compare(IdIndexShard<K>& shard, const std::unordered_map<uint64_t, uint32_t>& model) {
  CHECK_EQ(shard.size(), model.size());
  size_t seen = 0;
  shard.ForEach([&](uint64_t rest, uint32_t& value) {
    auto found = model.find(rest);
    CHECK(found != model.end());
    CHECK_EQ(found->second, value);
    ++seen;
  });
  CHECK_EQ(seen, model.size());
  for (const auto& [rest, value] : model) {
    const uint32_t* found = shard.Find(rest);
    CHECK(found != nullptr);
    CHECK_EQ(*found, value);
  }
}

template <int K>
void TestRandomVerbs(uint64_t seed, uint64_t mask_of_home, int verbs, double erase_share, uint64_t high_bits = 0) {
  std::mt19937_64 random(seed);
  IdIndexShard<K> shard;
  std::unordered_map<uint64_t, uint32_t> model;
  std::vector<uint64_t> keys;
  for (int verb = 0; verb < verbs; ++verb) {
    const bool erase = std::uniform_real_distribution<>(0, 1)(random) < erase_share && !keys.empty();
    if (erase) {
      const size_t pick = random() % keys.size();
      const uint64_t rest = keys[pick];
      keys[pick] = keys.back();
      keys.pop_back();
      uint32_t value = 0;
      CHECK(shard.Erase(rest, &value));
      CHECK_EQ(value, model[rest]);
      model.erase(rest);
      CHECK(!shard.Erase(rest, &value));
      CHECK(shard.Find(rest) == nullptr);
    } else {
      const uint64_t rest = (random() & kRestMask & mask_of_home) | high_bits;
      const uint32_t value = static_cast<uint32_t>(random());
      uint32_t* found = shard.FindMutable(rest);
      CHECK_EQ(found != nullptr, model.count(rest) == 1);
      if (found != nullptr) {
        *found = value;
      } else {
        CHECK(shard.Insert(rest, value));
        keys.push_back(rest);
      }
      model[rest] = value;
    }
    if (verb % (verbs / 8) == 0) Compare(shard, model);
  }
  Compare(shard, model);
  for (uint64_t rest : keys) {  // down to nothing, through the shrinking
    uint32_t value = 0;
    CHECK(shard.Erase(rest, &value));
    model.erase(rest);
  }
  Compare(shard, model);
}

template <int K>
void TestBytes(double most) {
  std::mt19937_64 random(7);
  IdIndexShard<K> shard;
  double worst = 0;
  for (uint32_t i = 0; i < 400000; ++i) {
    CHECK(shard.Insert(random() & kRestMask, i));
    if (i > 100000 && i % 1000 == 0) {
      worst = std::max(worst, static_cast<double>(shard.bytes_used()) / static_cast<double>(shard.size()));
    }
  }
  std::printf("K=%d worst bytes per entry while growing %.2f\n", K, worst);
  CHECK(worst <= most);
}

}  // namespace
}  // namespace stepwell

int main() {
  using namespace stepwell;
  for (uint64_t x : {uint64_t{0}, ~uint64_t{0}, uint64_t{1}, uint64_t{1} << 63, uint64_t{12345678901234567ull}}) {
    CHECK_EQ(Unmix64(Mix64(x)), x);
    CHECK_EQ(Mix64(Unmix64(x)), x);
  }
  const uint64_t any = ~uint64_t{0};
  const uint64_t one_home = 0x3ff;                    // a thousand keys, all of them at home in line 0
  const uint64_t last_homes = any << 46;              // 1024 keys spread over all lines
  for (uint64_t seed = 0; seed < 3; ++seed) {
    TestRandomVerbs<11>(seed, any, 40000, 0.3);
    TestRandomVerbs<23>(seed, any, 40000, 0.45);
    TestRandomVerbs<11>(seed, one_home, 6000, 0.4);
    TestRandomVerbs<11>(seed, last_homes, 6000, 0.4);
    TestRandomVerbs<23>(seed, one_home, 6000, 0.4);
    TestRandomVerbs<11>(seed, one_home, 6000, 0.4, kRestMask & ~one_home);  // at home in the last line: wraps
    TestRandomVerbs<23>(seed, one_home, 6000, 0.4, kRestMask & ~one_home);
  }
  TestBytes<11>(14.6);
  TestBytes<23>(12.9);
  return 0;
}
