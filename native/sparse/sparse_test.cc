// The sparse path against the plainest loops, for each instruction set and number of threads, with callers side by side.
// tests/native/test_sparse_update.py compares every optimizer with numpy.
#include <cmath>
#include <cstring>
#include <map>
#include <random>
#include <thread>

#include "sparse/plan.h"
#include "tests/check.h"

namespace stepwell {
namespace {

constexpr uint32_t kDims[] = {1, 16, 21};
constexpr size_t kTables = 3;

struct Batch {
  size_t size = 0;
  std::vector<uint32_t> tables;  // of features
  std::vector<int64_t> values, offsets{0};
  std::vector<float> weights;

  void Add(std::mt19937& rng, uint32_t table, uint32_t most, bool exactly) {
    tables.push_back(table);
    for (size_t b = 0; b < size; ++b) {
      const uint32_t n = exactly ? most : static_cast<uint32_t>(rng() % (most + 1));
      for (uint32_t i = 0; i < n; ++i) {
        const int64_t id = static_cast<int64_t>(rng() % 7 == 0 ? rng() % 500 : rng() % 5);
        values.push_back(id == 3 ? INT64_MIN : -id);
        weights.push_back(static_cast<float>(rng() % 5));
      }
      offsets.push_back(static_cast<int64_t>(values.size()));
    }
  }

