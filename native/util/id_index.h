// IdIndexShard: one of the 256 shards of a table's index, a hash table from the 56 bits of a key that the shard
// number does not imply to a 32-bit value (a slot in DRAM, a place in the SSD log). Keys are exact: the hash is a
// bijection, so there are no tags to verify and any int64 is a legal id.
//
// Memory. Lines of K entries are filled to kMaxLoad and grow by about a tenth: 12.7 to 14.5 bytes an entry for lines of
// 128 bytes (K = 11), 11.7 to 12.7 for lines of 256 (K = 23). A found key costs little more than one line, 1.25 of 11
// entries at a load of 0.92 (lines of 5 at 0.93, as many bytes, cost 2.1 lines and 3x the time).
//
// Invariants
//  1. An entry's home line is floor(rest * lines / 2^56): homes are in key order, whatever the number of lines.
//  2. An entry lies in the first line from its home on (cyclically) that had room. `spilled` of a line counts the
//     entries that passed it; a search ends at a line with spilled == 0. A count that reaches 65535 stays there.
//  3. While lines are replaced, entries whose home in the old array is below `moved_` are in the new array, the others
//     in the old one. Each insert or erase moves a few homes on, so no call pays for a whole rehash; pages of the old
//     array are handed back as they empty.
//
// Thread safety: none. The owner holds the shard's lock (`lock`), shared for Find and iteration, exclusive otherwise.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include "util/id_hash.h"
#include "util/line_memory.h"
#include "util/rw_spin.h"

namespace stepwell {

template <int K>
struct alignas(128) IndexLine {
  uint32_t lo[K];  // the key's low 32 bits, first: they are what a probe compares
  uint8_t used;
  uint8_t hi[K];
  uint16_t spilled;
  uint16_t mid[K];
  uint32_t value[K];

  int Match(uint64_t rest) const {
    const uint32_t low = static_cast<uint32_t>(rest);
    const uint16_t middle = static_cast<uint16_t>(rest >> 32);
    const uint8_t high = static_cast<uint8_t>(rest >> 48);
    for (uint32_t equal = EqualLow(low); equal != 0; equal &= equal - 1) {
      const int i = __builtin_ctz(equal);
      if (mid[i] == middle && hi[i] == high) return i;
    }
    return -1;
  }
  uint64_t Rest(int i) const {
    return lo[i] | (static_cast<uint64_t>(mid[i]) << 32) | (static_cast<uint64_t>(hi[i]) << 48);
  }
  void Put(int i, uint64_t rest, uint32_t new_value) {
    lo[i] = static_cast<uint32_t>(rest);
    mid[i] = static_cast<uint16_t>(rest >> 32);
    hi[i] = static_cast<uint8_t>(rest >> 48);
    value[i] = new_value;
  }
  void Remove(int i) {
    const int last = used - 1;
    lo[i] = lo[last];
    mid[i] = mid[last];
    hi[i] = hi[last];
    value[i] = value[last];
    used = static_cast<uint8_t>(last);
  }

 private:
  // Bit i: entry i is used and its key has these low bits. The last lanes read beyond lo, inside the line.
  uint32_t EqualLow(uint32_t low) const {
    uint32_t equal = 0;
#if defined(__x86_64__)
    const __m128i wanted = _mm_set1_epi32(static_cast<int>(low));
    for (int i = 0; i < (K + 3) / 4; ++i) {
      const __m128i four = _mm_load_si128(reinterpret_cast<const __m128i*>(this) + i);
      const int mask = _mm_movemask_ps(_mm_castsi128_ps(_mm_cmpeq_epi32(four, wanted)));
      equal |= static_cast<uint32_t>(mask) << (4 * i);
    }
#else
    for (int i = 0; i < K; ++i) equal |= static_cast<uint32_t>(lo[i] == low) << i;
#endif
    return equal & ((1u << used) - 1);
  }
};
static_assert(sizeof(IndexLine<11>) == 128);
static_assert(sizeof(IndexLine<23>) == 256);

// What a look-up reads of a shard itself, from the lock on, is one line of the cache: a batch of a thousand ids goes
// through all shards of a table, and through those of every table.
template <int K>
class alignas(64) IdIndexShard {
 public:
  using Line = IndexLine<K>;

  RwSpin lock;

 private:
  struct Array {
    Line* data = nullptr;
    uint64_t lines = 0;

    Line& line(uint64_t at) const { return data[at]; }
    uint64_t Home(uint64_t rest) const {
      return static_cast<uint64_t>((static_cast<unsigned __int128>(rest << 8) * lines) >> 64);
    }
  };
  Array now_;
  Array old_;
  uint64_t moved_ = 0;
  uint64_t size_ = 0;

