// The constants and shapes of the log's files; docs/store_format.md explains them. Everything is little-endian, and
// values that are on disk never change their meaning.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "io/env.h"
#include "stepwell/status.h"

namespace stepwell::ssd {

static_assert(std::endian::native == std::endian::little, "the files are little-endian, and so is every target");

inline constexpr uint16_t kMagic = 0x5753;  // "SW"
inline constexpr uint8_t kVersion = 1;
inline constexpr size_t kHeaderBytes = 16;  // of every page
inline constexpr size_t kPayloadBytes = kPageBytes - kHeaderBytes;
inline constexpr uint32_t kMaxRecordBytes = 1u << 20;

enum class PageKind : uint8_t { kSegment = 1, kData = 2, kFooter = 3, kTrailer = 4, kMarker = 5 };

// The first 16 bytes of every page.
struct PageHeader {
  uint32_t crc;      // crc32c of the page's other 4092 bytes
  uint16_t magic;
  uint8_t version;
  uint8_t kind;
  uint32_t segment;  // the low 32 bits of the segment's number (0: SYNCED), so that a misplaced page shows
  uint16_t page;     // the low 16 bits of the page's number in its file, likewise
  uint16_t records;  // data: records in the page's block; footer: entries in the page; else 0
};
static_assert(sizeof(PageHeader) == kHeaderBytes);

// Before every record.
struct RecordKey {
  int64_t id;
  uint64_t word;  // seq << 16 | tombstone << 15 | table
};
static_assert(sizeof(RecordKey) == 16);

inline constexpr uint64_t kMaxSeq = (uint64_t{1} << 48) - 1;
inline constexpr uint64_t MakeWord(uint64_t seq, bool tombstone, uint32_t table) {
  return (seq << 16) | (uint64_t{tombstone} << 15) | table;
}
inline constexpr uint64_t SeqOfWord(uint64_t word) { return word >> 16; }
inline constexpr bool IsTombstone(uint64_t word) { return (word >> 15) & 1; }
inline constexpr uint32_t TableOfWord(uint64_t word) { return word & 0x7fff; }

// A record's place in the footer. word == 0: the place is empty (a Sync ended its block early).
#pragma pack(push, 1)
struct FooterEntry {
  int64_t id;
  uint64_t word;
  uint32_t last_step;
};
#pragma pack(pop)
static_assert(sizeof(FooterEntry) == 20);
inline constexpr uint32_t kEntriesPerPage = kPayloadBytes / sizeof(FooterEntry);  // 204

// The payload of a segment's first page.
struct SegmentHeader {
  uint64_t number;
  uint64_t created_seq;  // every record of a lower seq in the segment was live when this seq was the log's last
  uint64_t fingerprint;
  uint32_t record_bytes;
  uint32_t count_offset;
  uint32_t step_offset;
  uint32_t compacted;  // 1: written by compaction, so seqs are not in order
};

// The payload of a sealed segment's last page.
struct SegmentTrailer {
  SegmentHeader header;  // again, so that a damaged first page loses nothing
  uint64_t places;       // records and empty places: blocks * records_per_block
  uint64_t records;      // tombstones included
  uint64_t tombstones;
  uint64_t min_seq;
  uint64_t max_seq;
  uint64_t footer_page;  // the first
  uint64_t footer_pages;
};

// Seqs first..last were written and not synced before a crash: records that carry them do not exist.
struct VoidRange {
  uint64_t first;
  uint64_t last;
};
inline constexpr uint32_t kMaxVoidRanges = 240;

// The payload of a slot of the SYNCED file; the valid slot of the higher generation counts.
struct Marker {
  uint64_t generation;
  uint64_t synced_seq;
  uint64_t next_segment;  // segments below had their first page synced
  uint64_t fingerprint;
  uint64_t segment_bytes;
  uint32_t record_bytes;
  uint32_t count_offset;
  uint32_t step_offset;
  uint32_t num_voids;
  VoidRange voids[kMaxVoidRanges];
  // The first `open_blocks` blocks of segment `open_segment`, which was not sealed yet, were synced: one of them that
  // cannot be read is damage, one behind them is where the log stopped.
  uint64_t open_segment;
  uint64_t open_blocks;
};
static_assert(sizeof(Marker) <= kPayloadBytes);

inline constexpr const char* kMarkerName = "SYNCED";
inline constexpr const char* kLockName = "LOCK";
std::string SegmentName(uint64_t number);                        // seg-%016x.log
bool ParseSegmentName(const std::string& name, uint64_t* number);

// Where records lie. A pure function of record_bytes and segment_bytes.
//
// Records are packed into blocks of `block_pages` pages, the fewest that waste at most an eighth: a block's payload is
// the payload of its pages one after another, records lie in it back to back from its start, and no record leaves
// its block. A block of one page is the usual case: no record straddles a page then.
struct Geometry {
  uint32_t record_bytes = 0;
  uint32_t stored_bytes = 0;  // record and key
  uint32_t block_pages = 0;
  uint32_t records_per_block = 0;
  uint32_t max_blocks = 0;  // of a segment
  uint32_t max_places = 0;  // of a segment

