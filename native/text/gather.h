// Rows out of several blocks of samples, in any order: jagged ids, and arrays with one entry per row.
//
// Batches have their ids feature by feature. To take rows at random from that costs two cache misses for each id, so a
// block keeps them row by row: a row's ids lie together, and a batch is turned while it is copied.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "stepwell/status.h"

namespace stepwell {

// Ids of feature f, row r: values[offsets[f * num_rows + r] .. offsets[f * num_rows + r + 1]).
struct JaggedIds {
  const int64_t* values;
  const int64_t* offsets;
  const float* weights;  // one per value, or null
  size_t num_values;
  size_t num_rows;
};

// A block's ids, row by row.
class JaggedRows {
 public:
  // kInvalid unless the offsets rise from 0 to num_values.
  static Status Make(const JaggedIds& ids, size_t num_features, JaggedRows* made);

  size_t num_rows() const { return num_rows_; }
  size_t num_features() const { return num_features_; }
  bool weighted() const { return !weights_.empty(); }
  bool has_values() const { return !values_.empty(); }
  size_t num_bytes() const {
    return values_.size() * sizeof(int64_t) + weights_.size() * sizeof(float) + lengths_.size() * sizeof(uint32_t) +
           starts_.size() * sizeof(int64_t);
  }

 private:
  friend class JaggedGather;

  size_t num_features_ = 0;
  size_t num_rows_ = 0;
  std::vector<int64_t> values_;
  std::vector<float> weights_;
  std::vector<uint32_t> lengths_;  // [row][feature]; empty where all are 1
  std::vector<int64_t> starts_;    // of each row in values_; empty likewise
};

// Rows are numbered through the blocks in the order in which they were added.
class JaggedGather {
 public:
  Status Add(std::shared_ptr<const JaggedRows> block);

  size_t num_features() const { return blocks_.empty() ? 0 : blocks_[0]->num_features(); }
  size_t num_rows() const { return starts_.back(); }
  bool weighted() const { return weighted_; }

  // offsets gets num_features * num_wanted + 1 entries, the last of which is how many ids the rows have.
  Status Place(const int64_t* rows, size_t num_wanted, int64_t* offsets) const;

  // REQUIRES the offsets that Place gave for these rows, and `weights` where weighted().
  Status Copy(const int64_t* rows, size_t num_wanted, const int64_t* offsets, int64_t* values, float* weights) const;

 private:
  bool has_values_ = false;
  bool weighted_ = false;
  std::vector<std::shared_ptr<const JaggedRows>> blocks_;
  std::vector<size_t> starts_ = {0};  // the first row of each block, and the end of the last
};

// One entry of row_bytes for each row.
struct FixedBlock {
  const uint8_t* data;
  size_t num_rows;
};

// Likewise numbered through the blocks. `out` gets num_wanted * row_bytes.
Status GatherFixed(const std::vector<FixedBlock>& blocks, size_t row_bytes, const int64_t* rows, size_t num_wanted,
                   uint8_t* out);

}  // namespace stepwell
