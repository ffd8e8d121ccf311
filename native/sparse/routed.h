// Routed: a batch's ids without repeats, table by table, and how its positions refer to them.
//
// A batch is feature-major: the ids of feature f, sample b are values[offsets[f * B + b] .. offsets[f * B + b + 1]);
// that run is bag f * B + b. Unique ids come in order of first occurrence (features in order, then samples, then ids
// within a bag), whatever the number of threads.
//
// Thread safety: constant after Make.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "stepwell/status.h"
#include "util/thread_pool.h"

namespace stepwell {

class Routed {
 public:
  // kInvalid unless offsets rise from 0 to num_values, F divides their number less one, and every feature's table is
  // one of num_tables. Without `occurrences` there are no lists of occurrences, and no gradient can be summed.
  static Status Make(const int64_t* values, size_t num_values, const int64_t* offsets, size_t num_offsets,
                     const uint32_t* feature_tables, size_t num_features, size_t num_tables, bool occurrences,
                     ThreadPool* pool, std::unique_ptr<Routed>* routed);
  Routed(const Routed&) = delete;
  Routed& operator=(const Routed&) = delete;

  size_t num_values() const { return num_values_; }
  size_t batch_size() const { return batch_size_; }
  size_t num_tables() const { return starts_.size() - 1; }
  const std::vector<uint32_t>& feature_tables() const { return feature_tables_; }

  const int64_t* ids() const { return ids_; }                     // [num_unique()]
  const std::vector<int64_t>& starts() const { return starts_; }  // [num_tables() + 1], into ids()
  size_t num_unique() const { return static_cast<size_t>(starts_.back()); }
  const uint32_t* inverse() const { return inverse_; }  // [num_values()], into ids()
  const uint32_t* offsets() const { return offsets_; }  // [F * B + 1]

  const std::vector<uint32_t>& longest() const { return longest_; }  // [F]: ids of the feature's longest bag
  // Every bag has exactly one id, so that a position is a bag.
  bool one_per_bag() const { return one_per_bag_; }
  // The bag of a position; null where one_per_bag(), and without occurrences.
  const uint32_t* bags() const { return bags_; }

  bool has_occurrences() const { return occurrences_ != nullptr; }
  // Positions by unique row, rising within a row: those of row r of a table are occurrences()[begin[r] .. begin[r + 1])
  // with begin = occurrence_starts(table).
  const uint32_t* occurrences() const { return occurrences_; }
  const uint32_t* occurrence_starts(size_t table) const { return occurrence_starts_ + first_[table] + table; }

 private:
  Routed() = default;
  Status CheckFeatures(const int64_t* offsets) const;
  void Allocate(size_t num_tables, bool occurrences);
  bool CopyOffsets(const int64_t* offsets, size_t feature, uint32_t* wrong);
  uint32_t Deduplicate(const int64_t* values, const int64_t* offsets, size_t table);
  void ListOccurrences(const int64_t* offsets, size_t table, uint32_t num_unique);
  void FillBags(size_t feature);
  void Compact(const std::vector<uint32_t>& num_unique, ThreadPool* pool);

  size_t num_values_ = 0;
  size_t batch_size_ = 0;
  bool one_per_bag_ = true;
  std::vector<uint32_t> feature_tables_;
  std::vector<uint32_t> longest_;
  std::vector<std::vector<uint32_t>> features_of_;  // by table, in order
  std::vector<size_t> first_;                       // by table: where its part of a [num_values] array begins
  std::vector<int64_t> starts_;
  std::unique_ptr<std::byte[]> memory_;  // all arrays below, in one block
  int64_t* ids_ = nullptr;
  uint32_t* inverse_ = nullptr;
  uint32_t* offsets_ = nullptr;
  uint32_t* bags_ = nullptr;
  uint32_t* occurrences_ = nullptr;
  uint32_t* occurrence_starts_ = nullptr;  // a table's begin at first_[table] + table
};

}  // namespace stepwell
