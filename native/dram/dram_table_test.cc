// DramTable against a map: random verbs over two tables that share ids, duplicates in batches, pins, eviction; then
// several callers at once, where a reader must never see half a row.
#include "dram/dram_table.h"

#include <cstring>
#include <map>
#include <random>
#include <set>
#include <thread>

#include "dram/table_group.h"
#include "tests/check.h"

namespace stepwell {
namespace {

constexpr uint32_t kDim = 8;
constexpr uint32_t kRecord = 48;  // 32 of weight, 4 of state, count, last step
constexpr uint32_t kCount = 36;

using Record = std::vector<std::byte>;

std::unique_ptr<DramTable> OpenTable(uint64_t max_rows, int threads, int tables) {
  std::unique_ptr<DramTable> table;
  CHECK_OK(DramTable::Open({kRecord, kCount, max_rows}, std::make_shared<ThreadPool>(threads), &table));
  for (int i = 0; i < tables; ++i) {
    DramTableInit init;
    init.key = 1000 + static_cast<uint64_t>(i);
    init.program = {static_cast<int>(InitKind::kUniform), 1.0f / (1 << 24), -(1 << 24), 1 << 24, 0};
    init.dim = kDim;
    init.blank.assign(kRecord, std::byte{0});
    uint32_t number = 0;
    CHECK_OK(table->AddTable(std::move(init), &number));
    CHECK_EQ(number, static_cast<uint32_t>(i));
  }
  return table;
}

Record MakeRecord(uint64_t value, uint32_t count, uint32_t step) {
  Record record(kRecord);
  for (uint32_t at = 0; at < kCount; at += 4) {
    const uint32_t word = static_cast<uint32_t>(value * 2654435761u + 1);
    std::memcpy(&record[at], &word, 4);
  }
  std::memcpy(&record[kCount], &count, 4);
  std::memcpy(&record[kCount + 4], &step, 4);
  return record;
}

Record FirstValues(uint32_t table, int64_t id) {
  Record record(kRecord, std::byte{0});
  const InitProgram program{static_cast<int>(InitKind::kUniform), 1.0f / (1 << 24), -(1 << 24), 1 << 24, 0};
  InitialRow(program, 1000 + table, id, kDim, 0, record.data());
  return record;
}

std::vector<int64_t> DrawIds(std::mt19937_64& random, size_t n) {
  std::vector<int64_t> ids(n);
  for (int64_t& id : ids) {
    const uint64_t kind = random() % 8;
    if (kind == 0) {
      const int64_t edges[] = {0, -1, INT64_MIN, INT64_MAX};
      id = edges[random() % 4];
    } else if (kind == 1) {
      id = IdOfKey(random() % 64);  // one shard, one home
    } else {
      id = static_cast<int64_t>(random() % 3000);
    }
  }
  return ids;
}

void TestAgainstMap(uint64_t seed, int threads) {
  std::mt19937_64 random(seed);
  constexpr uint64_t kMax = 5000;
  auto table = OpenTable(kMax, threads, 2);
  auto pool = std::make_shared<ThreadPool>(threads);
  std::map<int64_t, Record> model[2];
  for (int verb = 0; verb < 400; ++verb) {
    const uint32_t t = random() % 2;
    const size_t n = random() % 300;
    const std::vector<int64_t> ids = DrawIds(random, n);
    std::vector<uint8_t> flags(n, 7);
    std::vector<int64_t> slots(n, -7);
    const uint64_t kind = random() % 6;
    if (kind == 0) {
      std::vector<std::byte> records;
      std::set<int64_t> new_ids;
      for (size_t i = 0; i < n; ++i) {
        const Record record = MakeRecord(random(), 1 + random() % 9, random() % 50);
        records.insert(records.end(), record.begin(), record.end());
        if (model[t].count(ids[i]) == 0) new_ids.insert(ids[i]);
      }
      CHECK_OK(table->InsertOrAssign(t, ids.data(), records.data(), kRecord, n, flags.data()));
      size_t fresh = 0;
      for (size_t i = 0; i < n; ++i) {
        fresh += flags[i];
        model[t][ids[i]] = Record(records.begin() + static_cast<ptrdiff_t>(i * kRecord),
                                  records.begin() + static_cast<ptrdiff_t>((i + 1) * kRecord));
      }
      CHECK_EQ(fresh, new_ids.size());
    } else if (kind == 1) {
      const bool pin = random() % 2 == 0;
      CHECK_OK(table->FindOrInsert(t, ids.data(), n, pin, slots.data(), flags.data()));
      std::map<int64_t, int64_t> slot_of;
      for (size_t i = 0; i < n; ++i) {
        CHECK_EQ(flags[i] == 1, model[t].count(ids[i]) == 0);
        if (flags[i] == 1) model[t][ids[i]] = FirstValues(t, ids[i]);
        CHECK(slots[i] >= 0);
        if (slot_of.count(ids[i]) == 1) CHECK_EQ(slot_of[ids[i]], slots[i]);
        slot_of[ids[i]] = slots[i];
        if (pin) CHECK(table->arena().pinned(static_cast<uint32_t>(slots[i])));
      }
      if (pin) {
        CHECK_OK(table->Unpin(slots.data(), n, std::vector<uint8_t>(n, 0).data()));
        for (int64_t slot : slots) CHECK(!table->arena().pinned(static_cast<uint32_t>(slot)));
      }
    } else if (kind == 2) {
      table->Erase(t, ids.data(), n, flags.data());
      for (size_t i = 0; i < n; ++i) {
        uint32_t count = 0;
        auto found = model[t].find(ids[i]);
        if (found != model[t].end()) std::memcpy(&count, &found->second[kCount], 4);
        CHECK_EQ(flags[i] == 1, count > 0);
        model[t].erase(ids[i]);
      }
    } else if (kind == 3) {
      std::set<int64_t> once(ids.begin(), ids.end());
      std::vector<int64_t> unique;
      for (int64_t id : once) {
        if (model[t].count(id) == 1) unique.push_back(id);
      }
      std::vector<uint8_t> refused(unique.size()), outcomes(unique.size());
      for (uint8_t& flag : refused) flag = random() % 2;
      std::vector<uint32_t> old_step(unique.size()), unique_slots(unique.size(), TableGroup::kNoSlot);
      std::vector<uint64_t> addresses(unique.size());
      const TableGroup group({{table.get(), t, 0}}, pool);
      const int64_t starts[] = {0, static_cast<int64_t>(unique.size())};
      const TableGroup::Batch batch{starts, unique.data(), unique_slots.data()};
      int64_t born = 0;
      CHECK_EQ(group.Pin(batch, addresses.data()), 0u);
      const bool at_once = random() % 2 == 0;
      group.Commit(batch, 100, refused.data(), at_once, outcomes.data(), old_step.data(), &born);
      if (!at_once) group.Unpin(batch);
      for (uint32_t slot : unique_slots) CHECK_EQ(slot, TableGroup::kNoSlot);
      for (size_t i = 0; i < unique.size(); ++i) {
        Record& record = model[t][unique[i]];
        uint32_t count = 0;
        uint32_t step = 100;
        std::memcpy(&count, &record[kCount], 4);
        const TableGroup::Outcome expected = count != 0 ? TableGroup::kStamped
                                             : refused[i] != 0 ? TableGroup::kNotStored : TableGroup::kBorn;
        CHECK_EQ(int{outcomes[i]}, int{expected});
        born -= expected == TableGroup::kBorn;
        if (expected == TableGroup::kNotStored) {
          record = FirstValues(t, unique[i]);
          continue;
        }
        ++count;
        std::memcpy(&record[kCount], &count, 4);
        std::memcpy(&record[kCount + 4], &step, 4);
      }
      CHECK_EQ(born, 0);
    } else if (kind == 4) {
      const size_t want = random() % 200;
      std::vector<int64_t> victims(want);
      std::vector<std::byte> records(want * kRecord);
      std::vector<uint8_t> need(want);
      const VictimOrder order{random() % 2 == 0, 0, 100};
      const size_t got = table->TakeVictims(t, want, order, victims.data(), records.data(), need.data());
      CHECK(got >= std::min(want, model[t].size()));
      for (size_t i = 0; i < got; ++i) {
        CHECK(model[t].count(victims[i]) == 1);
        if (need[i] != 0) CHECK(std::memcmp(&records[i * kRecord], model[t][victims[i]].data(), kRecord) == 0);
      }
      const size_t released = table->ReleaseClean(t, victims.data(), got);
      const std::set<int64_t> once(victims.begin(), victims.begin() + static_cast<ptrdiff_t>(got));
      CHECK_EQ(released, once.size());
      for (int64_t id : once) model[t].erase(id);
    } else {
      std::vector<std::byte> out(n * kRecord, std::byte{9});
      const bool committed_only = random() % 2 == 0;
      table->Find(t, ids.data(), n, committed_only, 0, kRecord, out.data(), kRecord, flags.data());
      for (size_t i = 0; i < n; ++i) {
        auto found = model[t].find(ids[i]);
        bool there = found != model[t].end();
        uint32_t count = 0;
        if (there) std::memcpy(&count, &found->second[kCount], 4);
        if (committed_only && count == 0) there = false;
        CHECK_EQ(flags[i] == 1, there);
        const Record expected = there ? found->second : Record(kRecord, std::byte{0});
        CHECK(std::memcmp(&out[i * kRecord], expected.data(), kRecord) == 0);
      }
    }
    CHECK_EQ(table->num_rows(t), model[t].size());
    CHECK_EQ(table->arena().rows_taken(), model[0].size() + model[1].size());
  }
}

void TestFull() {
  auto table = OpenTable(100, 2, 1);
  std::vector<int64_t> ids(101), slots(101);
  std::vector<uint8_t> flags(101);
  for (int64_t i = 0; i < 101; ++i) ids[static_cast<size_t>(i)] = i;
  const Status full = table->FindOrInsert(0, ids.data(), 101, true, slots.data(), flags.data());
  CHECK(full.code() == Code::kFull);
  CHECK_EQ(table->num_rows(0), 0u);
  ids[100] = 7;  // an id twice: a hundred rows, and they fit
  CHECK_OK(table->FindOrInsert(0, ids.data(), 101, true, slots.data(), flags.data()));
  CHECK_EQ(slots[7], slots[100]);
  CHECK_OK(table->FindOrInsert(0, ids.data(), 101, false, slots.data(), flags.data()));
  ids[0] = 1000;
  CHECK(table->FindOrInsert(0, ids.data(), 101, false, slots.data(), flags.data()).code() == Code::kFull);
  CHECK_EQ(table->num_rows(0), 100u);
  // All are pinned: nobody can leave. 200 more pins pass the mark's own counter.
  std::vector<int64_t> victims(10);
  std::vector<std::byte> records(10 * kRecord);
  CHECK_EQ(table->TakeVictims(0, 10, {}, victims.data(), records.data(), flags.data()), 0u);
  const int64_t seven = 7;
  int64_t slot = -1;
  for (int i = 0; i < 200; ++i) table->FindSlots(0, &seven, 1, true, &slot);
  const uint8_t clean = 0;
  for (int i = 0; i < 202; ++i) CHECK_OK(table->Unpin(&slot, 1, &clean));
  CHECK(table->Unpin(&slot, 1, &clean).code() == Code::kInvalid);
  CHECK(table->TakeVictims(0, 10, {}, victims.data(), records.data(), flags.data()) > 0);
  CHECK_EQ(victims[0], 7);
}

void TestExpiry() {
  auto table = OpenTable(1000, 1, 1);
  std::vector<int64_t> ids{1, 2, 3};
  std::vector<std::byte> records;
  for (uint32_t step : {5u, 10u, 15u}) {
    const Record record = MakeRecord(step, 1, step);
    records.insert(records.end(), record.begin(), record.end());
  }
  std::vector<uint8_t> flags(3);
  CHECK_OK(table->InsertOrAssign(0, ids.data(), records.data(), kRecord, 3, flags.data()));
  auto rule = std::make_shared<ExpiryRule>();
  rule->live_from_step = 10;
  table->SetExpiry(0, rule);
  std::vector<std::byte> out(3 * kRecord);
  table->Find(0, ids.data(), 3, true, 0, kRecord, out.data(), kRecord, flags.data());
  CHECK((flags == std::vector<uint8_t>{0, 1, 1}));
  const TableGroup group({{table.get(), 0, 0}}, std::make_shared<ThreadPool>(1));
  const int64_t starts[] = {0, 3};
  std::vector<uint32_t> slots(3, TableGroup::kNoSlot);
  std::vector<uint64_t> addresses(3);
  const TableGroup::Batch batch{starts, ids.data(), slots.data()};
  CHECK_EQ(group.Pin(batch, addresses.data()), 0u);
  CHECK_EQ(group.Begin(batch), 1u);
  group.Unpin(batch);
  table->Find(0, ids.data(), 1, false, 0, kRecord, out.data(), kRecord, flags.data());
  CHECK(std::memcmp(out.data(), FirstValues(0, 1).data(), kRecord) == 0);
  CHECK_EQ(table->Drop(0, false), 1u);
  CHECK_EQ(table->num_rows(0), 2u);
}

// Writers assign whole rows whose words are equal; readers check that they are; an evictor sends rows away.
void TestSeveralCallers() {
  auto table = OpenTable(4000, 4, 1);
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> seen{0};
  std::vector<std::thread> threads;
  for (int caller = 0; caller < 2; ++caller) {
    threads.emplace_back([&, caller] {
      std::mt19937_64 random(static_cast<uint64_t>(caller));
      std::vector<std::byte> records(256 * kRecord);
      std::vector<uint8_t> fresh(256);
      // On a busy machine the readers may come late.
      for (int round = 0; round < 150 || (seen == 0 && round < 1'000'000); ++round) {
        const std::vector<int64_t> ids = DrawIds(random, 256);
        for (size_t i = 0; i < 256; ++i) {
          const Record record = MakeRecord(random(), 1, 1);
          std::memcpy(&records[i * kRecord], record.data(), kRecord);
        }
        CHECK_OK(table->InsertOrAssign(0, ids.data(), records.data(), kRecord, 256, fresh.data()));
      }
      stop = true;
    });
  }
  for (int caller = 2; caller < 4; ++caller) {
    threads.emplace_back([&, caller] {
      std::mt19937_64 random(static_cast<uint64_t>(caller));
      std::vector<std::byte> out(256 * kRecord);
      std::vector<uint8_t> found(256);
      while (!stop) {
        const std::vector<int64_t> ids = DrawIds(random, 256);
        table->Find(0, ids.data(), 256, true, 0, kRecord, out.data(), kRecord, found.data());
        for (size_t i = 0; i < 256; ++i) {
          if (found[i] == 0) continue;
          for (uint32_t at = 4; at < kCount; at += 4) {
            CHECK(std::memcmp(&out[i * kRecord], &out[i * kRecord + at], 4) == 0);
          }
          ++seen;
        }
      }
    });
  }
  threads.emplace_back([&] {
    std::vector<int64_t> victims(64);
    std::vector<std::byte> records(64 * kRecord);
    std::vector<uint8_t> need(64);
    while (!stop) {
      const size_t got = table->TakeVictims(0, 64, {}, victims.data(), records.data(), need.data());
      table->ReleaseClean(0, victims.data(), got);
    }
  });
  for (std::thread& thread : threads) thread.join();
  CHECK(seen > 0);
}

}  // namespace
}  // namespace stepwell

int main() {
  using namespace stepwell;
  for (uint64_t seed = 0; seed < 4; ++seed) TestAgainstMap(seed, seed % 2 == 0 ? 1 : 4);
  TestFull();
  TestExpiry();
  TestSeveralCallers();
  return 0;
}
