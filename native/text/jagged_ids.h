// Columns of ids, scalar and list, into one feature-major jagged array.
#pragma once

#include <cstddef>
#include <cstdint>

#include "stepwell/status.h"

namespace stepwell {

enum class Keep : int { kAll = 0, kFirst = 1, kLast = 2 };

// One feature's ids over num_rows rows. A list that is empty is missing, as is a scalar that is not present; a row that
// is missing has no id, or `fill` with weight 1.
struct IdColumn {
  const int64_t* values;
  size_t num_values;
  const int64_t* offsets;  // [num_rows + 1], from 0; null: scalar, and num_values is num_rows
  const uint8_t* present;  // [num_rows], of a scalar; null: all are
  const float* weights;    // [num_values]; null: 1
  bool has_fill;
  int64_t fill;
  size_t max_len;  // of a list; with Keep::kAll longer ones are only counted
  Keep keep;

  Status Validate(size_t num_rows) const;

  // How many ids the rows have (with what is kept, and filled), and how many lists are longer than max_len.
  void Count(size_t num_rows, size_t* num_ids, size_t* num_longer) const;

  // Writes num_ids values from `values_out` on, their weights unless weights_out is null, and each row's end, counted
  // from `at`, to ends[num_rows]. REQUIRES a valid column.
  void Pack(size_t num_rows, int64_t at, int64_t* values_out, float* weights_out, int64_t* ends) const;
};

}  // namespace stepwell