 public:
  uint64_t size() const { return size_; }

  // The value of a key, in place, or nullptr. Valid until the next insert or erase.
  const uint32_t* Find(uint64_t rest) const { return const_cast<IdIndexShard*>(this)->FindMutable(rest); }
  uint32_t* FindMutable(uint64_t rest) {
    if (size_ == 0) return nullptr;
    const Array& array = ArrayOf(rest);
    uint64_t at = array.Home(rest);
    for (uint64_t probes = 0; probes < array.lines; ++probes) {
      Line& line = array.line(at);
      const int i = line.Match(rest);
      if (i >= 0) return &line.value[i];
      if (line.spilled == 0) return nullptr;
      if (++at == array.lines) at = 0;
    }
    return nullptr;
  }

  // Requires: the key is absent. False when there is no memory; nothing has changed then.
  bool Insert(uint64_t rest, uint32_t value) {
    if (old_.lines != 0) Move(kMovesPerInsert);
    if (old_.lines == 0 && size_ + 1 > MaxSize(now_.lines) && !Resize(GrownLines(now_.lines, rest))) return false;
    const bool in_old = &ArrayOf(rest) == &old_;
    Place(in_old ? old_ : now_, in_old ? old_backing_ : now_backing_, rest, value);
    ++size_;
    return true;
  }

  // True if the key was there; its value goes to *value.
  bool Erase(uint64_t rest, uint32_t* value) {
    if (size_ == 0) return false;
    Array& array = ArrayOf(rest);
    uint64_t at = array.Home(rest);
    for (uint64_t probes = 0; probes < array.lines; ++probes) {
      Line& line = array.line(at);
      const int i = line.Match(rest);
      if (i >= 0) {
        *value = line.value[i];
        TakeOut(array, array.Home(rest), at, i);
        --size_;
        if (old_.lines != 0) {
          Move(kMovesPerInsert);
        } else if (now_.lines > kShrinkFrom && size_ < MaxSize(now_.lines) / 2) {
          Resize(now_.lines * 5 / 8);  // on no memory it stays as large as it is
        }
        return true;
      }
      if (line.spilled == 0) return false;
      if (++at == array.lines) at = 0;
    }
    return false;
  }

  // Find in steps, for batches: Ask asks for the memory of a key's home line, FindAtHome looks there some keys later.
  // A key that is not there may be behind it (*spilled; a fifth of the keys are, and waiting for their next line took
  // a third of the time): that line is asked for, and Find will know, some keys later again. Between the steps nothing
  // may be inserted or erased. Requires: size() > 0.
  Line* Ask(uint64_t rest) {
    const Array& array = ArrayOf(rest);
    Line* line = &array.line(array.Home(rest));
    AskFor(line);
    return line;
  }
  uint32_t* FindAtHome(Line* home, uint64_t rest, bool* spilled) {
    const int i = home->Match(rest);
    *spilled = i < 0 && home->spilled != 0;
    if (*spilled) AskFor(home + 1);  // after the last line: nothing there, and asking for it does no harm
    return i >= 0 ? &home->value[i] : nullptr;
  }

  // visit(rest, uint32_t& value) for every entry. The visitor must not insert or erase.
  template <class Visit>
  void ForEach(Visit&& visit) {
    for (Array* array : {&now_, &old_}) {
      for (uint64_t at = 0; at < array->lines; ++at) {
        Line& line = array->line(at);
        for (int i = 0; i < line.used; ++i) visit(line.Rest(i), line.value[i]);
      }
    }
  }

  // Lines of both arrays, for a sweep that goes on where it stopped: visit(rest, value) for line `at` of
  // [0, num_lines()). Lines move when the shard grows, so a sweep over several calls may miss or repeat entries.
  uint64_t num_lines() const { return now_.lines + old_.lines; }
  template <class Visit>
  void ForLine(uint64_t at, Visit&& visit) {
    Line& line = at < now_.lines ? now_.line(at) : old_.line(at - now_.lines);
    for (int i = 0; i < line.used; ++i) visit(line.Rest(i), line.value[i]);
  }

  size_t bytes_used() const { return now_backing_.memory.bytes_used() + old_backing_.memory.bytes_used(); }

 private:
  static constexpr double kMaxLoad = K <= 11 ? 0.92 : 0.95;
  static constexpr double kGrowth = K <= 11 ? 1.09 : 1.05;  // at least; at most kGrowth + kGrowthSpread
  static constexpr double kGrowthSpread = K <= 11 ? 0.06 : 0.02;
  static constexpr int kMovesPerInsert = 8;  // lines: a growth is over after as many inserts as an eighth of the lines
  static constexpr uint64_t kShrinkFrom = 32;

