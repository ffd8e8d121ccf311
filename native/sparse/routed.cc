#include "sparse/routed.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <string>

namespace stepwell {
namespace {

constexpr size_t kMostValues = (size_t{1} << 32) - 2;
constexpr size_t kSerialValues = 1 << 16;  // below, the last pass takes less time than waking a thread does

Status Invalid(std::string message) { return Status(Code::kInvalid, std::move(message)); }

// A thread's open-addressing table of indices plus one; 0 is empty. Large ones are given back.
class Slots {
 public:
  uint32_t* Cleared(size_t size) {
    if (size > capacity_) {
      memory_.reset(new uint32_t[size]);
      capacity_ = size;
    }
    std::memset(memory_.get(), 0, size * sizeof(uint32_t));
    return memory_.get();
  }
  void Trim() {
    if (capacity_ > (size_t{1} << 20)) {
      memory_.reset();
      capacity_ = 0;
    }
  }

 private:
  std::unique_ptr<uint32_t[]> memory_;
  size_t capacity_ = 0;
};

thread_local Slots slots_of_thread;

// The top bits of a product depend on all bits of the id.
inline uint64_t Spread(int64_t id) {
  const uint64_t bits = static_cast<uint64_t>(id);
  return (bits ^ (bits >> 32)) * 0x9E3779B97F4A7C15ull;
}

}  // namespace

Status Routed::Make(const int64_t* values, size_t num_values, const int64_t* offsets, size_t num_offsets,
                    const uint32_t* feature_tables, size_t num_features, size_t num_tables, bool occurrences,
                    ThreadPool* pool, std::unique_ptr<Routed>* routed) {
  if (num_features == 0 || num_offsets == 0 || (num_offsets - 1) % num_features != 0) {
    return Invalid("offsets: found " + std::to_string(num_offsets) + " entries, expected 1 more than a multiple of " +
                   std::to_string(num_features) + " features");
  }
  if (num_values > kMostValues || num_offsets > kMostValues) {
    return Invalid("values: found " + std::to_string(num_values) + " ids in " + std::to_string(num_offsets - 1) +
                   " bags, expected fewer than 2**32 of each in one batch");
  }
  std::unique_ptr<Routed> made(new Routed());
  Routed& self = *made;
  self.num_values_ = num_values;
  self.batch_size_ = (num_offsets - 1) / num_features;
  self.feature_tables_.assign(feature_tables, feature_tables + num_features);
  self.longest_.resize(num_features);
  self.features_of_.resize(num_tables);
  for (size_t f = 0; f < num_features; ++f) {
    if (feature_tables[f] >= num_tables) {
      return Invalid("feature_tables: found " + std::to_string(feature_tables[f]) + " for feature " +
                     std::to_string(f) + ", expected less than " + std::to_string(num_tables) + " tables");
    }
    self.features_of_[feature_tables[f]].push_back(static_cast<uint32_t>(f));
  }
  STEPWELL_RETURN_IF_ERROR(self.CheckFeatures(offsets));

  self.first_.assign(num_tables + 1, 0);
  for (size_t t = 0; t < num_tables; ++t) {
    int64_t size = 0;
    for (uint32_t f : self.features_of_[t]) {
      size += offsets[(f + 1) * self.batch_size_] - offsets[f * self.batch_size_];
    }
    self.first_[t + 1] = self.first_[t] + static_cast<size_t>(size);
  }
  self.Allocate(num_tables, occurrences);

  std::vector<size_t> order(num_tables);  // the largest table first, so that threads end together
  for (size_t t = 0; t < num_tables; ++t) order[t] = t;
  const auto size_of = [&](size_t t) { return self.first_[t + 1] - self.first_[t]; };
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return size_of(a) > size_of(b); });

  std::vector<uint32_t> num_unique(num_tables, 0);
  std::atomic<uint32_t> falling{UINT32_MAX};
  std::atomic<bool> others{false};  // some bag has not exactly one id
  pool->Run(num_tables, [&](size_t i) {
    const size_t t = order[i];
    bool one_each = true;
    for (uint32_t f : self.features_of_[t]) {
      uint32_t wrong = UINT32_MAX;
      one_each &= self.CopyOffsets(offsets, f, &wrong);
      if (wrong != UINT32_MAX) {
        falling.store(wrong, std::memory_order_relaxed);
        return;
      }
    }
    if (!one_each) others.store(true, std::memory_order_relaxed);
    num_unique[t] = self.Deduplicate(values, offsets, t);
    if (occurrences) self.ListOccurrences(offsets, t, num_unique[t]);
  });
  slots_of_thread.Trim();
  if (const uint32_t bag = falling.load(); bag != UINT32_MAX) {
    return Invalid("offsets: found " + std::to_string(offsets[bag]) + " and then " + std::to_string(offsets[bag + 1]) +
                   " at entry " + std::to_string(bag) + ", expected to rise");
  }
  self.offsets_[num_offsets - 1] = static_cast<uint32_t>(num_values);
  self.one_per_bag_ = !others.load() && num_values == num_offsets - 1;
  self.Compact(num_unique, pool);
  if (occurrences && !self.one_per_bag_) {
    pool->Run(num_features, [&](size_t f) { self.FillBags(f); });
  } else {
    self.bags_ = nullptr;
  }
  *routed = std::move(made);
  return Status::Ok();
}

