#include "sparse/row_rule.h"

#include <cmath>
#include <string>

#include "rows/philox.h"

namespace stepwell {
namespace {

Status Invalid(std::string message) { return Status(Code::kInvalid, std::move(message)); }

size_t NumStateFields(const SparseTable& table) {
  switch (static_cast<OptimizerKind>(table.kind)) {
    case OptimizerKind::kSgd:
      return table.momentum != 0 ? 1 : 0;
    case OptimizerKind::kAdaGrad:
    case OptimizerKind::kRowWiseAdaGrad:
    case OptimizerKind::kMomentumScaledRowWiseAdaGrad:
      return 1;
    default:
      return 2;
  }
}

}  // namespace

uint32_t UpdatedBytes(const SparseTable& table) {
  const uint32_t weights = table.dim * (table.weight_dtype == 0 ? 4 : 2);
  const auto kind = static_cast<OptimizerKind>(table.kind);
  const bool last_per_row = kind == OptimizerKind::kRowWiseAdaGrad ||
                            kind == OptimizerKind::kMomentumScaledRowWiseAdaGrad ||
                            kind == OptimizerKind::kRowWiseAdam;
  return table.state_offsets.empty() ? weights : table.state_offsets.back() + (last_per_row ? 4 : 4 * table.dim);
}

Status CheckTable(const SparseTable& table) {
  if (table.dim < 1 || table.dim > kMaxDim) {
    return Invalid("dim: found " + std::to_string(table.dim) + ", expected 1 to " + std::to_string(kMaxDim));
  }
  if (table.weight_dtype < 0 || table.weight_dtype > 2) {
    return Invalid("weight_dtype: found " + std::to_string(table.weight_dtype) + ", expected 0, 1 or 2");
  }
  if (table.kind < 0 || table.kind >= kNumOptimizers) {
    return Invalid("kind: found " + std::to_string(table.kind) + ", expected the kind of an optimizer, 0 to 8");
  }
  if (table.state_offsets.size() != NumStateFields(table)) {
    return Invalid("state_offsets: found " + std::to_string(table.state_offsets.size()) + ", expected " +
                   std::to_string(NumStateFields(table)) + " for an optimizer of kind " + std::to_string(table.kind));
  }
  for (uint32_t offset : table.state_offsets) {
    if (offset % 4 != 0) return Invalid("state_offsets: found " + std::to_string(offset) + ", expected multiples of 4");
  }
  return Status::Ok();
}

Status MakeRule(const SparseTable& table, uint32_t step, double rate, RowRule* rule) {
  const auto kind = static_cast<OptimizerKind>(table.kind);
  if (kind == OptimizerKind::kFtrl && !(table.alpha * rate > 0)) {
    return Invalid("rate: found " + std::to_string(rate) + " for FTRL, expected more than 0: the rule divides by it");
  }
  *rule = RowRule{};
  rule->kind = kind;
  rule->dim = table.dim;
  rule->weight_dtype = table.weight_dtype;
  if (!table.state_offsets.empty()) rule->state0 = table.state_offsets[0];
  if (table.state_offsets.size() > 1) rule->state1 = table.state_offsets[1];
  rule->key = table.key;
  rule->step = step;
  rule->has_momentum = table.momentum != 0;
  rule->nesterov = table.nesterov;
  const bool coupled = kind != OptimizerKind::kAdamW && kind != OptimizerKind::kLamb;
  rule->decays_gradient = coupled && table.weight_decay != 0;
  rule->decays_update = kind == OptimizerKind::kLamb && table.weight_decay != 0;
  rule->max_norm = static_cast<float>(table.max_row_norm_grad);
  rule->clips = table.max_row_norm_grad != 0;
  rule->weight_decay = static_cast<float>(table.weight_decay);
  rule->lr = static_cast<float>(rate);
  rule->momentum = static_cast<float>(table.momentum);
  rule->eps = static_cast<float>(table.eps);
  rule->scale = static_cast<float>(table.scale);
  rule->beta1 = static_cast<float>(table.beta1);
  rule->one_less_beta1 = static_cast<float>(1.0 - table.beta1);
  rule->beta2 = static_cast<float>(table.beta2);
  rule->one_less_beta2 = static_cast<float>(1.0 - table.beta2);
  const double numerator = kind == OptimizerKind::kLamb ? 1.0 : rate;
  rule->rate = static_cast<float>(numerator / (1.0 - std::pow(table.beta1, static_cast<double>(step))));
  rule->root = static_cast<float>(std::sqrt(1.0 - std::pow(table.beta2, static_cast<double>(step))));
  rule->keep = static_cast<float>(1.0 - rate * table.weight_decay);
  rule->alpha = static_cast<float>(table.alpha * rate);
  rule->beta = static_cast<float>(table.beta);
  rule->l1 = static_cast<float>(table.l1);
  rule->l2 = static_cast<float>(table.l2);
  return Status::Ok();
}

}  // namespace stepwell
