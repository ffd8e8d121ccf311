#include "sparse/plan.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <new>
#include <string>

namespace stepwell {
namespace {

constexpr uint32_t kMostAhead = 1024;   // bytes of a record asked for ahead; the processor sees the rest coming
constexpr size_t kTasksPerThread = 4;   // parts of a call, so that threads end together
constexpr size_t kStackFloats = 5 * 288;

Status Invalid(std::string message) { return Status(Code::kInvalid, std::move(message)); }

std::string Named(const char* field, size_t number) { return std::string(field) + " " + std::to_string(number); }

struct Part {
  uint32_t table, begin, end;  // rows of it
};

// Cuts every table's rows into runs of about equal work: a row's own, and its occurrences'.
std::vector<Part> Cut(const Routed& routed, const std::vector<bool>& wanted, size_t threads) {
  std::vector<Part> parts;
  const std::vector<int64_t>& starts = routed.starts();
  const uint64_t total = routed.num_values() + routed.num_unique();
  const uint64_t each = std::max<uint64_t>(64, total / (threads == 1 ? 1 : threads * kTasksPerThread));
  for (uint32_t t = 0; t < routed.num_tables(); ++t) {
    const uint32_t rows = static_cast<uint32_t>(starts[t + 1] - starts[t]);
    if (!wanted[t] || rows == 0) continue;
    const uint32_t* const begin_of = routed.occurrence_starts(t);
    const uint64_t work = rows + begin_of[rows] - begin_of[0];
    const uint64_t pieces = std::max<uint64_t>(1, (work + each / 2) / each);
    uint32_t begin = 0;
    for (uint64_t piece = 1; piece <= pieces && begin < rows; ++piece) {
      uint32_t low = begin + 1, high = rows;  // the first row at which `piece` of the pieces are done
      while (low < high && piece < pieces) {
        const uint32_t middle = low + (high - low) / 2;
        if ((middle + begin_of[middle] - begin_of[0]) * pieces >= work * piece) {
          high = middle;
        } else {
          low = middle + 1;
        }
      }
      const uint32_t end = piece == pieces ? rows : low;
      parts.push_back({t, begin, end});
      begin = end;
    }
  }
  return parts;
}

// A task's own floats, aligned to a cache line.
class TaskScratch {
 public:
  explicit TaskScratch(size_t floats) {
    if (floats > kStackFloats) large_ = static_cast<float*>(::operator new(floats * sizeof(float), kAlign));
  }
  ~TaskScratch() {
    if (large_ != nullptr) ::operator delete(large_, kAlign);
  }
  TaskScratch(const TaskScratch&) = delete;
  TaskScratch& operator=(const TaskScratch&) = delete;
  float* data() { return large_ != nullptr ? large_ : small_; }

