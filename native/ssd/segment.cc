#include "ssd/segment.h"

#include <algorithm>

namespace stepwell::ssd {
namespace {

constexpr uint32_t kPiecePages = 64;  // of footers read or written at once

Status NoMemory() { return Status(Code::kIoError, "no memory for a buffer of the SSD log; free some and try again"); }

Status ReadPages(File& file, uint64_t page, uint64_t pages, std::byte* data) {
  size_t got = 0;
  STEPWELL_RETURN_IF_ERROR(file.Pread(data, pages * kPageBytes, page * kPageBytes, &got));
  if (got == pages * kPageBytes) return Status::Ok();
  return Status(Code::kCorrupt, file.path() + ": offset " + std::to_string(page * kPageBytes) + ": the file ends " +
                                    std::to_string(got) + " bytes on, expected " + std::to_string(pages * kPageBytes) +
                                    "; it was cut short: run `stepwell store check` on the directory");
}

}  // namespace

Status WriteHeader(File& file, const SegmentHeader& header) {
  AlignedBytes page = AllocateAligned(kPageBytes);
  if (page == nullptr) return NoMemory();
  PutPayload(page.get(), header);
  SealPage(page.get(), PageKind::kSegment, header.number, 0, 0);
  return file.Pwrite(page.get(), kPageBytes, 0);
}

Status ReadTrailer(File& file, uint64_t number, SegmentTrailer* trailer) {
  uint64_t bytes = 0;
  STEPWELL_RETURN_IF_ERROR(file.Size(&bytes));
  AlignedBytes page = AllocateAligned(kPageBytes);
  if (page == nullptr) return NoMemory();
  const uint64_t pages = bytes / kPageBytes;
  if (pages < 2) return Status(Code::kCorrupt, file.path() + ": holds no trailer");
  STEPWELL_RETURN_IF_ERROR(ReadPages(file, pages - 1, 1, page.get()));
  STEPWELL_RETURN_IF_ERROR(CheckPage(page.get(), PageKind::kTrailer, number, pages - 1, file.path()));
  *trailer = GetPayload<SegmentTrailer>(page.get());
  if (trailer->footer_page + trailer->footer_pages + 1 != pages) {
    return Status(Code::kCorrupt, file.path() + ": offset " + std::to_string((pages - 1) * kPageBytes) +
                                      ": the trailer expects " +
                                      std::to_string(trailer->footer_page + trailer->footer_pages + 1) +
                                      " pages, the file has " + std::to_string(pages));
  }
  return Status::Ok();
}

Status ReadFooter(const Geometry& geometry, Segment& segment, std::vector<FooterEntry>* entries) {
  const uint32_t places = segment.places.load();
  const uint64_t first = geometry.BlockOffset(places / geometry.records_per_block) / kPageBytes;
  const uint32_t pages = geometry.FooterPages(places);
  entries->resize(places);
  AlignedBytes data = AllocateAligned(kPiecePages * kPageBytes);
  if (data == nullptr) return NoMemory();
  for (uint32_t at = 0; at < pages; at += kPiecePages) {
    const uint32_t piece = std::min(kPiecePages, pages - at);
    STEPWELL_RETURN_IF_ERROR(ReadPages(*segment.file, first + at, piece, data.get()));
    for (uint32_t i = 0; i < piece; ++i) {
      const std::byte* page = data.get() + i * kPageBytes;
      STEPWELL_RETURN_IF_ERROR(
          CheckPage(page, PageKind::kFooter, segment.number(), first + at + i, segment.path()));
      const uint32_t begin = (at + i) * kEntriesPerPage;
      const uint32_t count = std::min(kEntriesPerPage, places - begin);
      std::memcpy(entries->data() + begin, page + kHeaderBytes, count * sizeof(FooterEntry));
    }
  }
  return Status::Ok();
}

void Summarize(const std::vector<FooterEntry>& entries, Segment* segment) {
  segment->min_seq = UINT64_MAX;
  segment->max_seq = 0;
  segment->steps.clear();
  uint32_t tombstones = 0;
  uint64_t max_tombstone_seq = 0;
  std::map<uint32_t, TableSteps> tables;
  TableSteps* steps = nullptr;
  for (const FooterEntry& entry : entries) {
    if (entry.word == 0) continue;
    const uint64_t seq = SeqOfWord(entry.word);
    segment->min_seq = std::min(segment->min_seq, seq);
    segment->max_seq = std::max(segment->max_seq, seq);
    if (IsTombstone(entry.word)) {
      ++tombstones;
      max_tombstone_seq = std::max(max_tombstone_seq, seq);
      continue;
    }
    const uint32_t table = TableOfWord(entry.word);
    if (steps == nullptr || steps->table != table) {
      steps = &tables[table];
      steps->table = table;
    }
    ++steps->records;
    steps->min_step = std::min(steps->min_step, static_cast<uint32_t>(entry.last_step));
    steps->max_step = std::max(steps->max_step, static_cast<uint32_t>(entry.last_step));
  }
  segment->records = tombstones;
  for (const auto& [table, value] : tables) {
    segment->steps.push_back(value);
    segment->records += value.records;
  }
  segment->tombstones = tombstones;
  segment->max_tombstone_seq = max_tombstone_seq;
  segment->places = static_cast<uint32_t>(entries.size());
}

Status WriteFooter(const Geometry& geometry, Segment& segment, const std::vector<FooterEntry>& entries) {
  const uint32_t places = static_cast<uint32_t>(entries.size());
  const uint64_t first = geometry.BlockOffset(places / geometry.records_per_block) / kPageBytes;
  const uint32_t pages = geometry.FooterPages(places);
  AlignedBytes data = AllocateAligned(kPiecePages * kPageBytes);
  if (data == nullptr) return NoMemory();
  for (uint32_t at = 0; at < pages; at += kPiecePages) {
    const uint32_t piece = std::min(kPiecePages, pages - at);
    for (uint32_t i = 0; i < piece; ++i) {
      std::byte* page = data.get() + i * kPageBytes;
      const uint32_t begin = (at + i) * kEntriesPerPage;
      const uint32_t count = std::min(kEntriesPerPage, places - begin);
      std::memset(page, 0, kPageBytes);
      std::memcpy(page + kHeaderBytes, entries.data() + begin, count * sizeof(FooterEntry));
      SealPage(page, PageKind::kFooter, segment.number(), first + at + i, count);
    }
    STEPWELL_RETURN_IF_ERROR(segment.file->Pwrite(data.get(), piece * kPageBytes, (first + at) * kPageBytes));
  }
  Summarize(entries, &segment);
  SegmentTrailer trailer{};
  trailer.header = segment.header;
  trailer.places = places;
  trailer.tombstones = segment.tombstones.load();
  trailer.records = segment.records;
  trailer.min_seq = segment.min_seq;
  trailer.max_seq = segment.max_seq;
  trailer.footer_page = first;
  trailer.footer_pages = pages;
  PutPayload(data.get(), trailer);
  SealPage(data.get(), PageKind::kTrailer, segment.number(), first + pages, 0);
  STEPWELL_RETURN_IF_ERROR(segment.file->Pwrite(data.get(), kPageBytes, (first + pages) * kPageBytes));
  return segment.file->Truncate((first + pages + 1) * kPageBytes);
}

SegmentTable::~SegmentTable() {
  for (auto& group : groups_) delete[] group.load();
}

Status SegmentTable::Add(std::shared_ptr<Segment> segment) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (next_slot_ < num_slots_) {
    segment->slot = next_slot_++;
  } else if (!free_slots_.empty()) {
    segment->slot = free_slots_.front();
    free_slots_.pop_front();
  } else {
    return Status(Code::kFull, "the log has " + std::to_string(num_slots_) + " segments of " +
                                   std::to_string(max_places_) +
                                   " records, which is every location an index of 32 bits can name; expire or erase "
                                   "rows, or split the store over more directories (shards)");
  }
  std::atomic<std::atomic<Segment*>*>& group = groups_[segment->slot / kGroup];
  if (group.load() == nullptr) group.store(new std::atomic<Segment*>[kGroup](), std::memory_order_release);
  group.load()[segment->slot % kGroup].store(segment.get(), std::memory_order_release);
  segments_[segment->number()] = std::move(segment);
  return Status::Ok();
}

void SegmentTable::Hide(const Segment& segment) {
  std::lock_guard<std::mutex> lock(mutex_);
  segments_.erase(segment.number());
}

void SegmentTable::Show(std::shared_ptr<Segment> segment) {
  std::lock_guard<std::mutex> lock(mutex_);
  segments_[segment->number()] = std::move(segment);
}

void SegmentTable::FreeSlot(const Segment& segment) {
  std::lock_guard<std::mutex> lock(mutex_);
  free_slots_.push_back(segment.slot);
}

std::vector<std::shared_ptr<Segment>> SegmentTable::All() const {
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<std::shared_ptr<Segment>> all;
  for (const auto& [number, segment] : segments_) all.push_back(segment);
  return all;
}

void SegmentTable::ReserveNumbers(uint64_t below) {
  uint64_t next = next_number_.load();
  while (next < below && !next_number_.compare_exchange_weak(next, below)) {
  }
}

}  // namespace stepwell::ssd
