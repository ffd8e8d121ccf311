// Overlays as stepwell.store.epochs builds them, on the core alone: indexes of their own over the slots of one layout,
// published by one atomic number, merged into the base and dropped while several callers read. A row's words all hold
// the epoch it was written in; a reader must see whole rows, and one epoch for every row of a call.
#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>

#include "dram/dram_table.h"
#include "tests/check.h"

namespace stepwell {
namespace {

constexpr uint32_t kRecord = 48;
constexpr uint32_t kCount = 36;
constexpr size_t kRows = 512;
constexpr int kEpochs = 40;

DramTableInit Init() {
  DramTableInit init;
  init.key = 1;
  init.program = {static_cast<int>(InitKind::kZeros), 0, 0, 0, 0};
  init.dim = 8;
  init.blank.assign(kRecord, std::byte{0});
  return init;
}

void Write(DramTable& table, uint32_t number, const std::vector<int64_t>& ids, uint32_t epoch) {
  std::vector<std::byte> records(ids.size() * kRecord);
  for (size_t i = 0; i < ids.size(); ++i) {
    for (uint32_t at = 0; at < kRecord; at += 4) std::memcpy(&records[i * kRecord + at], &epoch, 4);
  }
  std::vector<uint8_t> fresh(ids.size());
  CHECK_OK(table.InsertOrAssign(number, ids.data(), records.data(), kRecord, ids.size(), fresh.data()));
}

// Who reads at which epoch; epoch e lies in index number e until it is merged into index 0.
struct Readers {
  std::mutex mutex;
  std::map<uint32_t, int> at;
  uint32_t epoch = 1;

  uint32_t Enter() {
    std::lock_guard<std::mutex> lock(mutex);
    ++at[epoch];
    return epoch;
  }
  void Leave(uint32_t mine) {
    std::lock_guard<std::mutex> lock(mutex);
    if (--at[mine] == 0) at.erase(mine);
  }
  bool NobodyBefore(uint32_t newer) {
    std::lock_guard<std::mutex> lock(mutex);
    return at.empty() || at.begin()->first >= newer;
  }
};

void Read(DramTable& table, Readers& readers, const std::vector<int64_t>& ids, std::atomic<bool>& stop) {
  std::vector<std::byte> out(ids.size() * kRecord);
  std::vector<uint8_t> found(ids.size());
  while (!stop) {
    const uint32_t epoch = readers.Enter();
    table.Find(epoch, ids.data(), ids.size(), false, 0, kRecord, out.data(), kRecord, found.data());
    readers.Leave(epoch);
    for (size_t i = 0; i < ids.size(); ++i) {
      CHECK(found[i] == 1);
      for (uint32_t at = 0; at < kRecord; at += 4) {
        CHECK(std::memcmp(&out[i * kRecord + at], &epoch, 4) == 0);
      }
    }
  }
}

void TestReadersNeverSeeTwoEpochs() {
  std::unique_ptr<DramTable> table;
  CHECK_OK(DramTable::Open({kRecord, kCount, kRows * 4}, std::make_shared<ThreadPool>(4), &table));
  std::vector<int64_t> ids(kRows);
  for (size_t i = 0; i < kRows; ++i) ids[i] = static_cast<int64_t>(i * 7919) - 1000;
  uint32_t number = 0;
  CHECK_OK(table->AddTable(Init(), &number));
  Write(*table, 0, ids, 0);
  CHECK_OK(table->AddTable(Init(), &number));
  Write(*table, number, ids, 1);
  Readers readers;
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) threads.emplace_back([&] { Read(*table, readers, ids, stop); });
  for (uint32_t epoch = 2; epoch <= kEpochs; ++epoch) {
    CHECK_OK(table->AddTable(Init(), &number));
    CHECK_EQ(number, epoch);
    Write(*table, number, ids, epoch);
    {
      std::lock_guard<std::mutex> lock(readers.mutex);
      readers.epoch = epoch;
    }
    while (!readers.NobodyBefore(epoch)) std::this_thread::yield();
    Write(*table, 0, ids, epoch - 1);  // merged
    CHECK_EQ(table->Drop(epoch - 1, true), kRows);
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  CHECK_EQ(table->arena().rows_taken(), 2 * kRows);
}

}  // namespace
}  // namespace stepwell

int main() {
  stepwell::TestReadersNeverSeeTwoEpochs();
  return 0;
}