  static Status Make(uint32_t record_bytes, uint64_t segment_bytes, Geometry* geometry);

  uint32_t BlockOf(uint32_t place) const { return place / records_per_block; }
  uint64_t BlockOffset(uint32_t block) const { return (1 + uint64_t{block} * block_pages) * kPageBytes; }
  uint32_t BlockBytes() const { return block_pages * static_cast<uint32_t>(kPageBytes); }
  // Where in its block's payload a place begins.
  uint32_t StreamOffset(uint32_t place) const { return place % records_per_block * stored_bytes; }
  uint32_t FooterPages(uint32_t places) const { return (places + kEntriesPerPage - 1) / kEntriesPerPage; }
  // Bytes of a sealed file of so many places.
  uint64_t FileBytes(uint32_t places) const {
    const uint64_t blocks = (places + records_per_block - 1) / records_per_block;
    return (2 + blocks * block_pages + FooterPages(static_cast<uint32_t>(blocks * records_per_block))) * kPageBytes;
  }
};

// Copies between memory and a block's payload stream.
void CopyIn(std::byte* block, uint32_t stream_offset, const void* data, uint32_t bytes);
void CopyOut(const std::byte* block, uint32_t stream_offset, void* data, uint32_t bytes);
void ZeroIn(std::byte* block, uint32_t stream_offset, uint32_t bytes);

// Writes a page's header, checksum last. The payload must be complete.
void SealPage(std::byte* page, PageKind kind, uint64_t segment, uint64_t number, uint32_t records);
// Ok, or kCorrupt (kFormat for a newer version) naming the file, the offset, what was found and expected.
Status CheckPage(const std::byte* page, PageKind kind, uint64_t segment, uint64_t number, const std::string& path);
// What to say of a sealed segment that ends, at `bytes`, before its trailer.
std::string EndIsGone(const std::string& path, uint64_t bytes);
inline PageHeader HeaderOf(const std::byte* page) {
  PageHeader header;
  std::memcpy(&header, page, sizeof(header));
  return header;
}
// Without a message, for hot paths: the checksum and all fields but `records` are right.
bool PageIsGood(const std::byte* page, PageKind kind, uint64_t segment, uint64_t number);

template <class T>
void PutPayload(std::byte* page, const T& value) {
  static_assert(sizeof(T) <= kPayloadBytes);
  std::memset(page + kHeaderBytes, 0, kPayloadBytes);
  std::memcpy(page + kHeaderBytes, &value, sizeof(T));
}
template <class T>
T GetPayload(const std::byte* page) {
  T value;
  std::memcpy(&value, page + kHeaderBytes, sizeof(T));
  return value;
}

inline uint32_t FieldOr(const std::byte* record, uint32_t offset, uint32_t absent) {
  if (offset == UINT32_MAX) return absent;
  uint32_t value;
  std::memcpy(&value, record + offset, sizeof(value));
  return value;
}

inline bool IsVoid(const std::vector<VoidRange>& voids, uint64_t seq) {
  for (const VoidRange& range : voids) {
    if (seq >= range.first && seq <= range.last) return true;
  }
  return false;
}

}  // namespace stepwell::ssd