  std::unique_ptr<Routed> Route(ThreadPool* pool) const {
    std::unique_ptr<Routed> routed;
    CHECK_OK(Routed::Make(values.data(), values.size(), offsets.data(), offsets.size(), tables.data(), tables.size(),
                          kTables, true, pool, &routed));
    return routed;
  }
};

void CheckRouted(const Batch& batch, const Routed& routed) {
  std::vector<std::vector<int64_t>> unique(kTables);
  std::map<std::pair<uint32_t, int64_t>, size_t> number;
  for (size_t p = 0; p < batch.values.size(); ++p) {
    size_t f = 0;
    while (batch.offsets[(f + 1) * batch.size] <= static_cast<int64_t>(p)) ++f;
    const uint32_t table = batch.tables[f];
    if (number.emplace(std::pair(table, batch.values[p]), unique[table].size()).second) {
      unique[table].push_back(batch.values[p]);
    }
  }
  for (size_t t = 0; t < kTables; ++t) {
    const size_t first = static_cast<size_t>(routed.starts()[t]);
    CHECK_EQ(static_cast<size_t>(routed.starts()[t + 1]) - first, unique[t].size());
    const uint32_t* const begin = routed.occurrence_starts(t);
    for (size_t r = 0; r < unique[t].size(); ++r) {
      CHECK_EQ(routed.ids()[first + r], unique[t][r]);
      for (uint32_t k = begin[r]; k < begin[r + 1]; ++k) {
        CHECK_EQ(routed.inverse()[routed.occurrences()[k]], static_cast<uint32_t>(first + r));
        CHECK(k == begin[r] || routed.occurrences()[k - 1] < routed.occurrences()[k]);
      }
    }
  }
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

struct Result {
  std::vector<float> records, outputs;
  bool operator==(const Result& other) const {
    return SameBits(records, other.records) && SameBits(outputs, other.outputs);
  }
};

// Records have dim weights, padded to 16 bytes, then a float of state and 3 to spare.
size_t Stride(uint32_t dim) { return (dim + 3) / 4 * 4 + 4; }

// One look-up, summing and one update by row-wise AdaGrad of every feature, pooled side by side.
Result Train(const Batch& batch, bool weighted, Isa isa, std::shared_ptr<ThreadPool> pool) {
  const std::unique_ptr<Routed> routed = batch.Route(pool.get());
  CheckRouted(batch, *routed);
  std::vector<SparseTable> tables(kTables);
  for (size_t t = 0; t < kTables; ++t) {
    tables[t].dim = kDims[t];
    tables[t].kind = static_cast<int>(OptimizerKind::kRowWiseAdaGrad);
    tables[t].eps = 1e-8;
    tables[t].state_offsets = {static_cast<uint32_t>(4 * (Stride(kDims[t]) - 4))};
  }
  std::vector<SparseFeature> features;
  uint32_t width = 0;
  for (size_t f = 0; f < batch.tables.size(); ++f) {
    features.push_back({batch.tables[f], static_cast<int>(f % 2), 0, width, 0});
    width += kDims[batch.tables[f]];
  }
  std::unique_ptr<SparsePlan> plan;
  CHECK_OK(SparsePlan::Make(features, tables, pool, isa, &plan));
  Result result;
  std::vector<uint64_t> rows;
  std::vector<size_t> at;
  for (size_t t = 0; t < kTables; ++t) {
    for (int64_t r = routed->starts()[t]; r < routed->starts()[t + 1]; ++r) {
      at.push_back(result.records.size());
      for (size_t c = 0; c < Stride(kDims[t]); ++c) {
        result.records.push_back(static_cast<float>(routed->ids()[r] % 100 + static_cast<int64_t>(c)) * 0.01f + 1.0f);
      }
    }
  }
  for (size_t start : at) rows.push_back(reinterpret_cast<uint64_t>(result.records.data() + start));
  result.outputs.assign(batch.size * width, NAN);
  const std::vector<SparseArray> outputs{{result.outputs.data(), {batch.size, width}, width}};
  const float* const weights = weighted ? batch.weights.data() : nullptr;
  CHECK_OK(plan->Lookup(*routed, rows.data(), weights, outputs));
  std::vector<std::vector<float>> sums(kTables);
  std::vector<float*> to;
  for (size_t t = 0; t < kTables; ++t) {
    sums[t].resize(static_cast<size_t>(routed->starts()[t + 1] - routed->starts()[t]) * kDims[t]);
    to.push_back(sums[t].data());
  }
  CHECK_OK(plan->SumGradients(*routed, weights, outputs, to));
  // The same update from the sums, on a copy.
  std::vector<float> copy = result.records;
  for (size_t t = 0; t < kTables; ++t) {
    const size_t first = static_cast<size_t>(routed->starts()[t]);
    const size_t n = static_cast<size_t>(routed->starts()[t + 1]) - first;
    std::vector<uint64_t> copied;
    for (size_t r = first; r < first + n; ++r) copied.push_back(reinterpret_cast<uint64_t>(copy.data() + at[r]));
    CHECK_OK(plan->UpdateRows(t, routed->ids() + first, copied.data(), n, sums[t].data(), 1, 0.1));
  }
  const double rates[kTables] = {0.1, 0.1, 0.1};
  CHECK_OK(plan->Update(*routed, rows.data(), weights, outputs, 1, rates));
  CHECK(SameBits(copy, result.records));
  return result;
}

// A column of a sum, by hand.
void CheckLookup(const Batch& batch, const Result& result, bool weighted) {
  uint32_t width = 0;
  for (uint32_t table : batch.tables) width += kDims[table];
  uint32_t column = 0;
  for (size_t f = 0; f < batch.tables.size(); ++f) {
    for (size_t b = 0; b < batch.size; ++b) {
      const int64_t begin = batch.offsets[f * batch.size + b], end = batch.offsets[f * batch.size + b + 1];
      float sum = 0;
      for (int64_t p = begin; p < end; ++p) {
        const float weight = static_cast<float>(batch.values[p] % 100) * 0.01f + 1.0f;
        sum += weighted ? batch.weights[p] * weight : weight;
      }
      if (f % 2 == 1 && end > begin) sum /= static_cast<float>(end - begin);
      CHECK_EQ(result.outputs[b * width + column], sum);
    }
    column += kDims[batch.tables[f]];
  }
}

void TestAllTheSame(const Batch& batch, bool weighted) {
  const Result first = Train(batch, weighted, Isa::kScalar, std::make_shared<ThreadPool>(1));
  CheckLookup(batch, first, weighted);
  for (Isa isa : {Isa::kScalar, Isa::kAvx2, Isa::kAvx512}) {
    if (!IsaSupported(isa)) continue;
    for (int threads : {1, 2, 5}) CHECK(Train(batch, weighted, isa, std::make_shared<ThreadPool>(threads)) == first);
  }
}

void TestSeveralCallers(const Batch& batch) {
  const auto pool = std::make_shared<ThreadPool>(3);
  const Result first = Train(batch, true, BestIsa(), pool);
  std::vector<std::thread> callers;
  for (int i = 0; i < 3; ++i) {
    callers.emplace_back([&] {
      for (int round = 0; round < 3; ++round) CHECK(Train(batch, true, BestIsa(), pool) == first);
    });
  }
  for (std::thread& caller : callers) caller.join();
}

void TestOffsets() {
  ThreadPool pool(2);
  const int64_t values[4] = {1, 2, 3, 4};
  const uint32_t tables[2] = {0, 1};
  std::unique_ptr<Routed> routed;
  const auto make = [&](std::vector<int64_t> offsets) {
    return Routed::Make(values, 4, offsets.data(), offsets.size(), tables, 2, 2, true, &pool, &routed);
  };
  CHECK_OK(make({0, 1, 2, 2, 4}));
  CHECK(make({0, 3, 2, 2, 4}).code() == Code::kInvalid);
  CHECK(make({0, 1, 2, 99, 4}).code() == Code::kInvalid);
  CHECK(make({0, 1, 2, -7, 4}).code() == Code::kInvalid);
  CHECK(make({0, 1, 5, 5, 4}).code() == Code::kInvalid);
  CHECK(make({0, 1, 2, 4}).code() == Code::kInvalid);
  CHECK(make({1, 1, 2, 2, 4}).code() == Code::kInvalid);
  CHECK(make({}).code() == Code::kInvalid);
}

void Run() {
  std::mt19937 rng(1);
  Batch jagged, ones, empty;
  jagged.size = 150;
  jagged.Add(rng, 1, 4, false);
  jagged.Add(rng, 0, 3, false);
  jagged.Add(rng, 1, 2, false);
  jagged.Add(rng, 2, 0, true);  // all empty
  jagged.Add(rng, 2, 5, false);
  ones.size = 700;  // hot rows have more than 128 occurrences
  for (uint32_t table = 0; table < kTables; ++table) ones.Add(rng, table, 1, true);
  empty.size = 3;
  for (uint32_t table = 0; table < kTables; ++table) empty.Add(rng, table, 0, true);
  for (bool weighted : {false, true}) {
    TestAllTheSame(jagged, weighted);
    TestAllTheSame(ones, weighted);
    TestAllTheSame(empty, weighted);
  }
  TestSeveralCallers(jagged);
  TestOffsets();
}

}  // namespace
}  // namespace stepwell

int main() { stepwell::Run(); }
