#include "ssd/format.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>

#include "util/crc32c.h"

namespace stepwell::ssd {

std::string SegmentName(uint64_t number) {
  char text[32];
  std::snprintf(text, sizeof(text), "seg-%016" PRIx64 ".log", number);
  return text;
}

bool ParseSegmentName(const std::string& name, uint64_t* number) {
  if (name.size() != 24 || name.compare(0, 4, "seg-") != 0 || name.compare(20, 4, ".log") != 0) return false;
  *number = 0;
  for (size_t i = 4; i < 20; ++i) {
    const char c = name[i];
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (digit < 0) return false;
    *number = *number << 4 | static_cast<uint64_t>(digit);
  }
  return true;
}

Status Geometry::Make(uint32_t record_bytes, uint64_t segment_bytes, Geometry* geometry) {
  if (record_bytes == 0 || record_bytes > kMaxRecordBytes) {
    return Status(Code::kInvalid, "record_bytes is " + std::to_string(record_bytes) + ", expected 1 to " +
                                      std::to_string(kMaxRecordBytes));
  }
  Geometry made;
  made.record_bytes = record_bytes;
  made.stored_bytes = record_bytes + static_cast<uint32_t>(sizeof(RecordKey));
  for (uint32_t pages = 1;; ++pages) {
    const uint64_t payload = pages * kPayloadBytes;
    const uint64_t records = payload / made.stored_bytes;
    if (records * made.stored_bytes * 8 < payload * 7) continue;
    made.block_pages = pages;
    made.records_per_block = static_cast<uint32_t>(records);
    break;
  }
  const uint64_t file_pages = std::min<uint64_t>(segment_bytes / kPageBytes, UINT32_MAX);
  uint64_t blocks = file_pages / made.block_pages;
  while (blocks > 0) {
    const uint64_t footer = (blocks * made.records_per_block + kEntriesPerPage - 1) / kEntriesPerPage;
    const uint64_t pages = 2 + blocks * made.block_pages + footer;
    if (pages <= file_pages) break;
    blocks -= std::max<uint64_t>(1, (pages - file_pages) / (made.block_pages + footer / blocks + 1));
  }
  if (blocks == 0) {
    const uint64_t least = 2 + made.block_pages + (made.records_per_block + kEntriesPerPage - 1) / kEntriesPerPage;
    return Status(Code::kInvalid, "segment_bytes is " + std::to_string(segment_bytes) + ", too small for records of " +
                                      std::to_string(record_bytes) + " bytes; set at least " +
                                      std::to_string(least * kPageBytes));
  }
  made.max_blocks = static_cast<uint32_t>(blocks);
  made.max_places = made.max_blocks * made.records_per_block;
  *geometry = made;
  return Status::Ok();
}

namespace {

// Calls piece(pointer into the block, offset in the data, bytes) for each page that [offset, offset + bytes) touches.
template <class Byte, class Piece>
void ForPieces(Byte* block, uint32_t stream_offset, uint32_t bytes, Piece&& piece) {
  for (uint32_t done = 0; done < bytes;) {
    const uint32_t at = stream_offset + done;
    const uint32_t in_page = at % kPayloadBytes;
    const uint32_t part = std::min<uint32_t>(bytes - done, static_cast<uint32_t>(kPayloadBytes) - in_page);
    piece(block + at / kPayloadBytes * kPageBytes + kHeaderBytes + in_page, done, part);
    done += part;
  }
}

}  // namespace

void CopyIn(std::byte* block, uint32_t stream_offset, const void* data, uint32_t bytes) {
  ForPieces(block, stream_offset, bytes, [&](std::byte* at, uint32_t done, uint32_t part) {
    std::memcpy(at, static_cast<const std::byte*>(data) + done, part);
  });
}

void CopyOut(const std::byte* block, uint32_t stream_offset, void* data, uint32_t bytes) {
  ForPieces(block, stream_offset, bytes, [&](const std::byte* at, uint32_t done, uint32_t part) {
    std::memcpy(static_cast<std::byte*>(data) + done, at, part);
  });
}

void ZeroIn(std::byte* block, uint32_t stream_offset, uint32_t bytes) {
  ForPieces(block, stream_offset, bytes, [&](std::byte* at, uint32_t, uint32_t part) { std::memset(at, 0, part); });
}

void SealPage(std::byte* page, PageKind kind, uint64_t segment, uint64_t number, uint32_t records) {
  PageHeader header;
  header.crc = 0;
  header.magic = kMagic;
  header.version = kVersion;
  header.kind = static_cast<uint8_t>(kind);
  header.segment = static_cast<uint32_t>(segment);
  header.page = static_cast<uint16_t>(number);
  header.records = static_cast<uint16_t>(records);
  std::memcpy(page, &header, sizeof(header));
  header.crc = Crc32c(page + sizeof(header.crc), kPageBytes - sizeof(header.crc));
  std::memcpy(page, &header.crc, sizeof(header.crc));
}

bool PageIsGood(const std::byte* page, PageKind kind, uint64_t segment, uint64_t number) {
  const PageHeader header = HeaderOf(page);
  return header.crc == Crc32c(page + sizeof(header.crc), kPageBytes - sizeof(header.crc)) && header.magic == kMagic &&
         header.version == kVersion && header.kind == static_cast<uint8_t>(kind) &&
         header.segment == static_cast<uint32_t>(segment) && header.page == static_cast<uint16_t>(number);
}

std::string EndIsGone(const std::string& path, uint64_t bytes) {
  return path + ": offset " + std::to_string(bytes) +
         ": the file ends without the trailer that it was sealed with; run `stepwell store check` on the directory";
}

Status CheckPage(const std::byte* page, PageKind kind, uint64_t segment, uint64_t number, const std::string& path) {
  if (PageIsGood(page, kind, segment, number)) return Status::Ok();
  const PageHeader header = HeaderOf(page);
  const uint32_t crc = Crc32c(page + sizeof(header.crc), kPageBytes - sizeof(header.crc));
  const std::string where = path + ": offset " + std::to_string(number * kPageBytes) + ": ";
  const std::string what_to_do = "; run `stepwell store check` on the directory, with --repair to drop what is lost";
  char text[160];
  if (header.crc != crc) {
    std::snprintf(text, sizeof(text), "the page's checksum is %08x, its bytes give %08x", header.crc, crc);
    return Status(Code::kCorrupt, where + text + what_to_do);
  }
  if (header.magic == kMagic && header.version > kVersion) {
    std::snprintf(text, sizeof(text), "format version %u, this program reads up to %u; use a newer stepwell",
                  header.version, kVersion);
    return Status(Code::kFormat, where + text);
  }
  std::snprintf(text, sizeof(text),
                "the page says kind %u, segment %x, page %u, expected kind %u, segment %x, page %u (it is misplaced)",
                header.kind, header.segment, header.page, static_cast<uint8_t>(kind), static_cast<uint32_t>(segment),
                static_cast<uint16_t>(number));
  return Status(Code::kCorrupt, where + text + what_to_do);
}

}  // namespace stepwell::ssd
