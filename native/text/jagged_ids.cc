#include "text/jagged_ids.h"

#include <algorithm>
#include <string>

namespace stepwell {

namespace {

struct Part {
  size_t begin, end;
};

Part Kept(const IdColumn& column, size_t row) {
  size_t begin = static_cast<size_t>(column.offsets[row]), end = static_cast<size_t>(column.offsets[row + 1]);
  if (column.keep == Keep::kFirst) end = std::min(end, begin + column.max_len);
  if (column.keep == Keep::kLast && end - begin > column.max_len) begin = end - column.max_len;
  return {begin, end};
}

}  // namespace

Status IdColumn::Validate(size_t num_rows) const {
  if (offsets == nullptr) {
    if (num_values == num_rows) return Status::Ok();
    return Status(Code::kInvalid, "ids: found " + std::to_string(num_values) + " scalars, expected " +
                                      std::to_string(num_rows) + ", one per row");
  }
  bool rises = offsets[0] == 0;
  for (size_t row = 0; row < num_rows; ++row) rises &= offsets[row] <= offsets[row + 1];
  if (rises && static_cast<uint64_t>(offsets[num_rows]) == num_values) return Status::Ok();
  return Status(Code::kInvalid, "offsets of lists: expected to rise from 0 to " + std::to_string(num_values) +
                                    ", the number of ids; found " + std::to_string(offsets[0]) + " to " +
                                    std::to_string(offsets[num_rows]));
}

void IdColumn::Count(size_t num_rows, size_t* num_ids, size_t* num_longer) const {
  size_t ids = 0, longer = 0;
  if (offsets == nullptr) {
    if (present == nullptr || has_fill) {
      ids = num_rows;
    } else {
      for (size_t row = 0; row < num_rows; ++row) ids += present[row] != 0;
    }
  } else {
    for (size_t row = 0; row < num_rows; ++row) {
      const size_t whole = static_cast<size_t>(offsets[row + 1] - offsets[row]);
      longer += whole > max_len;
      const size_t size = keep == Keep::kAll ? whole : std::min(whole, max_len);
      ids += size == 0 && has_fill ? 1 : size;
    }
  }
  *num_ids = ids;
  *num_longer = longer;
}

void IdColumn::Pack(size_t num_rows, int64_t at, int64_t* values_out, float* weights_out, int64_t* ends) const {
  size_t size = 0;  // ids so far
  const auto put = [&](int64_t id, float weight) {
    values_out[size] = id;
    if (weights_out != nullptr) weights_out[size] = weight;
    ++size;
  };
  if (offsets == nullptr) {
    if (present == nullptr && weights_out == nullptr) {
      std::copy(values, values + num_rows, values_out);
      for (size_t row = 0; row < num_rows; ++row) ends[row] = at + static_cast<int64_t>(row) + 1;
      return;
    }
    for (size_t row = 0; row < num_rows; ++row) {
      if (present == nullptr || present[row] != 0) {
        put(values[row], weights == nullptr ? 1.0f : weights[row]);
      } else if (has_fill) {
        put(fill, 1.0f);
      }
      ends[row] = at + static_cast<int64_t>(size);
    }
    return;
  }
  for (size_t row = 0; row < num_rows; ++row) {
    const Part part = Kept(*this, row);
    for (size_t i = part.begin; i < part.end; ++i) put(values[i], weights == nullptr ? 1.0f : weights[i]);
    if (part.begin == part.end && has_fill) put(fill, 1.0f);
    ends[row] = at + static_cast<int64_t>(size);
  }
}

}  // namespace stepwell