 private:
  static constexpr std::align_val_t kAlign{64};
  alignas(64) float small_[kStackFloats];
  float* large_ = nullptr;
};

}  // namespace

Status SparsePlan::Make(std::vector<SparseFeature> features, std::vector<SparseTable> tables,
                        std::shared_ptr<ThreadPool> pool, Isa isa, std::unique_ptr<SparsePlan>* plan) {
  if (!IsaSupported(isa)) return Invalid("isa: this processor does not have the instruction set that was asked for");
  std::unique_ptr<SparsePlan> made(new SparsePlan());
  for (size_t t = 0; t < tables.size(); ++t) {
    const Status status = CheckTable(tables[t]);
    if (!status.ok()) return Invalid(Named("table", t) + ": " + status.message());
  }
  made->features_of_.resize(tables.size());
  std::vector<int> sequences;  // by output: features that are not pooled into it
  std::vector<int> all;
  for (size_t f = 0; f < features.size(); ++f) {
    const SparseFeature& feature = features[f];
    if (feature.table >= tables.size()) {
      return Invalid(Named("feature", f) + ": table: found " + std::to_string(feature.table) +
                     ", expected less than " + std::to_string(tables.size()));
    }
    if (feature.pooling < 0 || feature.pooling > 2) {
      return Invalid(Named("feature", f) + ": pooling: found " + std::to_string(feature.pooling) +
                     ", expected 0 (sum), 1 (mean) or 2 (none)");
    }
    const bool sequence = feature.pooling == static_cast<int>(Pooling::kNone);
    if (sequence && (feature.max_len == 0 || feature.column != 0)) {
      return Invalid(Named("feature", f) + ": found max_len " + std::to_string(feature.max_len) + " and column " +
                     std::to_string(feature.column) + ", expected a max_len and column 0 without pooling");
    }
    made->features_of_[feature.table].push_back(static_cast<uint32_t>(f));
    if (feature.output >= all.size()) {
      all.resize(feature.output + 1);
      sequences.resize(feature.output + 1);
    }
    ++all[feature.output];
    sequences[feature.output] += sequence;
    made->has_sequences_ |= sequence;
  }
  for (size_t output = 0; output < all.size(); ++output) {
    if (sequences[output] > 0 && all[output] > 1) {
      return Invalid(Named("output", output) + ": found " + std::to_string(all[output]) +
                     " features, expected one, because its rows are not pooled");
    }
  }
  made->num_outputs_ = all.size();
  made->features_ = std::move(features);
  made->tables_ = std::move(tables);
  made->pool_ = std::move(pool);
  made->kernels_ = &KernelsFor(isa);
  *plan = std::move(made);
  return Status::Ok();
}

Status SparsePlan::CheckBatch(const Routed& routed) const {
  bool same = routed.feature_tables().size() == features_.size() && routed.num_tables() == tables_.size();
  for (size_t f = 0; same && f < features_.size(); ++f) same = routed.feature_tables()[f] == features_[f].table;
  return same ? Status::Ok() : Invalid("routed: found a batch of other features or tables than the plan's");
}

Status SparsePlan::Resolve(const Routed& routed, const std::vector<SparseArray>& arrays,
                           std::vector<FeatureEnds>* ends) const {
  STEPWELL_RETURN_IF_ERROR(CheckBatch(routed));
  const size_t batch = routed.batch_size();
  if (arrays.size() != num_outputs_) {
    return Invalid("found " + std::to_string(arrays.size()) + " outputs or gradients, expected " +
                   std::to_string(num_outputs_));
  }
  ends->resize(features_.size());
  for (size_t f = 0; f < features_.size(); ++f) {
    const SparseFeature& feature = features_[f];
    const SparseArray& array = arrays[feature.output];
    const uint32_t dim = tables_[feature.table].dim;
    const bool sequence = feature.pooling == static_cast<int>(Pooling::kNone);
    const bool fits = sequence ? array.shape == std::vector<size_t>{batch, feature.max_len, dim}
                               : array.shape.size() == 2 && array.shape[0] == batch &&
                                     array.shape[1] >= size_t{feature.column} + dim;
    if (!fits) {
      std::string found;
      for (size_t size : array.shape) found += (found.empty() ? "" : ", ") + std::to_string(size);
      return Invalid(Named("output", feature.output) + ": found [" + found + "], expected [" +
                     std::to_string(batch) + ", " +
                     (sequence ? std::to_string(feature.max_len) + ", " + std::to_string(dim)
                               : "at least " + std::to_string(size_t{feature.column} + dim)) +
                     "] for feature " + std::to_string(f));
    }
    FeatureEnds& end = (*ends)[f];
    end.at = array.data + feature.column;
    end.stride = array.stride;
    end.first = static_cast<uint32_t>(f * batch);
    end.dim = dim;
    end.max_len = feature.max_len;
    end.weight_dtype = tables_[feature.table].weight_dtype;
    end.pooling = static_cast<Pooling>(feature.pooling);
    if (!sequence) continue;
    for (size_t b = 0; b < batch; ++b) {
      const uint32_t length = routed.offsets()[f * batch + b + 1] - routed.offsets()[f * batch + b];
      if (length > feature.max_len) {
        return Invalid(Named("feature", f) + ": found " + std::to_string(length) + " ids in sample " +
                       std::to_string(b) + ", expected at most its max_len, " + std::to_string(feature.max_len));
      }
    }
  }
  return Status::Ok();
}

Status SparsePlan::Lookup(const Routed& routed, const uint64_t* rows, const float* weights,
                          const std::vector<SparseArray>& outputs) const {
  std::vector<FeatureEnds> ends;
  STEPWELL_RETURN_IF_ERROR(Resolve(routed, outputs, &ends));
  LookupArgs args;
  args.features = ends.data();
  args.offsets = routed.offsets();
  args.inverse = routed.inverse();
  args.rows = rows;
  args.weights = weights;
  args.plain = routed.one_per_bag() && weights == nullptr;
  args.dim = ends.empty() ? 0 : ends[0].dim;
  for (const FeatureEnds& end : ends) {
    args.plain &= end.weight_dtype == 0 && end.pooling != Pooling::kNone;
    if (end.dim != args.dim) args.dim = 0;
  }
  const size_t features = features_.size(), batch = routed.batch_size();
  const size_t threads = static_cast<size_t>(pool_->num_threads());
  const size_t pieces = threads == 1 ? 1 : std::min(batch, threads * kTasksPerThread);
  pool_->Run(pieces, [&](size_t piece) {
    kernels_->lookup(args, 0, static_cast<uint32_t>(features), static_cast<uint32_t>(batch * piece / pieces),
                     static_cast<uint32_t>(batch * (piece + 1) / pieces));
  });
  return Status::Ok();
}

Status SparsePlan::GradientsOf(const Routed& routed, const float* weights, const std::vector<SparseArray>& grads,
                               std::vector<FeatureEnds>* ends, std::vector<GradientArgs>* gradients) const {
  STEPWELL_RETURN_IF_ERROR(Resolve(routed, grads, ends));
  if (!routed.has_occurrences()) {
    return Invalid("routed: found a batch without occurrences, expected one made with them, for its gradients");
  }
  gradients->resize(tables_.size());
  for (size_t t = 0; t < tables_.size(); ++t) {
    GradientArgs& args = (*gradients)[t];
    args.starts = routed.occurrence_starts(t);
    args.occurrences = routed.occurrences();
    args.bags = routed.bags();
    args.offsets = routed.offsets();
    args.weights = weights;
    args.features = ends->data();
    args.batch_size = static_cast<uint32_t>(routed.batch_size());
    args.last = args.starts[routed.starts()[t + 1] - routed.starts()[t]];
    args.dim = tables_[t].dim;
    if (features_of_[t].size() == 1) {
      args.feature = (*ends)[features_of_[t][0]];
      args.plain = routed.one_per_bag() && weights == nullptr && args.feature.pooling != Pooling::kNone;
    }
  }
  return Status::Ok();
}

Status SparsePlan::SumGradients(const Routed& routed, const float* weights, const std::vector<SparseArray>& grads,
                                const std::vector<float*>& sums) const {
  std::vector<FeatureEnds> ends;
  std::vector<GradientArgs> gradients;
  STEPWELL_RETURN_IF_ERROR(GradientsOf(routed, weights, grads, &ends, &gradients));
  const std::vector<bool> wanted(tables_.size(), true);
  const std::vector<Part> parts = Cut(routed, wanted, static_cast<size_t>(pool_->num_threads()));
  pool_->Run(parts.size(), [&](size_t i) {
    const Part& part = parts[i];
    kernels_->sum(gradients[part.table], part.begin, part.end, sums[part.table]);
  });
  return Status::Ok();
}

Status SparsePlan::Update(const Routed& routed, const uint64_t* rows, const float* weights,
                          const std::vector<SparseArray>& grads, uint32_t step, const double* rates) const {
  std::vector<FeatureEnds> ends;
  std::vector<GradientArgs> gradients;
  STEPWELL_RETURN_IF_ERROR(GradientsOf(routed, weights, grads, &ends, &gradients));
  std::vector<UpdateArgs> updates(tables_.size());
  std::vector<bool> wanted(tables_.size());
  size_t floats = 0;
  for (size_t t = 0; t < tables_.size(); ++t) {
    wanted[t] = !std::isnan(rates[t]);
    if (!wanted[t]) continue;
    const Status status = MakeRule(tables_[t], step, rates[t], &updates[t].rule);
    if (!status.ok()) return Invalid(Named("table", t) + ": " + status.message());
    updates[t].bytes_ahead = std::min(kMostAhead, UpdatedBytes(tables_[t]));
    updates[t].ids = routed.ids() + routed.starts()[t];
    updates[t].rows = rows + routed.starts()[t];
    updates[t].gradients = &gradients[t];
    floats = std::max(floats, ScratchFloats(tables_[t].dim));
  }
  const std::vector<Part> parts = Cut(routed, wanted, static_cast<size_t>(pool_->num_threads()));
  pool_->Run(parts.size(), [&](size_t i) {
    TaskScratch scratch(floats);
    kernels_->update(updates[parts[i].table], parts[i].begin, parts[i].end, scratch.data());
  });
  return Status::Ok();
}

Status SparsePlan::UpdateRows(size_t table, const int64_t* ids, const uint64_t* rows, size_t n, const float* sums,
                              uint32_t step, double rate) const {
  UpdateArgs update;
  const Status status = MakeRule(tables_[table], step, rate, &update.rule);
  if (!status.ok()) return Invalid(Named("table", table) + ": " + status.message());
  update.bytes_ahead = std::min(kMostAhead, UpdatedBytes(tables_[table]));
  update.ids = ids;
  update.rows = rows;
  update.sums = sums;
  const size_t threads = static_cast<size_t>(pool_->num_threads());
  const size_t pieces = threads == 1 ? 1 : std::min(threads * kTasksPerThread, n / 64 + 1);
  pool_->Run(pieces, [&](size_t piece) {
    TaskScratch scratch(ScratchFloats(tables_[table].dim));
    kernels_->update(update, static_cast<uint32_t>(n * piece / pieces), static_cast<uint32_t>(n * (piece + 1) / pieces),
                     scratch.data());
  });
  return Status::Ok();
}

}  // namespace stepwell
