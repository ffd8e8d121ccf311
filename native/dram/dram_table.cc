#include "dram/dram_table.h"

#include <cstring>
#include <string>

#include "dram/for_shards.h"

namespace stepwell {

namespace {
// Ids that one thread finds at a time: enough to share the shards' locks and to hide memory behind, 32 a shard (2048
// ids: 25% slower a row), and their rows (2 MB of 272 bytes) stay near each other in the output.
constexpr size_t kFindBlock = 8192;
constexpr size_t kLeastBlock = 1024;
constexpr uint32_t kAbsent = UINT32_MAX;
constexpr uint32_t kMostAsked = 1024;  // bytes of a row asked for ahead; the processor sees the rest coming
size_t BlockFor(size_t n, int threads) {
  const size_t share = (n + static_cast<size_t>(threads) - 1) / static_cast<size_t>(threads);
  return std::clamp(share, kLeastBlock, kFindBlock);
}

}  // namespace

DramTable::DramTable(const DramOptions& options, std::shared_ptr<ThreadPool> pool)
    : options_(options), pool_(std::move(pool)), tables_(new std::unique_ptr<Table>[kMaxTables]) {}

Status DramTable::Open(const DramOptions& options, std::shared_ptr<ThreadPool> pool,
                       std::unique_ptr<DramTable>* table) {
  if (options.record_bytes == 0 || options.record_bytes % 16 != 0 ||
      options.count_offset + 8 > options.record_bytes || options.count_offset % 4 != 0) {
    return Status(Code::kInvalid, "a record of " + std::to_string(options.record_bytes) +
                                      " bytes with its count at " + std::to_string(options.count_offset) +
                                      " cannot be: records are multiples of 16 bytes, stamps take the 8 from the count on");
  }
  if (options.max_rows == 0 || options.max_rows >= kAbsent) {
    return Status(Code::kInvalid, "a DRAM tier of " + std::to_string(options.max_rows) + " rows of " +
                                      std::to_string(options.record_bytes) +
                                      " bytes cannot be: it holds 1 to 4294967294 rows of one layout; change budget_bytes");
  }
  std::unique_ptr<DramTable> opened(new DramTable(options, std::move(pool)));
  STEPWELL_RETURN_IF_ERROR(RowArena::Open(options.record_bytes, options.max_rows, &opened->arena_));
  *table = std::move(opened);
  return Status::Ok();
}

Status DramTable::AddTable(DramTableInit init, uint32_t* number) {
  if (init.blank.size() != options_.record_bytes) {
    return Status(Code::kInvalid, "a table's blank record has " + std::to_string(init.blank.size()) +
                                      " bytes, expected " + std::to_string(options_.record_bytes));
  }
  auto table = std::make_unique<Table>();
  table->init = std::move(init);
  table->rule = std::make_shared<const ExpiryRule>();
  std::lock_guard<std::mutex> lock(add_mutex_);
  const uint32_t next = num_tables_.load(std::memory_order_relaxed);
  if (next == kMaxTables) {
    return Status(Code::kInvalid, "one row layout holds at most " + std::to_string(kMaxTables) + " tables");
  }
  tables_[next] = std::move(table);
  num_tables_.store(next + 1, std::memory_order_release);
  *number = next;
  return Status::Ok();
}

void DramTable::SetExpiry(uint32_t table, std::shared_ptr<const ExpiryRule> rule) {
  std::lock_guard<std::mutex> lock(tables_[table]->rule_mutex);
  tables_[table]->rule = std::move(rule);
}

std::shared_ptr<const ExpiryRule> DramTable::Rule(Table& table) {
  std::lock_guard<std::mutex> lock(table.rule_mutex);
  return table.rule;
}

void DramTable::Find(uint32_t table_number, const int64_t* ids, size_t n, bool committed_only, uint32_t offset,
                     uint32_t length, std::byte* out, size_t out_stride, uint8_t* found) {
  Table& table = *tables_[table_number];
  const std::shared_ptr<const ExpiryRule> rule = Rule(table);
  const size_t size = BlockFor(n, pool_->num_threads());
  pool_->Run((n + size - 1) / size, [&](size_t block) {
    const size_t first = block * size;
    const ShardOrder order(ids + first, std::min(size, n - first));
    uint32_t slots[kFindBlock];
    for (uint32_t number = 0; number < kNumShards; ++number) {
      if (order.begin(number) == order.end(number)) continue;
      Shard& shard = table.index.shard(number);
      SharedGuard guard(shard.lock);
      ProbeShard(shard, order, number, [&](const uint32_t* value, uint32_t k) {
        slots[k] = value == nullptr ? kAbsent : *value;
        if (value != nullptr) PrefetchRow(*value, offset, length);
        const char* to = reinterpret_cast<const char*>(out + (first + order.position(k)) * out_stride);
        for (uint32_t at = 0; at < length && at < kMostAsked; at += 64) __builtin_prefetch(to + at, 1);
      });
      for (uint32_t k = order.begin(number); k < order.end(number); ++k) {
        const uint32_t position = order.position(k);
        std::byte* to = out + (first + position) * out_stride;
        bool there = slots[k] != kAbsent;
        if (there && committed_only) there = Live(*rule, order.key(position), arena_->row(slots[k]));
        found[first + position] = there;
        if (there) {
          std::memcpy(to, arena_->row(slots[k]) + offset, length);
        } else {
          std::memset(to, 0, length);
        }
      }
    }
  });
}

void DramTable::FindSlots(uint32_t table_number, const int64_t* ids, size_t n, bool pin, int64_t* slots) {
  Table& table = *tables_[table_number];
  const size_t size = BlockFor(n, pool_->num_threads());
  pool_->Run((n + size - 1) / size, [&](size_t block) {
    const size_t first = block * size;
    const ShardOrder order(ids + first, std::min(size, n - first));
    for (uint32_t number = 0; number < kNumShards; ++number) {
      if (order.begin(number) == order.end(number)) continue;
      Shard& shard = table.index.shard(number);
      SharedGuard guard(shard.lock);
      ProbeShard(shard, order, number, [&](const uint32_t* value, uint32_t k) {
        slots[first + order.position(k)] = value == nullptr ? -1 : static_cast<int64_t>(*value);
        if (value != nullptr && pin) arena_->Pin(*value);
      });
    }
  });
}

Status DramTable::Unpin(const int64_t* slots, size_t n, const uint8_t* dirty) {
  Status status;
  for (size_t i = 0; i < n; ++i) {
    const bool legal = slots[i] >= 0 && static_cast<uint64_t>(slots[i]) < options_.max_rows;
    if (legal && arena_->Unpin(static_cast<uint32_t>(slots[i]), dirty[i] != 0)) continue;
    if (status.ok()) {
      status = Status(Code::kInvalid, "slot " + std::to_string(slots[i]) + " (position " + std::to_string(i) +
                                          ") has no pin; unpin each slot as often as pin returned it");
    }
  }
  return status;
}

size_t DramTable::index_bytes() {
  size_t sum = 0;
  for (size_t i = 0; i < num_tables(); ++i) sum += tables_[i]->index.bytes_used();
  return sum;
}

size_t DramTable::bytes_used() { return arena_->bytes_used() + index_bytes(); }

}  // namespace stepwell
