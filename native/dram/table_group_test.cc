// TableGroup: a step's rows over tables of two layouts against a map; then a pipeline on threads: fetching, computing
// and committing, evicting at once, where every row must have been updated once a step.
#include "dram/table_group.h"

#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <random>
#include <set>
#include <thread>

#include "tests/check.h"

namespace stepwell {
namespace {

constexpr uint32_t kRecord[2] = {48, 80};  // per layout: weight, a u64 of state, count, last step
constexpr uint32_t kDim[2] = {8, 16};
constexpr uint32_t kNone = TableGroup::kNoSlot;

uint32_t SumAt(int layout) { return kDim[layout] * 4; }
uint32_t CountAt(int layout) { return SumAt(layout) + 8; }

using Record = std::vector<std::byte>;
using Rows = std::map<std::pair<size_t, int64_t>, Record>;  // (member, id)

struct Store {
  explicit Store(int threads, uint64_t max_rows) : pool(std::make_shared<ThreadPool>(threads)) {
    for (int layout = 0; layout < 2; ++layout) {
      CHECK_OK(DramTable::Open({kRecord[layout], CountAt(layout), max_rows}, pool, &cores[layout]));
    }
    std::vector<TableGroup::Member> members;
    for (size_t m = 0; m < 5; ++m) {
      DramTableInit init;
      init.key = 100 + m;
      init.program = {static_cast<int>(InitKind::kUniform), 1.0f / (1 << 24), -(1 << 24), 1 << 24, 0};
      init.dim = kDim[LayoutOf(m)];
      init.blank.assign(kRecord[LayoutOf(m)], std::byte{0});
      uint32_t number = 0;
      CHECK_OK(cores[LayoutOf(m)]->AddTable(std::move(init), &number));
      members.push_back({cores[LayoutOf(m)].get(), number, 0});
    }
    group = std::make_unique<TableGroup>(members, pool);
  }
  static int LayoutOf(size_t m) { return m == 1 || m == 4 ? 1 : 0; }

  std::shared_ptr<ThreadPool> pool;
  std::unique_ptr<DramTable> cores[2];
  std::unique_ptr<TableGroup> group;
};

Record FirstValues(size_t m, int64_t id) {
  const int layout = Store::LayoutOf(m);
  Record record(kRecord[layout], std::byte{0});
  const InitProgram program{static_cast<int>(InitKind::kUniform), 1.0f / (1 << 24), -(1 << 24), 1 << 24, 0};
  InitialRow(program, 100 + m, id, kDim[layout], 0, record.data());
  return record;
}

struct Step {
  std::vector<int64_t> starts{0}, ids;
  std::vector<uint32_t> slots;
  std::vector<uint64_t> addresses;
  uint32_t number = 0;

