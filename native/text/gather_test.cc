#include "text/gather.h"

#include <memory>
#include <random>
#include <vector>

#include "tests/check.h"

namespace stepwell {
namespace {

constexpr size_t kFeatures = 3;

struct Block {
  std::vector<int64_t> values, offsets{0};
  std::vector<float> weights;
  size_t num_rows;
};

std::vector<int64_t> IdsOf(const std::vector<Block>& blocks, size_t feature, size_t row) {
  size_t b = 0;
  for (; row >= blocks[b].num_rows; ++b) row -= blocks[b].num_rows;
  const int64_t* at = blocks[b].offsets.data() + feature * blocks[b].num_rows + row;
  return {blocks[b].values.begin() + at[0], blocks[b].values.begin() + at[1]};
}

std::shared_ptr<const JaggedRows> Rows(const Block& block) {
  auto made = std::make_shared<JaggedRows>();
  CHECK_OK(JaggedRows::Make({block.values.data(), block.offsets.data(), block.weights.data(), block.values.size(),
                             block.num_rows},
                            kFeatures, made.get()));
  return made;
}

// `most` is 1 where every bag has exactly one id.
void GathersAnyRowsInAnyOrder(size_t most) {
  std::mt19937_64 rng(3);
  std::vector<Block> blocks;
  JaggedGather gather;
  for (const size_t num_rows : {150u, 0u, 1u, 70u}) {
    Block block;
    block.num_rows = num_rows;
    for (size_t i = 0; i < kFeatures * num_rows; ++i) {
      const size_t count = most == 1 ? 1 : rng() % (most + 1);
      for (size_t k = 0; k < count; ++k) block.values.push_back(static_cast<int64_t>(rng()));
      block.offsets.push_back(static_cast<int64_t>(block.values.size()));
    }
    for (const int64_t value : block.values) block.weights.push_back(static_cast<float>(value));
    blocks.push_back(std::move(block));
  }
  for (const Block& block : blocks) CHECK_OK(gather.Add(Rows(block)));
  CHECK_EQ(gather.num_rows(), size_t{221});
  for (const size_t num_wanted : {0u, 1u, 40u, 300u}) {
    std::vector<int64_t> rows(num_wanted);
    for (int64_t& row : rows) row = static_cast<int64_t>(rng() % gather.num_rows());
    std::vector<int64_t> offsets(kFeatures * num_wanted + 1, -1);
    CHECK_OK(gather.Place(rows.data(), num_wanted, offsets.data()));
    std::vector<int64_t> values(offsets.back());
    std::vector<float> weights(offsets.back());
    CHECK_OK(gather.Copy(rows.data(), num_wanted, offsets.data(), values.data(), weights.data()));
    for (size_t f = 0; f < kFeatures; ++f) {
      for (size_t i = 0; i < num_wanted; ++i) {
        const int64_t* at = offsets.data() + f * num_wanted + i;
        const std::vector<int64_t> got(values.begin() + at[0], values.begin() + at[1]);
        CHECK(got == IdsOf(blocks, f, static_cast<size_t>(rows[i])));
      }
    }
    for (size_t i = 0; i < values.size(); ++i) CHECK_EQ(weights[i], static_cast<float>(values[i]));
  }
  for (const int64_t row : {int64_t{-1}, int64_t{221}}) {
    std::vector<int64_t> offsets(kFeatures + 1);
    CHECK(gather.Place(&row, 1, offsets.data()).code() == Code::kInvalid);
  }
}

void RefusesWhatDoesNotFit() {
  const int64_t values[] = {1, 2, 3}, offsets[] = {0, 1, 2, 3};
  const float weights[] = {1, 1, 1};
  for (const std::vector<int64_t>& wrong : {std::vector<int64_t>{0, 2, 1, 3}, {1, 1, 2, 3}, {0, 1, 2, 4}}) {
    JaggedRows rows;
    CHECK(JaggedRows::Make({values, wrong.data(), nullptr, 3, 1}, 3, &rows).code() == Code::kInvalid);
  }
  const auto make = [&](const float* with, size_t num_features) {
    auto rows = std::make_shared<JaggedRows>();
    CHECK_OK(JaggedRows::Make({values, offsets, with, 3, 3 / num_features}, num_features, rows.get()));
    return rows;
  };
  JaggedGather gather;
  CHECK_OK(gather.Add(make(nullptr, 3)));
  CHECK(gather.Add(make(weights, 3)).code() == Code::kInvalid);
  CHECK(gather.Add(make(nullptr, 1)).code() == Code::kInvalid);
  CHECK_EQ(gather.num_rows(), size_t{1});
}

void GathersEntriesOfRows() {
  const std::vector<uint8_t> first = {0, 1, 2, 10, 11, 12}, second = {20, 21, 22};
  const std::vector<FixedBlock> blocks = {{first.data(), 2}, {nullptr, 0}, {second.data(), 1}};
  const std::vector<int64_t> rows = {2, 0, 1, 1};
  std::vector<uint8_t> out(12);
  CHECK_OK(GatherFixed(blocks, 3, rows.data(), rows.size(), out.data()));
  CHECK((out == std::vector<uint8_t>{20, 21, 22, 0, 1, 2, 10, 11, 12, 10, 11, 12}));
  for (const int64_t row : {int64_t{-1}, int64_t{3}}) {
    CHECK(GatherFixed(blocks, 3, &row, 1, out.data()).code() == Code::kInvalid);
  }
}

}  // namespace
}  // namespace stepwell

int main() {
  stepwell::GathersAnyRowsInAnyOrder(1);
  stepwell::GathersAnyRowsInAnyOrder(3);
  stepwell::GathersAnyRowsInAnyOrder(40);
  stepwell::RefusesWhatDoesNotFit();
  stepwell::GathersEntriesOfRows();
  return 0;
}
