// SparsePlan: which tables a model's features read, where their rows go, and how their gradients update them. It does
// not change from batch to batch; a call adds the batch (Routed) and the addresses of its rows' records.
//
// Every call runs on all threads of the pool, checks its arguments before it changes anything, and gives bits that
// depend on neither the number of threads nor the instruction set.
//
// Thread safety: constant after Make; calls may overlap unless they update the same rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "sparse/kernels.h"
#include "sparse/routed.h"
#include "sparse/row_rule.h"
#include "stepwell/status.h"
#include "util/thread_pool.h"

namespace stepwell {

struct SparseFeature {
  uint32_t table = 0;
  int pooling = 0;      // Pooling
  uint32_t output = 0;  // the number of the array that takes the feature's rows
  uint32_t column = 0;  // of that array, where rows are pooled
  uint32_t max_len = 0;  // rows of a sample, where they are not
};

// An output or its gradient: [B, width], or [B, max_len, dim] of the one feature that is not pooled into it.
// A sample's floats lie together.
struct SparseArray {
  float* data = nullptr;
  std::vector<size_t> shape;
  size_t stride = 0;  // floats from one sample to the next
};

class SparsePlan {
 public:
  static Status Make(std::vector<SparseFeature> features, std::vector<SparseTable> tables,
                     std::shared_ptr<ThreadPool> pool, Isa isa, std::unique_ptr<SparsePlan>* plan);

  size_t num_tables() const { return tables_.size(); }
  uint32_t dim(size_t table) const { return tables_[table].dim; }

  // `rows` has an address for each of the batch's unique rows. `weights` has one per position, or is null.
  Status Lookup(const Routed& routed, const uint64_t* rows, const float* weights,
                const std::vector<SparseArray>& outputs) const;
  // sums[t] is [unique rows of table t, dim].
  Status SumGradients(const Routed& routed, const float* weights, const std::vector<SparseArray>& grads,
                      const std::vector<float*>& sums) const;
  // rates has one per table; a table whose rate is NaN is left alone.
  Status Update(const Routed& routed, const uint64_t* rows, const float* weights,
                const std::vector<SparseArray>& grads, uint32_t step, const double* rates) const;
  // n rows of one table from the sums of their gradients, [n, dim].
  Status UpdateRows(size_t table, const int64_t* ids, const uint64_t* rows, size_t n, const float* sums,
                    uint32_t step, double rate) const;

 private:
  SparsePlan() = default;
  Status CheckBatch(const Routed& routed) const;
  // `ends` gets where each feature's bags lie in the arrays.
  Status Resolve(const Routed& routed, const std::vector<SparseArray>& arrays, std::vector<FeatureEnds>* ends) const;
  Status GradientsOf(const Routed& routed, const float* weights, const std::vector<SparseArray>& grads,
                     std::vector<FeatureEnds>* ends, std::vector<GradientArgs>* gradients) const;

  std::vector<SparseFeature> features_;
  std::vector<SparseTable> tables_;
  std::vector<std::vector<uint32_t>> features_of_;  // by table
  size_t num_outputs_ = 0;
  bool has_sequences_ = false;
  std::shared_ptr<ThreadPool> pool_;
  const Kernels* kernels_ = nullptr;
};

}  // namespace stepwell