  Step() = default;
  Step(std::mt19937_64& random, size_t most, uint64_t range, uint32_t step) : number(step) {
    for (size_t m = 0; m < 5; ++m) {
      std::set<int64_t> some;
      const size_t n = m == 3 ? 0 : random() % most;
      while (some.size() < n) {
        some.insert(random() % 4 == 0 ? IdOfKey(random() % 16) : static_cast<int64_t>(random() % range));
      }
      ids.insert(ids.end(), some.begin(), some.end());
      starts.push_back(static_cast<int64_t>(ids.size()));
    }
    slots.assign(ids.size(), kNone);
    addresses.assign(ids.size(), 0);
  }
  TableGroup::Batch batch() { return {starts.data(), ids.data(), slots.data()}; }
  size_t member(size_t i) const {
    return static_cast<size_t>(std::upper_bound(starts.begin(), starts.end(), static_cast<int64_t>(i)) -
                               starts.begin()) - 1;
  }
  std::vector<uint32_t> missing() const {
    std::vector<uint32_t> positions;
    for (size_t i = 0; i < slots.size(); ++i) {
      if (slots[i] == kNone) positions.push_back(static_cast<uint32_t>(i));
    }
    return positions;
  }
};

uint64_t& SumOf(uint64_t address, int layout) { return *reinterpret_cast<uint64_t*>(address + SumAt(layout)); }

// Several steps in flight; sources, refusals, rows that are in two batches of a step.
void TestAgainstMap(uint64_t seed, int threads) {
  std::mt19937_64 random(seed);
  Store store(threads, 20000);
  Rows model;
  std::deque<Step> open;
  for (uint32_t number = 1; number <= 60; ++number) {
    open.emplace_back(random, 400, 2000, number);
    Step& step = open.back();
    const size_t absent = store.group->Pin(step.batch(), step.addresses.data());
    const std::vector<uint32_t> missing = step.missing();
    CHECK_EQ(absent, missing.size());
    std::vector<Record> records;  // half of them come from below
    std::vector<uint64_t> sources(missing.size(), 0);
    records.reserve(missing.size());
    for (size_t i = 0; i < missing.size(); ++i) {
      const size_t m = step.member(missing[i]);
      const int64_t id = step.ids[missing[i]];
      CHECK(model.count({m, id}) == 0);
      Record record = FirstValues(m, id);
      if (random() % 2 == 0) {
        const uint32_t stamps[] = {7, number - 1};
        std::memcpy(&record[CountAt(Store::LayoutOf(m))], stamps, 8);
        records.push_back(record);
        sources[i] = reinterpret_cast<uint64_t>(records.back().data());
      }
      model[{m, id}] = record;
    }
    size_t clean = 0, born = 0;
    CHECK_OK(store.group->Place(step.batch(), missing.data(), sources.data(), missing.size(), step.addresses.data(),
                                &clean, &born));
    CHECK_EQ(clean, records.size());
    CHECK_EQ(born, missing.size() - records.size());
    Step second = step;  // the same rows once more in this step
    second.slots.assign(second.ids.size(), kNone);
    CHECK_EQ(store.group->Pin(second.batch(), second.addresses.data()), 0u);
    CHECK(second.addresses == step.addresses);
    store.group->Unpin(second.batch());
    if (open.size() < 3) continue;

    Step& now = open.front();
    Step again = now;
    again.slots.assign(again.ids.size(), kNone);
    CHECK_EQ(store.group->Pin(again.batch(), again.addresses.data()), 0u);
    std::vector<uint8_t> refused(now.ids.size()), outcomes(now.ids.size()), unborn(5, 1);
    std::vector<uint32_t> old_steps(now.ids.size());
    for (uint8_t& flag : refused) flag = random() % 2;
    const std::vector<uint32_t> new_rows = store.group->Unborn(now.batch(), unborn.data());
    std::vector<int64_t> births(5), twice(5);
    store.group->Commit(now.batch(), now.number, refused.data(), false, outcomes.data(), old_steps.data(), births.data());
    store.group->Commit(again.batch(), now.number, nullptr, false, nullptr, nullptr, twice.data());
    CHECK(twice == std::vector<int64_t>(5, 0));
    std::vector<int64_t> expected_births(5);
    size_t next_new = 0;
    for (size_t i = 0; i < now.ids.size(); ++i) {
      const size_t m = now.member(i);
      Record& record = model[{m, now.ids[i]}];
      uint32_t stamps[2];
      std::memcpy(stamps, &record[CountAt(Store::LayoutOf(m))], 8);
      CHECK_EQ(old_steps[i], stamps[1]);
      const bool is_new = stamps[0] == 0;
      if (is_new) CHECK_EQ(new_rows[next_new++], i);
      if (is_new && refused[i] != 0) {
        CHECK_EQ(int{outcomes[i]}, int{TableGroup::kNotStored});
        record = FirstValues(m, now.ids[i]);
      } else {
        CHECK_EQ(int{outcomes[i]}, int{is_new ? TableGroup::kBorn : TableGroup::kStamped});
        expected_births[m] += is_new;
        ++stamps[0];
        stamps[1] = now.number;
        std::memcpy(&record[CountAt(Store::LayoutOf(m))], stamps, 8);
      }
      CHECK(std::memcmp(reinterpret_cast<void*>(now.addresses[i]), record.data(), record.size()) == 0);
    }
    CHECK_EQ(next_new, new_rows.size());
    CHECK(births == expected_births);
    store.group->Unpin(now.batch());
    store.group->Unpin(again.batch());

    // What is committed is what Read gives.
    Step asked(random, 300, 4000, 0);
    size_t bytes = 0;
    for (size_t i = 0; i < asked.ids.size(); ++i) bytes += kRecord[Store::LayoutOf(asked.member(i))];
    std::vector<std::byte> buffer(bytes);
    std::vector<uint8_t> found(asked.ids.size());
    store.group->Read(asked.starts.data(), asked.ids.data(), buffer.data(), asked.addresses.data(), found.data());
    std::vector<uint32_t> absent_ones;
    for (size_t i = 0; i < found.size(); ++i) {
      if (found[i] == 0) absent_ones.push_back(static_cast<uint32_t>(i));
    }
    store.group->FirstValues(asked.starts.data(), asked.ids.data(), absent_ones.data(), absent_ones.size(),
                             asked.addresses.data());
    for (size_t i = 0; i < found.size(); ++i) {
      const size_t m = asked.member(i);
      auto row = model.find({m, asked.ids[i]});
      uint32_t count = 0;
      if (row != model.end()) std::memcpy(&count, &row->second[CountAt(Store::LayoutOf(m))], 4);
      CHECK_EQ(found[i] == 1, count != 0);
      const Record expected = count != 0 ? row->second : FirstValues(m, asked.ids[i]);
      CHECK(std::memcmp(reinterpret_cast<void*>(asked.addresses[i]), expected.data(), expected.size()) == 0);
    }
    open.pop_front();
  }
  // Nothing but the open steps' rows is pinned.
  for (Step& step : open) store.group->Unpin(step.batch());
  for (size_t m = 0; m < 5; ++m) store.cores[Store::LayoutOf(m)]->Drop(store.group->member(m).table, true);
  CHECK_EQ(store.cores[0]->arena().rows_taken() + store.cores[1]->arena().rows_taken(), 0u);
}

void TestFull() {
  Store store(2, 50);
  std::mt19937_64 random(1);
  Step step;
  step.ids.resize(51);
  for (int64_t i = 0; i < 51; ++i) step.ids[static_cast<size_t>(i)] = i;
  step.starts = {0, 51, 51, 51, 51, 51};
  step.slots.assign(51, kNone);
  step.addresses.assign(51, 0);
  CHECK_EQ(store.group->Pin(step.batch(), step.addresses.data()), 51u);
  const std::vector<uint32_t> missing = step.missing();
  const std::vector<uint64_t> sources(51, 0);
  size_t clean = 0, born = 0;
  CHECK(store.group->Place(step.batch(), missing.data(), sources.data(), 51, step.addresses.data(), &clean, &born)
            .code() == Code::kFull);
  CHECK_EQ(store.cores[0]->arena().rows_taken(), 0u);
  CHECK_OK(store.group->Place(step.batch(), missing.data(), sources.data(), 50, step.addresses.data(), &clean, &born));
  CHECK_EQ(born, 50u);
  CHECK_EQ(step.slots[50], kNone);
}

// One thread fetches ahead, one adds 1 to each row of its step and commits, one evicts to a map and back.
void TestPipeline(int threads) {
  Store store(threads, 3000);
  constexpr uint32_t kSteps = 60;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Step> ready;
  Rows below;  // guarded by mutex, as are placing and evicting
  std::atomic<bool> stop{false};
  std::thread fetcher([&] {
    std::mt19937_64 random(5);
    for (uint32_t number = 1; number <= kSteps; ++number) {
      Step step(random, 120, 900, number);
      std::unique_lock<std::mutex> lock(mutex);
      changed.wait(lock, [&] { return ready.size() < 3; });
      lock.unlock();
      store.group->Pin(step.batch(), step.addresses.data());
      lock.lock();
      store.group->Pin(step.batch(), step.addresses.data());
      const std::vector<uint32_t> missing = step.missing();
      std::vector<uint64_t> sources;
      for (uint32_t i : missing) {
        auto row = below.find({step.member(i), step.ids[i]});
        sources.push_back(row == below.end() ? 0 : reinterpret_cast<uint64_t>(row->second.data()));
      }
      size_t clean = 0, born = 0;
      CHECK_OK(store.group->Place(step.batch(), missing.data(), sources.data(), missing.size(),
                                  step.addresses.data(), &clean, &born));
      ready.push_back(std::move(step));
      changed.notify_all();
    }
  });
  std::thread evictor([&] {
    std::vector<int64_t> ids(40);
    std::vector<std::byte> records(40 * 80);
    std::vector<uint8_t> need(40);
    for (size_t m = 0; !stop; m = (m + 1) % 5) {
      DramTable& core = *store.group->member(m).core;
      const uint32_t table = store.group->member(m).table;
      std::lock_guard<std::mutex> lock(mutex);
      const size_t got = core.TakeVictims(table, 40, {}, ids.data(), records.data(), need.data());
      const uint32_t bytes = kRecord[Store::LayoutOf(m)];
      for (size_t i = 0; i < got; ++i) {
        const std::byte* record = &records[i * bytes];
        if (need[i] != 0) below[{m, ids[i]}] = Record(record, record + bytes);
      }
      core.ReleaseClean(table, ids.data(), got);
    }
  });
  std::map<std::pair<size_t, int64_t>, uint64_t> sums;
  for (uint32_t number = 1; number <= kSteps; ++number) {
    std::unique_lock<std::mutex> lock(mutex);
    changed.wait(lock, [&] { return !ready.empty(); });
    Step step = std::move(ready.front());
    ready.pop_front();
    lock.unlock();
    CHECK_EQ(step.number, number);
    for (size_t i = 0; i < step.ids.size(); ++i) {
      const size_t m = step.member(i);
      uint64_t& sum = SumOf(step.addresses[i], Store::LayoutOf(m));
      CHECK_EQ(sum, (sums[{m, step.ids[i]}]));
      sums[{m, step.ids[i]}] = ++sum;
    }
    lock.lock();
    std::vector<int64_t> births(5);
    const bool at_once = number % 2 == 0;
    store.group->Commit(step.batch(), number, nullptr, at_once, nullptr, nullptr, births.data());
    if (!at_once) store.group->Unpin(step.batch());
    changed.notify_all();
  }
  stop = true;
  fetcher.join();
  evictor.join();
}

}  // namespace
}  // namespace stepwell

int main() {
  using namespace stepwell;
  for (uint64_t seed = 0; seed < 4; ++seed) TestAgainstMap(seed, seed % 2 == 0 ? 1 : 4);
  TestFull();
  for (int threads : {1, 4}) TestPipeline(threads);
  return 0;
}
