// DramTable: the rows of one layout in memory, for any number of tables. Every verb takes a batch of ids of one table,
// runs on all threads of the pool, and holds the lock of one shard of ids at a time: callers meet row by row, never
// half a row.
//
// A row whose count is 0 was placed but never committed: it is in nobody's state yet. Verbs that read state (Find with
// committed_only, ForShard) do not see it, nor rows that the table's expiry rule names.
//
// Residence below is the caller's business: TakeVictims hands out copies of dirty rows, ReleaseClean drops rows that
// nobody made dirty or pinned since.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "dram/row_arena.h"
#include "rows/expiry.h"
#include "rows/initializer.h"
#include "stepwell/status.h"
#include "util/id_index.h"
#include "util/thread_pool.h"

namespace stepwell {

class ShardOrder;
class TableGroup;

struct DramOptions {
  uint32_t record_bytes = 0;  // the stride, too: a multiple of 16
  uint32_t count_offset = 0;  // of the u32 count; the u32 last step follows it
  uint64_t max_rows = 0;
};

// How the table's new rows begin.
struct DramTableInit {
  uint64_t key = 0;  // of the generator: from the seed and the table's name
  InitProgram program{};
  uint32_t dim = 0;
  int weight_dtype = 0;
  std::vector<std::byte> blank;  // record_bytes: zero weight, the optimizer's first state, stamps 0
};

struct VictimOrder {
  bool by_count = false;  // LFU: the smallest decayed count first; else the smallest last step first
  uint32_t decay_steps = 0;
  uint32_t now = 0;
};

class DramTable {
 public:
  static Status Open(const DramOptions& options, std::shared_ptr<ThreadPool> pool, std::unique_ptr<DramTable>* table);

  // Any thread, at any time; other threads may use the table once they know its number.
  Status AddTable(DramTableInit init, uint32_t* number);
  size_t num_tables() const { return num_tables_.load(std::memory_order_acquire); }
  void SetExpiry(uint32_t table, std::shared_ptr<const ExpiryRule> rule);

  const DramOptions& options() const { return options_; }
  RowArena& arena() { return *arena_; }

  // Copies bytes [offset, offset + length) of each row to out + i * out_stride and sets found[i]; an absent row's
  // bytes become 0.
  void Find(uint32_t table, const int64_t* ids, size_t n, bool committed_only, uint32_t offset, uint32_t length,
            std::byte* out, size_t out_stride, uint8_t* found);
  // slots[i] = where the row lies, or -1. Unpinned slots may be evicted at any time.
  void FindSlots(uint32_t table, const int64_t* ids, size_t n, bool pin, int64_t* slots);

  // Finds each row or places its first values, uncommitted. fresh[i] is 1 at the first position of each placed id.
  // kFull, with nothing changed, when there is no room for all of them.
  Status FindOrInsert(uint32_t table, const int64_t* ids, size_t n, bool pin, int64_t* slots, uint8_t* fresh);
  // Places clean records of absent ids; a row that is there stays as it is.
  Status InsertClean(uint32_t table, const int64_t* ids, const std::byte* records, size_t stride, size_t n, bool pin,
                     int64_t* slots, uint8_t* fresh);
  // Writes whole records, dirty; of equal ids the last one wins.
  Status InsertOrAssign(uint32_t table, const int64_t* ids, const std::byte* records, size_t stride, size_t n,
                        uint8_t* fresh);
  // Removes rows; one that is pinned goes back to its first values, uncommitted, in its slot. erased[i]: it was
  // committed and live.
  void Erase(uint32_t table, const int64_t* ids, size_t n, uint8_t* erased);

  // kInvalid, naming the first such slot, when one has no pin; the others are unpinned.
  Status Unpin(const int64_t* slots, size_t n, const uint8_t* dirty);

