// TableGroup: several tables, of one or more row layouts, in a fixed order, for verbs that do all of them in one call.
//
// A batch is a step's rows: member m has positions [starts[m], starts[m + 1]) of `ids` and of `slots`. Pin and Place fill
// in slots, and what follows uses them: no id is hashed twice. Rows with a slot are pinned, so slots and addresses
// hold until Unpin. The ids of a member are unique.
//
// Thread safety: every method may be called from any thread, on different batches. The rows of a step are the step's own until it
// commits: whoever reads them meanwhile may meet them half-written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "dram/dram_table.h"
#include "stepwell/status.h"
#include "util/thread_pool.h"

namespace stepwell {

class TableGroup {
 public:
  static constexpr uint32_t kNoSlot = UINT32_MAX;

  struct Member {
    DramTable* core = nullptr;  // not owned
    uint32_t table = 0;         // its number there
    uint32_t decay_steps = 0;   // of its counts (VictimOrder)
  };

  struct Batch {
    const int64_t* starts = nullptr;  // [num_members + 1], rising from 0
    const int64_t* ids = nullptr;
    uint32_t* slots = nullptr;  // kNoSlot: not placed yet
  };

  // What Commit did to a row.
  enum Outcome : uint8_t {
    kNotStored = 0,  // not admitted; or another position of this step's batches has the row
    kBorn = 1,
    kStamped = 2,
  };

  TableGroup(std::vector<Member> members, std::shared_ptr<ThreadPool> pool)
      : members_(std::move(members)), pool_(std::move(pool)) {}

  size_t num_members() const { return members_.size(); }
  const Member& member(size_t m) const { return members_[m]; }

  // Looks up positions without a slot; pins rows that are there and writes their slots and addresses. Returns how
  // many positions have no slot still.
  size_t Pin(const Batch& batch, uint64_t* addresses) const;

  // Places rows of positions (rising, without slots), pinned: the clean record at sources[i], or the first values where that
  // is 0. A row that is there by now stays as it is. *fresh_clean and *fresh_new count what was placed. On kFull
  // some positions have slots and others not.
  Status Place(const Batch& batch, const uint32_t* positions, const uint64_t* sources, size_t n, uint64_t* addresses,
               size_t* fresh_clean, size_t* fresh_new) const;

  // Before a step computes: its rows that have expired begin again, uncommitted, in their slots; how many.
  size_t Begin(const Batch& batch) const;

  // Positions of rows that were never committed, of the members with wanted[m] != 0, rising.
  std::vector<uint32_t> Unborn(const Batch& batch, const uint8_t* wanted) const;

  // When a step commits: count becomes its decayed value + 1 and last step becomes `step`; a row that was never
  // committed is born, or goes back to its first values where refused[i] != 0 (may be nullptr). A row is stamped once, in however many of
  // the step's batches it is, until the first of them is unpinned. born[m] counts births. outcomes[i] and old_steps[i]
  // (the last step before; both may be nullptr) say what became of the rows. `unpin` does Unpin's work on the way, for a
  // step that has no other batch.
  void Commit(const Batch& batch, uint32_t step, const uint8_t* refused, bool unpin, uint8_t* outcomes,
              uint32_t* old_steps, int64_t* born) const;

  // Takes the batch's pins off and ends what Commit began. Its slots are kNoSlot afterwards.
  void Unpin(const Batch& batch) const;

  // Copies committed, live rows to buffer, one after another by their members' record bytes; found[i] says which there are,
  // addresses[i] where each one's place is. The bytes of absent ones are undefined.
  void Read(const int64_t* starts, const int64_t* ids, std::byte* buffer, uint64_t* addresses, uint8_t* found) const;
  // Writes the first values, uncommitted, of rows at positions (rising) to their addresses.
  void FirstValues(const int64_t* starts, const int64_t* ids, const uint32_t* positions, size_t n,
                   const uint64_t* addresses) const;

 private:
  // visit(m, first, last) over runs of positions of one member each, spread over the threads.
  void ForRuns(const int64_t* starts, const std::function<void(size_t, size_t, size_t)>& visit) const;

  const std::vector<Member> members_;
  const std::shared_ptr<ThreadPool> pool_;
};

}  // namespace stepwell
