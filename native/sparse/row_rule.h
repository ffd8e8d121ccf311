// What an optimizer does to a row, as numbers: a table's settings, and what a step makes of them. The rules are those of
// stepwell.rows.optimizers, which says what each number means.
#pragma once

#include <cstdint>
#include <vector>

#include "stepwell/status.h"

namespace stepwell {

enum class OptimizerKind : int {  // as Optimizer.kind; never reused
  kSgd = 0,
  kAdaGrad = 1,
  kRowWiseAdaGrad = 2,
  kMomentumScaledRowWiseAdaGrad = 3,
  kAdam = 4,
  kAdamW = 5,
  kRowWiseAdam = 6,
  kFtrl = 7,
  kLamb = 8,
};
inline constexpr int kNumOptimizers = 9;

// One table of a SparsePlan. Numbers that the kind does not have stay as they are here.
struct SparseTable {
  uint32_t dim = 0;
  int weight_dtype = 0;  // 0 fp32, 1 bf16, 2 fp16
  std::vector<uint32_t> state_offsets;
  uint64_t key = 0;  // of the generator: from the seed and the table's name
  int kind = 0;
  double weight_decay = 0;
  double max_row_norm_grad = 0;
  double momentum = 0;
  bool nesterov = false;
  double eps = 0;
  double scale = 1;
  double beta1 = 0;
  double beta2 = 0;
  double alpha = 0;
  double beta = 0;
  double l1 = 0;
  double l2 = 0;
};

// The numbers of one step, each computed in double and rounded once. Those that the kind does not use are 0.
struct RowRule {
  OptimizerKind kind = OptimizerKind::kSgd;
  uint32_t dim = 0;
  int weight_dtype = 0;
  uint32_t state0 = 0, state1 = 0;  // offsets of the state fields, in their order
  uint64_t key = 0;
  uint32_t step = 0;
  bool has_momentum = false;
  bool nesterov = false;
  bool decays_gradient = false;  // weight_decay * w is added to the gradient
  bool decays_update = false;    // ... to the update (LAMB)
  bool clips = false;            // gradients of a larger norm than max_norm are scaled down to it
  float max_norm = 0;
  float weight_decay = 0;
  float lr = 0;
  float momentum = 0;
  float eps = 0;
  float scale = 1;
  float beta1 = 0, one_less_beta1 = 0;
  float beta2 = 0, one_less_beta2 = 0;
  float rate = 0;  // lr / (1 - beta1^step)
  float root = 1;  // sqrt(1 - beta2^step)
  float keep = 1;  // 1 - lr * weight_decay (AdamW)
  float alpha = 0, beta = 0, l1 = 0, l2 = 0;
};

// Bytes of a record up to the end of what an update changes.
uint32_t UpdatedBytes(const SparseTable& table);

// kInvalid, naming the field, unless a row can be updated by these settings.
Status CheckTable(const SparseTable& table);

// Requires: CheckTable passed and step >= 1. kInvalid where the rule cannot take this rate.
Status MakeRule(const SparseTable& table, uint32_t step, double rate, RowRule* rule);

}  // namespace stepwell
