// The inner loops of the sparse path, one set for each instruction set. All give the same bits: operations are
// elementwise in the order that stepwell.rows writes them, each rounded once, and sums over a row are one fixed tree.
#pragma once

#include <cstddef>
#include <cstdint>

#include "rows/philox.h"
#include "sparse/row_rule.h"

namespace stepwell {

enum class Pooling : int { kSum = 0, kMean = 1, kNone = 2 };

inline constexpr uint32_t kOccurrencesPerChunk = 128;  // a row's gradient is summed by chunks of so many

// Where the rows of one feature go to (look-up) or its gradients come from: bag b's at at + b * stride.
struct FeatureEnds {
  float* at = nullptr;
  size_t stride = 0;   // floats from one sample to the next
  uint32_t first = 0;  // the number of the feature's first bag
  uint32_t dim = 0;
  uint32_t max_len = 0;  // kNone: at most so many rows of dim floats a sample
  int weight_dtype = 0;
  Pooling pooling = Pooling::kSum;
};

struct LookupArgs {
  const FeatureEnds* features = nullptr;
  const uint32_t* offsets = nullptr;  // of bags
  const uint32_t* inverse = nullptr;
  const uint64_t* rows = nullptr;    // addresses of records
  const float* weights = nullptr;    // one per position, or null
  uint32_t batch_size = 0;
  // Bags have one id each, ids have no weights, and all features are fp32 and pooled.
  bool plain = false;
  uint32_t dim = 0;  // of all features, or 0
};

// The occurrences of one table's rows, and the gradients at them.
struct GradientArgs {
  const uint32_t* starts = nullptr;  // [rows + 1], into occurrences
  const uint32_t* occurrences = nullptr;
  const uint32_t* bags = nullptr;  // of positions; null: a position is its bag
  const uint32_t* offsets = nullptr;
  const float* weights = nullptr;
  const FeatureEnds* features = nullptr;  // of the plan, by number
  uint32_t batch_size = 0;
  uint32_t last = 0;  // the end of the table's occurrences
  uint32_t dim = 0;
  // All the table's positions are those of one feature, bags are positions, and gradients count as they are.
  bool plain = false;
  FeatureEnds feature;  // that one, if plain
};

struct UpdateArgs {
  RowRule rule;
  uint32_t bytes_ahead = 0;  // of a record, asked for before its turn comes
  const int64_t* ids = nullptr;    // of the table's rows
  const uint64_t* rows = nullptr;  // addresses of their records
  const GradientArgs* gradients = nullptr;
  const float* sums = nullptr;  // [rows, dim], in place of gradients
};

struct Kernels {
  // Pools or pads the bags of features [f0, f1) and samples [b0, b1).
  void (*lookup)(const LookupArgs& args, uint32_t f0, uint32_t f1, uint32_t b0, uint32_t b1);
  // The gradients of rows [r0, r1) to sums + r * dim.
  void (*sum)(const GradientArgs& args, uint32_t r0, uint32_t r1, float* sums);
  // Updates rows [r0, r1). `scratch` has ScratchFloats(dim) floats, aligned to 64 bytes.
  void (*update)(const UpdateArgs& args, uint32_t r0, uint32_t r1, float* scratch);
};

// Gradient, weight, update and the tree of a sum, each padded to 16 floats.
inline size_t ScratchFloats(uint32_t dim) { return 5 * ((size_t{dim} + 31) / 16 * 16); }

// REQUIRES: IsaSupported(isa).
const Kernels& KernelsFor(Isa isa);

}  // namespace stepwell