  // Picks up to `want` unpinned rows of a table, those that come first in the order (by a sampled threshold). Dirty
  // rows are copied to records and their mark is cleared; they must be stored before ReleaseClean, or marked again.
  // need_store[i]: records[i] holds a copy. Rows that were never committed or have expired need no store.
  size_t TakeVictims(uint32_t table, size_t want, const VictimOrder& order, int64_t* ids, std::byte* records,
                     uint8_t* need_store);
  // Drops the rows that are unpinned and clean (or uncommitted, or expired); returns how many.
  size_t ReleaseClean(uint32_t table, const int64_t* ids, size_t n);
  // Drops every unpinned row that was never committed or has expired (`all`: every unpinned row); returns how many.
  size_t Drop(uint32_t table, bool all);
  void MarkDirty(uint32_t table, const int64_t* ids, size_t n);

  // Copies rows of one shard, in key order: the committed and live ones, or of these the dirty ones, whose marks are
  // then cleared.
  void CopyShard(uint32_t table, uint32_t shard, bool dirty_only, std::vector<int64_t>* ids,
                 std::vector<uint8_t>* records);

  uint64_t num_rows(uint32_t table) { return tables_[table]->index.size(); }
  size_t index_bytes();
  size_t bytes_used();

 private:
  friend class TableGroup;
  static constexpr int kIndexWays = 11;  // two neighbouring cache lines a probe

  struct Table {
    DramTableInit init;
    IdIndex<kIndexWays> index;
    std::mutex rule_mutex;
    std::shared_ptr<const ExpiryRule> rule;  // guarded by rule_mutex; never null
    uint64_t hand = 0;                       // guarded by sweep_mutex_: shard << 40 | line
  };
  using Shard = IdIndexShard<kIndexWays>;

  DramTable(const DramOptions& options, std::shared_ptr<ThreadPool> pool);

  std::shared_ptr<const ExpiryRule> Rule(Table& table);
  uint32_t& CountOf(std::byte* row) const { return *reinterpret_cast<uint32_t*>(row + options_.count_offset); }
  uint32_t& StepOf(std::byte* row) const { return *reinterpret_cast<uint32_t*>(row + options_.count_offset + 4); }
  bool Live(const ExpiryRule& rule, uint64_t key, std::byte* row) const {
    return CountOf(row) != 0 && !rule.Expired(key, CountOf(row), StepOf(row));
  }
  void PrefetchRow(uint32_t slot, uint32_t offset, uint32_t length) const;
  void PlaceFirstValues(Table& table, const int64_t* ids, std::byte* const* rows, size_t n);

  // Runs visit(shard number, shard, order) over the whole batch's order, shards spread over the threads.
  template <class Visit>
  void ForShards(Table& table, const ShardOrder& order, Visit&& visit);
  // Inserts the absent ids of a batch; fill(shard number, order, positions of new rows) writes rows, under the lock.
  template <class Fill>
  Status InsertAbsent(Table& table, const int64_t* ids, size_t n, bool pin, int64_t* slots, uint8_t* fresh,
                      Fill&& fill);
  struct Room {
    uint64_t rows = 0;
    bool exact = false;
  };
  Status ReserveFor(Table& table, const int64_t* ids, size_t n, Room* room);
  // Takes rows out of a shard, under its lock, and gives their slots back.
  size_t FreeRows(Shard& shard, const std::vector<uint64_t>& rests);
  uint64_t Score(const VictimOrder& order, const ExpiryRule& rule, uint64_t key, std::byte* row) const;
  uint64_t SampleThreshold(Table& table, const VictimOrder& order, const ExpiryRule& rule, double share);

  const DramOptions options_;
  std::shared_ptr<ThreadPool> pool_;
  std::unique_ptr<RowArena> arena_;
  static constexpr uint32_t kMaxTables = 32768;
  std::unique_ptr<std::unique_ptr<Table>[]> tables_;  // [kMaxTables], so that adding one moves none
  std::atomic<uint32_t> num_tables_{0};
  std::mutex add_mutex_;
  std::mutex sweep_mutex_;
};

}  // namespace stepwell
