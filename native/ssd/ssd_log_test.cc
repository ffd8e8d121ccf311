// The log against a std::map: random verbs over several tables, with compaction running, reopened at its last Sync,
// through io_uring and pread, with records that fit a page, straddle pages and need many pages.
#include "ssd/ssd_log.h"

#include <cstdio>
#include <cstring>
#include <map>
#include <random>
#include <set>

#include "ssd/dir_test.h"
#include "tests/check.h"

using namespace stepwell;
using namespace stepwell::ssd_test;

namespace {

using Key = std::pair<uint32_t, int64_t>;
using Rows = std::map<Key, std::vector<std::byte>>;

struct Model {
  SsdOptions options;
  std::unique_ptr<SsdLog> log;
  Rows now, synced;
  std::mt19937_64 random;
  uint32_t step = 0;

  int64_t RandomId() {
    static const int64_t special[] = {0, -1, INT64_MIN, INT64_MAX, 1, 1ll << 32};
    const uint64_t r = random();
    if (r % 50 == 0) return special[r / 50 % 6];
    return static_cast<int64_t>(r % 3000) * 7919 - 4000;
  }
  uint32_t RandomTable() { return random() % 10 == 0 ? 32766 : static_cast<uint32_t>(random() % 3); }

  void Append() {
    const uint32_t table = RandomTable();
    const size_t n = random() % 8 == 0 ? random() % 1500 : random() % 40;
    std::vector<int64_t> ids(n);
    const size_t stride = options.record_bytes + random() % 16;
    std::vector<std::byte> rows(n * stride + 1);
    ++step;
    for (size_t i = 0; i < n; ++i) {
      ids[i] = RandomId();
      MakeRow(rows.data() + i * stride, options.record_bytes, ids[i], static_cast<uint32_t>(random() % 9 + 1), step);
    }
    CHECK_OK(log->Append(table, ids.data(), rows.data(), stride, n));
    for (size_t i = 0; i < n; ++i) {
      now[{table, ids[i]}].assign(rows.data() + i * stride, rows.data() + i * stride + options.record_bytes);
    }
  }

  void Erase() {
    const uint32_t table = RandomTable();
    const size_t n = random() % 60;
    std::vector<int64_t> ids(n);
    for (auto& id : ids) id = RandomId();
    std::vector<uint8_t> erased(n + 1);
    CHECK_OK(log->Erase(table, ids.data(), n, erased.data()));
    std::set<int64_t> seen;
    for (size_t i = n; i-- > 0;) {
      const bool first = seen.insert(ids[i]).second;
      CHECK_EQ(static_cast<int>(erased[i]), static_cast<int>(first && now.count({table, ids[i]}) == 1));
    }
    for (const int64_t id : ids) now.erase({table, id});
  }

  void Find(size_t n) {
    const uint32_t table = RandomTable();
    std::vector<int64_t> ids(n);
    for (auto& id : ids) id = RandomId();
    const size_t stride = options.record_bytes + 8;
    std::vector<std::byte> out(n * stride + 1, std::byte{0xee});
    std::vector<uint8_t> found(n + 1);
    std::vector<uint32_t> locations(n + 1), located(n + 1);
    CHECK_OK(log->Find(table, ids.data(), n, out.data(), stride, found.data(), locations.data()));
    CHECK_OK(log->Locate(table, ids.data(), n, located.data()));
    const std::vector<std::byte> zeros(options.record_bytes);
    for (size_t i = 0; i < n; ++i) {
      const auto at = now.find({table, ids[i]});
      CHECK_EQ(static_cast<int>(found[i]), static_cast<int>(at != now.end()));
      CHECK_EQ(located[i] != SsdLog::kAbsent, at != now.end());
      const std::vector<std::byte>& expected = at == now.end() ? zeros : at->second;
      CHECK(std::memcmp(out.data() + i * stride, expected.data(), options.record_bytes) == 0);
      CHECK(out[i * stride + options.record_bytes] == std::byte{0xee});
    }
  }

