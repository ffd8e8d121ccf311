// What a log goes through in its life: processes killed at any moment, many callers at once, budgets that are too
// small, rows that expire, ids that come and go for ever.
#include <dirent.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <map>
#include <random>
#include <thread>

#include "ssd/ssd_log.h"
#include "ssd/dir_test.h"

using namespace stepwell;
using namespace stepwell::ssd_test;

namespace {

constexpr uint32_t kBytes = 100;

SsdOptions Options(const std::string& directory) {
  SsdOptions options;
  options.directory = directory;
  options.record_bytes = kBytes;
  options.segment_bytes = 128 << 10;
  options.write_buffer_bytes = 1 << 20;
  return options;
}

// ---- Crash. The child does numbered operations, each a function of its number, and reports what Sync acknowledged.
// The parent kills it, opens the log, and must find exactly the state after some operation not before the last
// acknowledged one.

struct Operation {
  bool erase, sync;
  uint32_t table, step;
  std::vector<int64_t> ids;
};

Operation OperationOf(uint32_t number) {
  std::mt19937_64 random(number);
  Operation operation;
  operation.erase = random() % 4 == 0;
  operation.sync = random() % 5 == 0;
  operation.table = static_cast<uint32_t>(random() % 2);
  operation.step = number;
  operation.ids.resize(random() % 400 + 1);
  for (auto& id : operation.ids) id = static_cast<int64_t>(random() % 2000) - 1000;
  return operation;
}

Status Do(SsdLog& log, const Operation& operation) {
  if (operation.erase) return log.Erase(operation.table, operation.ids.data(), operation.ids.size(), nullptr);
  std::vector<std::byte> rows(operation.ids.size() * kBytes);
  for (size_t i = 0; i < operation.ids.size(); ++i) {
    MakeRow(rows.data() + i * kBytes, kBytes, operation.ids[i], 1, operation.step);
  }
  return log.Append(operation.table, operation.ids.data(), rows.data(), kBytes, operation.ids.size());
}

using State = std::map<std::pair<uint32_t, int64_t>, uint32_t>;  // the step of each row

void Apply(const Operation& operation, State* state) {
  for (const int64_t id : operation.ids) {
    if (operation.erase) {
      state->erase({operation.table, id});
    } else {
      (*state)[{operation.table, id}] = operation.step;
    }
  }
}

State Read(SsdLog& log) {
  State state;
  CHECK_OK(log.Scan(-1, [&](const ScanBatch& batch) {
    for (size_t i = 0; i < batch.n; ++i) {
      CHECK(IsRow(batch.records + i * kBytes, kBytes, batch.ids[i]));
      uint32_t step;
      std::memcpy(&step, batch.records + i * kBytes + 4, 4);
      CHECK((state.emplace(std::pair(batch.table, batch.ids[i]), step).second));
    }
    return Status::Ok();
  }));
  return state;
}

void Crash(int rounds) {
  TestDir dir;
  const SsdOptions options = Options(dir.path());
  State state;
  uint32_t done = 0;  // operations that `state` has
  std::mt19937_64 random(3);
  uint64_t steps_seen = 0;
  for (int round = 0; round < rounds; ++round) {
    int pipe_ends[2];
    CHECK_EQ(pipe(pipe_ends), 0);
    const pid_t child = fork();
    if (child == 0) {
      std::unique_ptr<SsdLog> log;
      CHECK_OK(SsdLog::Open(options, &log));
      for (uint32_t number = done + 1;; ++number) {
        const Operation operation = OperationOf(number);
        CHECK_OK(Do(*log, operation));
        if (!operation.sync) continue;
        CHECK_OK(log->Sync());
        CHECK_EQ(write(pipe_ends[1], &number, sizeof(number)), static_cast<ssize_t>(sizeof(number)));
      }
    }
    close(pipe_ends[1]);
    usleep(static_cast<useconds_t>(random() % 120000));
    kill(child, SIGKILL);
    int status;
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK(WIFSIGNALED(status));  // else a check failed in the child
    uint32_t acknowledged = done;
    while (read(pipe_ends[0], &acknowledged, sizeof(acknowledged)) == static_cast<ssize_t>(sizeof(acknowledged))) {
    }
    close(pipe_ends[0]);

    SsdOptions quiet = options;
    quiet.background_compaction = false;
    std::unique_ptr<SsdLog> log;
    CHECK_OK(SsdLog::Open(quiet, &log));
    CHECK_EQ(log->stats().warnings.size(), 0u);
    const State found = Read(*log);
    while (done < acknowledged) Apply(OperationOf(++done), &state);
    int tries = 0;
    while (found != state) {
      CHECK(++tries < 5000);
      Apply(OperationOf(++done), &state);
    }
    steps_seen += acknowledged;
    CHECK_OK(log->Close());
    if (round % 5 == 0) {
      CheckReport report;
      CHECK_OK(CheckDir(dir.path(), false, &report));
      CHECK_EQ(report.problems.size(), 0u);
      CHECK_EQ(report.live_rows, state.size());
    }
  }
  CHECK(steps_seen > 0);
}

// ---- Many callers. Every writer owns a range of ids and knows its rows; readers check that a row is never half of one.

void ManyCallers(IoKind io, int rounds) {
  TestDir dir;
  SsdOptions options = Options(dir.path());
  options.io = io;
  ThreadPool pool(4);
  options.pool = &pool;
  std::unique_ptr<SsdLog> log;
  CHECK_OK(SsdLog::Open(options, &log));
  constexpr int64_t kIds = 4000;
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  std::vector<std::map<int64_t, uint32_t>> owned(2);
  std::atomic<int> writers{2};
  for (int writer = 0; writer < 2; ++writer) {
    threads.emplace_back([&, writer] {
      std::mt19937_64 random(static_cast<uint64_t>(writer) + 1);
      for (uint32_t step = 1; step <= static_cast<uint32_t>(rounds); ++step) {
        std::vector<int64_t> ids(random() % 3000);
        for (auto& id : ids) id = writer * kIds + static_cast<int64_t>(random() % kIds);
        if (random() % 4 == 0) {
          ids.resize(ids.size() / 4);
          CHECK_OK(log->Erase(0, ids.data(), ids.size(), nullptr));
          for (const int64_t id : ids) owned[writer].erase(id);
        } else {
          std::vector<std::byte> rows(ids.size() * kBytes);
          for (size_t i = 0; i < ids.size(); ++i) MakeRow(rows.data() + i * kBytes, kBytes, ids[i], 1, step);
          CHECK_OK(log->Append(0, ids.data(), rows.data(), kBytes, ids.size()));
          for (const int64_t id : ids) owned[writer][id] = step;
        }
      }
      --writers;
    });
  }
  for (int reader = 0; reader < 2; ++reader) {
    threads.emplace_back([&, reader] {
      std::mt19937_64 random(static_cast<uint64_t>(reader) + 77);
      std::vector<int64_t> ids(2000);
      std::vector<std::byte> out(ids.size() * kBytes);
      std::vector<uint8_t> found(ids.size());
      while (!stop) {
        for (auto& id : ids) id = static_cast<int64_t>(random() % (2 * kIds));
        CHECK_OK(log->Find(0, ids.data(), ids.size(), out.data(), kBytes, found.data()));
        for (size_t i = 0; i < ids.size(); ++i) CHECK(found[i] == 0 || IsRow(out.data() + i * kBytes, kBytes, ids[i]));
        (void)log->stats();
      }
    });
  }
  threads.emplace_back([&] {
    for (int i = 0; !stop; ++i) {
      CHECK_OK(log->Sync());
      if (i % 8 == 3) CHECK_OK(log->Compact(i % 16 == 3));
      if (i % 8 == 5) {
        TestDir target;
        CHECK_OK(log->LinkTo(target.path()));
        SsdOptions copy_options = options;
        copy_options.directory = target.path();
        std::unique_ptr<SsdLog> copy;
        CHECK_OK(SsdLog::Open(copy_options, &copy));
        (void)Read(*copy);
        CHECK_EQ(copy->stats().warnings.size(), 0u);
      }
    }
  });
  while (writers > 0) usleep(1000);
  stop = true;
  for (auto& thread : threads) thread.join();
  State expected;
  for (const auto& rows : owned) {
    for (const auto& [id, step] : rows) expected[{0, id}] = step;
  }
  CHECK(Read(*log) == expected);
  CHECK_OK(log->Sync());
  CHECK_OK(log->Close());
  CHECK_OK(SsdLog::Open(options, &log));
  CHECK(Read(*log) == expected);
  CHECK_EQ(log->stats().warnings.size(), 0u);
}

// ---- Space.

uint64_t DiskUse(const std::string& path) {
  uint64_t sum = 0;
  DIR* directory = opendir(path.c_str());
  while (const dirent* entry = readdir(directory)) {
    struct stat info;
    if (stat((path + "/" + entry->d_name).c_str(), &info) == 0 && S_ISREG(info.st_mode)) {
      sum += static_cast<uint64_t>(info.st_blocks) * 512;
    }
  }
  closedir(directory);
  return sum;
}

Status AppendIds(SsdLog& log, const std::vector<int64_t>& ids, uint32_t step) {
  std::vector<std::byte> rows(ids.size() * kBytes);
  for (size_t i = 0; i < ids.size(); ++i) MakeRow(rows.data() + i * kBytes, kBytes, ids[i], 1, step);
  return log.Append(0, ids.data(), rows.data(), kBytes, ids.size());
}

void Budget(bool background) {
  TestDir dir;
  SsdOptions options = Options(dir.path());
  options.budget_bytes = 2 << 20;
  options.background_compaction = background;
  std::unique_ptr<SsdLog> log;
  CHECK_OK(SsdLog::Open(options, &log));
  std::atomic<bool> stop{false};
  std::thread watch([&] {
    while (!stop) {
      CHECK(DiskUse(dir.path()) <= options.budget_bytes);
      usleep(200);
    }
  });
  std::mt19937_64 random(9);
  State expected;
  const auto overwrite = [&](int64_t num_ids, uint32_t step) {
    std::vector<int64_t> ids(700);
    for (auto& id : ids) id = static_cast<int64_t>(random() % static_cast<uint64_t>(num_ids));
    CHECK_OK(AppendIds(*log, ids, step));
    for (const int64_t id : ids) expected[{0, id}] = step;
  };
  for (uint32_t step = 1; step <= 300; ++step) overwrite(7000, step);  // nobody calls Sync
  CHECK(Read(*log) == expected);
  CHECK(log->stats().implicit_syncs > 0);
  // New rows until it is full: then nothing has changed, and after some are erased there is room again.
  Status full;
  int64_t next = 100000;
  for (int i = 0; i < 200 && full.ok(); ++i) {
    std::vector<int64_t> ids(500);
    for (auto& id : ids) id = next++;
    full = AppendIds(*log, ids, 400);
    if (full.ok()) {
      for (const int64_t id : ids) expected[{0, id}] = 400;
    }
  }
  CHECK_EQ(static_cast<int>(full.code()), static_cast<int>(Code::kFull));
  CHECK(expected.size() * kBytes > options.budget_bytes / 2);
  CHECK(Read(*log) == expected);
  std::vector<int64_t> erased;
  for (int64_t id = 0; id < 4000; ++id) {
    erased.push_back(id);
    expected.erase({0, id});
    if (erased.size() == 20 || id == 3999) {
      CHECK_OK(log->Erase(0, erased.data(), erased.size(), nullptr));
      erased.clear();
    }
  }
  for (uint32_t step = 500; step <= 520; ++step) overwrite(500, step);
  CHECK(Read(*log) == expected);
  stop = true;
  watch.join();
  CHECK_OK(log->Sync());
  CHECK(log->stats().peak_disk_bytes <= options.budget_bytes);
  CHECK_OK(log->Close());
  CHECK_OK(SsdLog::Open(options, &log));
  CHECK(Read(*log) == expected);
}

// Ids that come and go beside rows that stay: tombstones must not pile up.
void Churn() {
  TestDir dir;
  SsdOptions options = Options(dir.path());
  options.background_compaction = false;
  std::unique_ptr<SsdLog> log;
  CHECK_OK(SsdLog::Open(options, &log));
  State expected;
  std::vector<int64_t> ids(20000);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int64_t>(i);
  CHECK_OK(AppendIds(*log, ids, 1));
  for (const int64_t id : ids) expected[{0, id}] = 1;
  ids.resize(2000);
  for (uint32_t round = 0; round < 60; ++round) {
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = 1000000 + round * 10000 + static_cast<int64_t>(i);
    CHECK_OK(AppendIds(*log, ids, 2 + round));
    CHECK_OK(log->Erase(0, ids.data(), ids.size(), nullptr));
    CHECK_OK(log->Sync());
    CHECK_OK(log->Compact(false));
    if (round % 20 == 7) {
      CHECK_OK(log->Close());
      CHECK_OK(SsdLog::Open(options, &log));
    }
  }
  CHECK(Read(*log) == expected);
  CHECK(log->stats().disk_bytes <= 2 * log->stats().live_bytes);
  CHECK_OK(log->Compact(true));
  CHECK(log->stats().disk_bytes * 5 <= 9 * log->stats().live_bytes);
}

void Expiry() {
  TestDir dir;
  SsdOptions options = Options(dir.path());
  options.background_compaction = false;
  std::unique_ptr<SsdLog> log;
  CHECK_OK(SsdLog::Open(options, &log));
  std::vector<int64_t> ids(500);
  State expected;
  for (uint32_t step = 1; step <= 20; ++step) {
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = step * 1000 + static_cast<int64_t>(i);
    CHECK_OK(AppendIds(*log, ids, step));
    if (step >= 15) {
      for (const int64_t id : ids) expected[{0, id}] = step;
    }
  }
  CHECK_OK(log->Sync());
  auto rule = std::make_shared<ExpiryRule>();
  rule->live_from_step = 15;
  CHECK_OK(log->SetExpiry(0, rule));
  CHECK(Read(*log) == expected);
  const int64_t probe[2] = {14001, 15001};
  std::vector<std::byte> out(2 * kBytes, std::byte{1});
  uint8_t found[2];
  CHECK_OK(log->Find(0, probe, 2, out.data(), kBytes, found));
  CHECK(found[0] == 0 && found[1] == 1 && out[3] == std::byte{0} && IsRow(out.data() + kBytes, kBytes, 15001));
  uint64_t dropped = 0;
  CHECK_OK(log->DropExpired(0, &dropped));
  CHECK(dropped > 5000 && dropped <= 7000);  // the open segment's wait
  CHECK_OK(log->Compact(true));
  CHECK(Read(*log) == expected);
  CHECK_EQ(log->stats().live_records, expected.size());
  CHECK(log->stats().disk_bytes < 3 * log->stats().live_bytes);
  CHECK_OK(log->Close());
  CHECK_OK(SsdLog::Open(options, &log));
  CHECK(Read(*log) == expected);
}

}  // namespace

int main(int argc, char** argv) {
  const int crashes = argc > 1 ? std::atoi(argv[1]) : 20;
  Crash(crashes);
  Expiry();
  Churn();
  Budget(false);
  Budget(true);
  ManyCallers(IoKind::kUring, 60);
  ManyCallers(IoKind::kPread, 60);
  return 0;
}
