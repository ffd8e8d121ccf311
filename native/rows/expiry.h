// What a table's expiry policies say at one commit, as a rule on a row's own stamps and id. A row the rule names is
// absent wherever it lies; its bytes are dropped later. Rules only ever name more rows: a row that expired stays
// expired until it is born again, so a tier may apply the rule early, late or twice.
#pragma once

#include <cstdint>

namespace stepwell {

// LFU with decay: counts halve at each multiple of `decay_steps` steps. 0: they never do.
inline uint32_t DecayedCount(uint32_t count, uint32_t last_step, uint32_t now, uint32_t decay_steps) {
  if (decay_steps == 0 || now <= last_step) return count;
  const uint32_t halvings = now / decay_steps - last_step / decay_steps;
  return halvings >= 32 ? 0 : count >> halvings;
}

// Ties are broken by one of 256 classes of ids: those below a rule's class go, the others stay.
inline uint32_t TieClassOfKey(uint64_t key) { return static_cast<uint32_t>(key >> 44) & 0xff; }

struct ExpiryRule {
  uint32_t live_from_step = 0;  // rows last used before go (time to live, or the least recently used)
  uint32_t tie_class = 0;       // of those last used at `live_from_step`, the classes below go

  // Of a committed row: one that never was is no row and cannot expire.
  bool Expired(uint64_t key, uint32_t /*count*/, uint32_t last_step) const {
    if (last_step != live_from_step) return last_step < live_from_step;
    return TieClassOfKey(key) < tie_class;
  }
  bool empty() const { return live_from_step == 0 && tie_class == 0; }
};

}  // namespace stepwell