// What the boundaries between features say; CopyOffsets looks at the rest.
Status Routed::CheckFeatures(const int64_t* offsets) const {
  const size_t last = feature_tables_.size() * batch_size_;
  bool rises = true;
  for (size_t f = 0; f < feature_tables_.size(); ++f) {
    rises &= offsets[f * batch_size_] <= offsets[(f + 1) * batch_size_];
  }
  if (rises && offsets[0] == 0 && offsets[last] == static_cast<int64_t>(num_values_)) return Status::Ok();
  return Invalid("offsets: found " + std::to_string(offsets[0]) + " to " + std::to_string(offsets[last]) +
                 (rises ? "" : ", falling somewhere") + ", expected to rise from 0 to " +
                 std::to_string(num_values_) + ", the number of ids");
}

void Routed::Allocate(size_t num_tables, bool occurrences) {
  const size_t n = num_values_, bags = feature_tables_.size() * batch_size_;
  size_t words = 2 * n + n + bags + 1;  // ids, inverse, offsets
  if (occurrences) words += 2 * n + n + num_tables;
  memory_.reset(new std::byte[words * sizeof(uint32_t)]);
  ids_ = reinterpret_cast<int64_t*>(memory_.get());
  inverse_ = reinterpret_cast<uint32_t*>(memory_.get()) + 2 * n;
  offsets_ = inverse_ + n;
  if (occurrences) {
    occurrences_ = offsets_ + bags + 1;
    bags_ = occurrences_ + n;
    occurrence_starts_ = bags_ + n;
  }
}

// True when each of the feature's bags has exactly one id. A bag whose end lies before its begin goes to *wrong.
bool Routed::CopyOffsets(const int64_t* offsets, size_t feature, uint32_t* wrong) {
  const size_t begin = feature * batch_size_, end = begin + batch_size_;
  bool falls = false, one_each = true;
  for (size_t bag = begin; bag < end; ++bag) {
    const int64_t size = offsets[bag + 1] - offsets[bag];
    falls |= size < 0;
    one_each &= size == 1;
    offsets_[bag] = static_cast<uint32_t>(offsets[bag]);
  }
  if (falls) {
    for (size_t bag = end; bag-- > begin;) {
      if (offsets[bag + 1] < offsets[bag]) *wrong = static_cast<uint32_t>(bag);
    }
  }
  uint32_t longest = one_each ? 1 : 0;
  for (size_t bag = begin; bag < end && !one_each && !falls; ++bag) {
    longest = std::max(longest, static_cast<uint32_t>(offsets[bag + 1] - offsets[bag]));
  }
  longest_[feature] = longest;
  return one_each;
}

