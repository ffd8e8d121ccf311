// Expiry: rules are applied when rows are read and when segments are compacted; DropExpired applies a rule's step
// bound to the index at once, by the footers alone.
#include "ssd/log.h"

namespace stepwell::ssd {

Status Log::SetExpiry(uint32_t table, std::shared_ptr<const ExpiryRule> rule) {
  STEPWELL_RETURN_IF_ERROR(CheckTable(table));
  tables_.GetOrMake(table)->SetRule(std::move(rule));
  return Status::Ok();
}

Status Log::DropExpired(uint32_t table, uint64_t* dropped) {
  STEPWELL_RETURN_IF_ERROR(CheckTable(table));
  uint64_t count = 0;
  if (dropped != nullptr) *dropped = 0;
  TableState* state = tables_.Get(table);
  if (state == nullptr) return Status::Ok();
  const std::shared_ptr<const ExpiryRule> rule = state->rule();
  if (rule == nullptr || rule->empty()) return Status::Ok();
  Readers::Ticket ticket(readers_);
  Status damage;
  std::vector<FooterEntry> entries;
  for (const std::shared_ptr<Segment>& segment : segments_.All()) {
    if (!segment->sealed.load(std::memory_order_acquire) || segment->live.load() == 0) continue;
    bool concerned = false;
    for (const TableSteps& steps : segment->steps) {
      concerned = concerned || (steps.table == table && steps.min_step <= rule->live_from_step);
    }
    if (!concerned) continue;
    const Status status = LoadEntries(*segment, &entries);
    if (!status.ok()) {
      if (damage.ok()) damage = status;
      continue;
    }
    std::vector<uint32_t> places;
    for (uint32_t place = 0; place < entries.size(); ++place) {
      const FooterEntry& entry = entries[place];
      if (entry.word == 0 || IsTombstone(entry.word) || TableOfWord(entry.word) != table) continue;
      // The footer has no counts; a count that no rule minds keeps this on the safe side.
      if (rule->Expired(KeyOfId(entry.id), UINT32_MAX, entry.last_step)) places.push_back(place);
    }
    const ByShard parts(places.size(), [&](size_t i) { return KeyOfId(entries[places[i]].id); });
    std::atomic<uint32_t> gone{0};
    parts.ForShards(pool_, [&](uint32_t shard) {
      auto& of = state->index.shard(shard);
      ExclusiveGuard guard(of.lock);
      parts.ForIds(state->index, shard, [&](uint32_t at, uint64_t rest) {
        const uint32_t* value = of.FindMutable(rest);
        if (value == nullptr || *value != segments_.Location(*segment, places[parts.index(at)])) return;
        uint32_t ignored;
        of.Erase(rest, &ignored);
        gone.fetch_add(1, std::memory_order_relaxed);
      });
    });
    segment->live.fetch_sub(gone.load());
    live_.fetch_sub(gone.load());
    count += gone.load();
  }
  counters_.expired_dropped += count;
  if (dropped != nullptr) *dropped = count;
  return damage;
}

}  // namespace stepwell::ssd