  // Where an array lies, for those who change it.
  struct Backing {
    LineMemory memory;
    uint64_t wrapped = 0;  // lines [0, wrapped) may hold entries whose home is near the end
  };

  static void AskFor(const Line* line) {
    for (size_t offset = 0; offset < sizeof(Line); offset += 64) {
      __builtin_prefetch(reinterpret_cast<const char*>(line) + offset);
    }
  }
  static uint64_t MaxSize(uint64_t lines) {
    return static_cast<uint64_t>(static_cast<double>(lines * K) * kMaxLoad);
  }
  // By a factor drawn from the key that finds the shard full, so that the shards of a table, which fill alike, do not
  // all grow in the same batch.
  static uint64_t GrownLines(uint64_t lines, uint64_t rest) {
    const double factor = kGrowth + kGrowthSpread * static_cast<double>(Mix64(rest) >> 56) / 256;
    return std::max(lines + 1, static_cast<uint64_t>(static_cast<double>(lines) * factor));
  }

  Array& ArrayOf(uint64_t rest) { return old_.lines != 0 && old_.Home(rest) >= moved_ ? old_ : now_; }
  const Array& ArrayOf(uint64_t rest) const { return const_cast<IdIndexShard*>(this)->ArrayOf(rest); }

  static void Place(const Array& array, Backing& backing, uint64_t rest, uint32_t value) {
    const uint64_t home = array.Home(rest);
    uint64_t at = home;
    backing.memory.Touch((home + 1) * sizeof(Line));
    while (array.line(at).used == K) {
      if (array.line(at).spilled != UINT16_MAX) ++array.line(at).spilled;
      if (++at == array.lines) at = 0;
      backing.memory.Touch((at + 1) * sizeof(Line));
    }
    if (at < home) backing.wrapped = std::max(backing.wrapped, at + 1);
    Line& line = array.line(at);
    line.Put(line.used, rest, value);
    ++line.used;
  }

  static void TakeOut(const Array& array, uint64_t home, uint64_t at, int i) {
    array.line(at).Remove(i);
    while (at != home) {
      at = (at == 0 ? array.lines : at) - 1;
      if (array.line(at).spilled != UINT16_MAX) --array.line(at).spilled;
    }
  }

  bool Resize(uint64_t lines) {
    Backing bigger;
    if (!bigger.memory.Allocate(lines * sizeof(Line))) return false;
    old_ = now_;
    old_backing_ = std::move(now_backing_);
    now_ = {reinterpret_cast<Line*>(bigger.memory.data()), lines};
    now_backing_ = std::move(bigger);
    moved_ = 0;
    if (size_ == 0) {
      FreeOld();
    } else {
      Move(kMovesPerInsert);
    }
    return true;
  }

  void FreeOld() {
    old_ = {};
    old_backing_ = {};
  }

  void Move(int homes) {
    for (; homes > 0 && moved_ < old_.lines; --homes) MoveHome();
    if (moved_ == old_.lines) {
      FreeOld();
    } else {
      old_backing_.memory.Release(old_backing_.wrapped * sizeof(Line), moved_ * sizeof(Line));
    }
  }

  // Moves every entry whose home in the old array is `moved_`, wherever it spilled to.
  void MoveHome() {
    const uint64_t home = moved_;
    ++moved_;
    uint64_t at = home;
    for (uint64_t probes = 0; probes < old_.lines; ++probes) {
      Line& line = old_.line(at);
      const bool go_on = line.spilled != 0;
      for (int i = line.used - 1; i >= 0; --i) {
        const uint64_t rest = line.Rest(i);
        if (old_.Home(rest) != home) continue;
        const uint32_t value = line.value[i];
        TakeOut(old_, home, at, i);
        Place(now_, now_backing_, rest, value);
      }
      if (!go_on) return;
      if (++at == old_.lines) at = 0;
    }
  }

  Backing now_backing_;
  Backing old_backing_;
};

// The 256 shards of one table.
template <int K>
class IdIndex {
 public:
  IdIndexShard<K>& shard(uint32_t number) { return shards_[number]; }
  const IdIndexShard<K>& shard(uint32_t number) const { return shards_[number]; }

  // Sums over shards, each read under its lock; exact when nobody writes.
  uint64_t size() {
    uint64_t sum = 0;
    for (auto& shard : shards_) {
      SharedGuard guard(shard.lock);
      sum += shard.size();
    }
    return sum;
  }
  size_t bytes_used() {
    size_t sum = sizeof(*this);
    for (auto& shard : shards_) {
      SharedGuard guard(shard.lock);
      sum += shard.bytes_used();
    }
    return sum;
  }

 private:
  IdIndexShard<K> shards_[kNumShards];
};

}  // namespace stepwell
