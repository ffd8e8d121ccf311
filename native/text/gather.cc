#include "text/gather.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

namespace stepwell {

namespace {

constexpr size_t kAhead = 8;      // rows whose cache lines are asked for before they are needed
constexpr size_t kLineBytes = 64;
constexpr size_t kMostLines = 8;  // of a row; the hardware goes on by itself
constexpr size_t kTile = 64;      // rows that are turned together: a tile and its source stay in the L1 cache

struct Location {
  uint32_t block;
  uint32_t row;
};

// `starts` has the first row of each block, and the end of the last.
Status Locate(const std::vector<size_t>& starts, const int64_t* rows, size_t num_wanted, std::vector<Location>* out) {
  out->resize(num_wanted);
  for (size_t i = 0; i < num_wanted; ++i) {
    const size_t row = static_cast<size_t>(rows[i]);
    if (row >= starts.back()) {
      return Status(Code::kInvalid, "rows: found " + std::to_string(rows[i]) + ", expected 0 to " +
                                        std::to_string(starts.back()) + ", not included");
    }
    const size_t block = std::upper_bound(starts.begin(), starts.end(), row) - starts.begin() - 1;
    (*out)[i] = {static_cast<uint32_t>(block), static_cast<uint32_t>(row - starts[block])};
  }
  return Status::Ok();
}

inline void Prefetch(const void* begin, size_t bytes) {
  const char* at = static_cast<const char*>(begin);
  const size_t lines = std::min(bytes / kLineBytes + 1, kMostLines);
  for (size_t i = 0; i < lines; ++i) __builtin_prefetch(at + i * kLineBytes);
}

}  // namespace

Status JaggedRows::Make(const JaggedIds& ids, size_t num_features, JaggedRows* made) {
  const size_t num_rows = ids.num_rows, num_bags = num_features * num_rows;
  bool rises = ids.offsets[0] == 0, one_each = true;
  for (size_t i = 0; i < num_bags; ++i) {
    rises &= ids.offsets[i] <= ids.offsets[i + 1];
    one_each &= ids.offsets[i] + 1 == ids.offsets[i + 1];
  }
  if (!rises || static_cast<size_t>(ids.offsets[num_bags]) != ids.num_values) {
    return Status(Code::kInvalid,
                  "offsets: expected to rise from 0 to " + std::to_string(ids.num_values) + ", the number of ids");
  }
  made->num_features_ = num_features;
  made->num_rows_ = num_rows;
  made->values_.resize(ids.num_values);
  if (ids.weights != nullptr) made->weights_.resize(ids.num_values);
  if (!one_each) {
    made->lengths_.resize(num_bags);
    made->starts_.resize(num_rows + 1);
  }
  std::vector<int64_t> to(kTile);
  for (size_t begin = 0; begin < num_rows; begin += kTile) {
    const size_t end = std::min(begin + kTile, num_rows);
    if (!one_each) {
      std::fill(to.begin(), to.end(), 0);
      for (size_t f = 0; f < num_features; ++f) {
        const int64_t* const offsets = ids.offsets + f * num_rows;
        for (size_t r = begin; r < end; ++r) {
          const int64_t count = offsets[r + 1] - offsets[r];
          made->lengths_[r * num_features + f] = static_cast<uint32_t>(count);
          to[r - begin] += count;
        }
      }
      for (size_t r = begin; r < end; ++r) made->starts_[r + 1] = made->starts_[r] + to[r - begin];
    }
    for (size_t r = begin; r < end; ++r) {
      to[r - begin] = one_each ? static_cast<int64_t>(r * num_features) : made->starts_[r];
    }
    for (size_t f = 0; f < num_features; ++f) {
      const int64_t* const offsets = ids.offsets + f * num_rows;
      for (size_t r = begin; r < end; ++r) {
        const int64_t at = offsets[r], count = offsets[r + 1] - at;
        int64_t& place = to[r - begin];
        if (count == 1) {
          made->values_[place] = ids.values[at];
        } else {
          std::copy_n(ids.values + at, count, made->values_.data() + place);
        }
        if (ids.weights != nullptr) std::copy_n(ids.weights + at, count, made->weights_.data() + place);
        place += count;
      }
    }
  }
  return Status::Ok();
}

Status JaggedGather::Add(std::shared_ptr<const JaggedRows> block) {
  if (!blocks_.empty() && block->num_features() != num_features()) {
    return Status(Code::kInvalid, "a block has " + std::to_string(block->num_features()) + " features, expected " +
                                      std::to_string(num_features()));
  }
  if (block->has_values()) {
    if (has_values_ && weighted_ != block->weighted()) {
      return Status(Code::kInvalid, "weights: found some blocks with and some without, expected all or none");
    }
    has_values_ = true;
    weighted_ = block->weighted();
  }
  starts_.push_back(starts_.back() + block->num_rows());
  blocks_.push_back(std::move(block));
  return Status::Ok();
}

Status JaggedGather::Place(const int64_t* rows, size_t num_wanted, int64_t* offsets) const {
  std::vector<Location> places;
  STEPWELL_RETURN_IF_ERROR(Locate(starts_, rows, num_wanted, &places));
  const size_t num = num_features();
  const auto lengths_of = [&](Location place) {
    const JaggedRows& block = *blocks_[place.block];
    return block.lengths_.empty() ? nullptr : block.lengths_.data() + place.row * num;
  };
  *offsets++ = 0;
  for (size_t i = 0; i < num_wanted; ++i) {
    if (i + kAhead < num_wanted) {
      const uint32_t* const next = lengths_of(places[i + kAhead]);
      if (next != nullptr) Prefetch(next, num * sizeof(*next));
    }
    const uint32_t* const lengths = lengths_of(places[i]);
    for (size_t f = 0; f < num; ++f) offsets[f * num_wanted + i] = lengths != nullptr ? lengths[f] : 1;
  }
  int64_t end = 0;
  for (size_t i = 0; i < num * num_wanted; ++i) offsets[i] = end += offsets[i];
  return Status::Ok();
}

Status JaggedGather::Copy(const int64_t* rows, size_t num_wanted, const int64_t* offsets, int64_t* values,
                          float* weights) const {
  std::vector<Location> places;
  STEPWELL_RETURN_IF_ERROR(Locate(starts_, rows, num_wanted, &places));
  const size_t num = num_features();
  const auto start_of = [&](Location place) {
    const JaggedRows& block = *blocks_[place.block];
    return block.starts_.empty() ? static_cast<int64_t>(place.row * num) : block.starts_[place.row];
  };
  for (size_t i = 0; i < num_wanted; ++i) {
    if (i + kAhead < num_wanted) {
      const Location next = places[i + kAhead];
      Prefetch(blocks_[next.block]->values_.data() + start_of(next), num * sizeof(int64_t));
    }
    const JaggedRows& block = *blocks_[places[i].block];
    int64_t at = start_of(places[i]);
    for (size_t f = 0; f < num; ++f) {
      const int64_t* const bag = offsets + f * num_wanted + i;
      const int64_t to = bag[0], count = bag[1] - to;
      if (count == 1) {
        values[to] = block.values_[at];
      } else {
        std::copy_n(block.values_.data() + at, count, values + to);
      }
      if (weights != nullptr) std::copy_n(block.weights_.data() + at, count, weights + to);
      at += count;
    }
  }
  return Status::Ok();
}

Status GatherFixed(const std::vector<FixedBlock>& blocks, size_t row_bytes, const int64_t* rows, size_t num_wanted,
                   uint8_t* out) {
  std::vector<size_t> starts = {0};
  for (const FixedBlock& block : blocks) starts.push_back(starts.back() + block.num_rows);
  std::vector<Location> places;
  STEPWELL_RETURN_IF_ERROR(Locate(starts, rows, num_wanted, &places));
  for (size_t i = 0; i < num_wanted; ++i, out += row_bytes) {
    if (i + kAhead < num_wanted) {
      const Location next = places[i + kAhead];
      Prefetch(blocks[next.block].data + next.row * row_bytes, row_bytes);
    }
    std::memcpy(out, blocks[places[i].block].data + places[i].row * row_bytes, row_bytes);
  }
  return Status::Ok();
}

}  // namespace stepwell