// Puts the table's unique ids at ids_ + first_[table] and indices from there into inverse_; returns how many.
//
// Whether an id is new is no better predicted than a coin, so nothing branches on it: both cases store the same words.
uint32_t Routed::Deduplicate(const int64_t* values, const int64_t* offsets, size_t table) {
  const size_t n = first_[table + 1] - first_[table];
  if (n == 0) return 0;
  const int bits = std::bit_width(2 * n - 1);  // at most half full
  const uint64_t mask = (uint64_t{1} << bits) - 1;
  uint32_t* const slots = slots_of_thread.Cleared(mask + 1);
  int64_t* const ids = ids_ + first_[table];
  uint32_t* const inverse = inverse_;
  uint32_t unique = 0;
  for (uint32_t f : features_of_[table]) {
    const int64_t end = offsets[(f + 1) * batch_size_];
    for (int64_t p = offsets[f * batch_size_]; p < end; ++p) {
      const int64_t id = values[p];
      uint64_t at = Spread(id) >> (64 - bits);
      while (true) {
        const uint32_t there = slots[at];
        const uint32_t index = there == 0 ? unique : there - 1;
        slots[at] = index + 1;
        ids[unique] = id;  // unique is at most the number of ids before this one, so this is the table's own part
        unique += there == 0;
        if (ids[index] == id) [[likely]] {
          inverse[p] = index;
          break;
        }
        at = (at + 1) & mask;
      }
    }
  }
  return unique;
}

void Routed::ListOccurrences(const int64_t* offsets, size_t table, uint32_t num_unique) {
  uint32_t* const starts = occurrence_starts_ + first_[table] + table;
  std::memset(starts, 0, (size_t{num_unique} + 1) * sizeof(uint32_t));
  uint32_t* const next = starts + 1;  // counts, then where the row's next position goes, which ends as the row's end
  for (uint32_t f : features_of_[table]) {
    const int64_t end = offsets[(f + 1) * batch_size_];
    for (int64_t p = offsets[f * batch_size_]; p < end; ++p) ++next[inverse_[p]];
  }
  uint32_t at = static_cast<uint32_t>(first_[table]);
  starts[0] = at;
  for (uint32_t r = 0; r < num_unique; ++r) {
    const uint32_t count = next[r];
    next[r] = at;
    at += count;
  }
  for (uint32_t f : features_of_[table]) {
    const int64_t end = offsets[(f + 1) * batch_size_];
    for (int64_t p = offsets[f * batch_size_]; p < end; ++p) {
      occurrences_[next[inverse_[p]]++] = static_cast<uint32_t>(p);
    }
  }
}

// Closes the gaps between the tables' unique ids, and makes inverse_ count from the first table's.
void Routed::Compact(const std::vector<uint32_t>& num_unique, ThreadPool* pool) {
  const size_t num_tables = num_unique.size();
  starts_.assign(num_tables + 1, 0);
  for (size_t t = 0; t < num_tables; ++t) {
    starts_[t + 1] = starts_[t] + num_unique[t];
    if (num_unique[t] == 0) continue;
    std::memmove(ids_ + starts_[t], ids_ + first_[t], num_unique[t] * sizeof(int64_t));
  }
  const auto rebase = [&](size_t f) {
    const uint32_t add = static_cast<uint32_t>(starts_[feature_tables_[f]]);
    const uint32_t end = offsets_[(f + 1) * batch_size_];
    for (uint32_t p = offsets_[f * batch_size_]; p < end; ++p) inverse_[p] += add;
  };
  if (num_values_ > kSerialValues) {
    pool->Run(feature_tables_.size(), rebase);
  } else {
    for (size_t f = 0; f < feature_tables_.size(); ++f) rebase(f);
  }
}

void Routed::FillBags(size_t feature) {
  for (size_t bag = feature * batch_size_; bag < (feature + 1) * batch_size_; ++bag) {
    std::fill(bags_ + offsets_[bag], bags_ + offsets_[bag + 1], static_cast<uint32_t>(bag));
  }
}

}  // namespace stepwell