  void CheckAll() {
    for (const auto& [table, rows] : log->stats().rows_per_table) {
      size_t expected = 0;
      for (const auto& [key, row] : now) expected += key.first == table;
      CHECK_EQ(rows, expected);
    }
    CHECK_EQ(log->stats().live_records, now.size());
    Rows scanned;
    CHECK_OK(log->Scan(-1, [&](const ScanBatch& batch) {
      for (size_t i = 0; i < batch.n; ++i) {
        const std::byte* row = batch.records + i * options.record_bytes;
        const bool is_new =
            scanned.try_emplace({batch.table, batch.ids[i]}, std::vector<std::byte>(row, row + options.record_bytes))
                .second;
        CHECK(is_new);
      }
      return Status::Ok();
    }));
    CHECK(scanned == now);
  }

  void Open() { CHECK_OK(SsdLog::Open(options, &log)); }
  void Reopen() {
    CHECK_OK(log->Close());
    log.reset();
    Open();
    now = synced;
    CHECK_EQ(log->stats().warnings.size(), 0u);
  }
};

void Random(uint32_t record_bytes, IoKind io, bool background, int rounds, uint64_t seed, ThreadPool* pool) {
  TestDir dir;
  Model model;
  model.options.directory = dir.path();
  model.options.record_bytes = record_bytes;
  model.options.segment_bytes = record_bytes > 4000 ? 4 << 20 : 256 << 10;
  model.options.write_buffer_bytes = 1 << 20;
  model.options.io = io;
  model.options.pool = pool;
  model.options.background_compaction = background;
  model.random.seed(seed);
  model.Open();
  for (int round = 0; round < rounds; ++round) {
    const uint64_t verb = model.random() % 100;
    if (verb < 45) model.Append();
    else if (verb < 60) model.Erase();
    else if (verb < 85) model.Find(model.random() % 10 == 0 ? 2000 : 50);
    else if (verb < 93) {
      CHECK_OK(model.log->Sync());
      model.synced = model.now;
    } else if (verb < 95) {
      const bool all = model.random() % 2 == 0;
      CHECK_OK(model.log->Compact(all));
      if (all) model.synced = model.now;
    } else if (verb < 97) {
      if (model.log->stats().implicit_syncs > 0) continue;  // the state on disk is then later than the last Sync
      model.Reopen();
    } else if (verb < 98) {
      TestDir target;
      CHECK_OK(model.log->LinkTo(target.path()));
      model.synced = model.now;
      Model copy;
      copy.options = model.options;
      copy.options.directory = target.path();
      copy.now = model.now;
      copy.Open();
      copy.CheckAll();
      CHECK_OK(copy.log->Close());
      CheckReport report;
      CHECK_OK(CheckDir(target.path(), false, &report));
      CHECK_EQ(report.problems.size(), 0u);
      CHECK_EQ(report.live_rows, model.now.size());
    } else {
      model.CheckAll();
    }
  }
  model.CheckAll();
  CHECK_OK(model.log->Sync());
  model.synced = model.now;
  model.Reopen();
  model.CheckAll();
  CHECK_OK(model.log->Compact(true));
  model.CheckAll();
  const SsdStats stats = model.log->stats();
  CHECK(stats.stale_records <= stats.segments * (4080 / (record_bytes + 16) + 8));  // blocks' ends only
  model.Reopen();
  model.CheckAll();
}

}  // namespace

int main() {
  ThreadPool pool(3);
  for (const IoKind io : {IoKind::kUring, IoKind::kPread}) {
    for (const uint32_t bytes : {8u, 272u, 1000u, 2300u, 5000u, 70000u}) {
      Random(bytes, io, bytes != 1000, bytes > 6000 ? 60 : 400, bytes, bytes == 8 ? nullptr : &pool);
    }
  }
  return 0;
}
