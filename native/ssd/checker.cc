// CheckDir: every page of every segment, every record against its footer entry, and repair.
//
// Repair rewrites a damaged segment, under its own number, without the records whose pages fail. Where the footer
// names a lost record, a tombstone of its seq takes its place, so that an older state of the row does not come back.
#include <algorithm>

#include "ssd/log.h"

namespace stepwell {
namespace ssd {
namespace {

class Checker {
 public:
  Checker(Env* env, std::string directory, bool repair, CheckReport* report)
      : env_(env), directory_(std::move(directory)), repair_(repair), report_(report) {}

  Status Run() {
    std::unique_ptr<DirectoryLock> lock;
    STEPWELL_RETURN_IF_ERROR(env_->Lock(directory_ + "/" + kLockName, &lock));
    std::vector<std::string> names;
    STEPWELL_RETURN_IF_ERROR(env_->List(directory_, &names));
    std::vector<uint64_t> numbers;
    for (const std::string& name : names) {
      uint64_t number;
      if (ParseSegmentName(name, &number)) numbers.push_back(number);
    }
    STEPWELL_RETURN_IF_ERROR(CheckMarker(numbers));
    for (const uint64_t number : numbers) STEPWELL_RETURN_IF_ERROR(CheckSegment(number));
    Settle();
    if (repair_ && marker_damaged_) STEPWELL_RETURN_IF_ERROR(RepairMarker());
    report_->repaired = repair_ && !report_->problems.empty();
    return Status::Ok();
  }

 private:
  struct Ranked {
    uint64_t key;
    uint32_t table;
    bool lost;
    uint64_t rank;  // seq and whether it is a tombstone
  };
  struct Piece {  // a segment's state while it is checked
    std::unique_ptr<File> file;
    uint64_t number = 0;
    SegmentHeader header{};
    bool header_good = false, sealed = false, footer_good = true, damaged = false;
    uint32_t places = 0;
    std::vector<FooterEntry> footer;       // entries of bad footer pages are empty
    std::vector<uint8_t> footer_known;     // by place
    std::vector<FooterEntry> records;      // what the data pages say; word 0: nothing or unreadable
    std::vector<uint8_t> bad;              // by place: on a bad page, and its block's record count covers it
  };

  void Problem(const std::string& file, uint64_t offset, const std::string& what) {
    report_->problems.push_back(CheckProblem{file, offset, what});
  }

  // Reads pages [page, page + count) and calls visit(number, bytes). Missing pages read as zeros.
  template <class Visit>
  Status ForPages(File& file, uint64_t page, uint64_t count, Visit&& visit) {
    constexpr uint64_t kPiece = 256;
    AlignedBytes data = AllocateAligned(kPiece * kPageBytes);
    if (data == nullptr) return Status(Code::kIoError, "no memory for the checker's buffer");
    for (uint64_t done = 0; done < count; done += kPiece) {
      const uint64_t part = std::min(kPiece, count - done);
      size_t got = 0;
      STEPWELL_RETURN_IF_ERROR(file.Pread(data.get(), part * kPageBytes, (page + done) * kPageBytes, &got));
      std::memset(data.get() + got, 0, part * kPageBytes - got);
      for (uint64_t i = 0; i < part; ++i) visit(page + done + i, data.get() + i * kPageBytes);
    }
    return Status::Ok();
  }

  bool Exists(uint64_t word) const {
    return word != 0 && SeqOfWord(word) <= marker_.synced_seq && !IsVoid(voids_, SeqOfWord(word));
  }

  Status CheckMarker(const std::vector<uint64_t>& numbers) {
    const std::string path = directory_ + "/" + kMarkerName;
    if (env_->Exists(path)) {
      MarkerFile file;
      std::string damaged_slot;
      const Status status = file.Open(env_, directory_, false, &damaged_slot);
      if (status.code() == Code::kFormat) return status;
      if (!damaged_slot.empty()) {
        const size_t at = damaged_slot.find("offset ");
        Problem(path, at == std::string::npos ? 0 : std::strtoull(damaged_slot.c_str() + at + 7, nullptr, 10),
                damaged_slot);
        marker_damaged_ = true;
      }
      if (status.ok()) {
        marker_ = file.current();
        voids_.assign(marker_.voids, marker_.voids + std::min(marker_.num_voids, kMaxVoidRanges));
        return UseFormat();
      }
      if (status.code() != Code::kCorrupt) return status;
    } else if (numbers.empty()) {
      return Status(Code::kInvalid, directory_ + ": holds no log");
    } else {
      Problem(path, 0, path + ": is missing");
    }
    // What was synced is not known, so every intact record counts; the layout comes from the segments.
    marker_damaged_ = true;
    marker_.synced_seq = kMaxSeq;
    for (const uint64_t number : numbers) {
      std::unique_ptr<File> file;
      STEPWELL_RETURN_IF_ERROR(
          env_->Open(directory_ + "/" + SegmentName(number), Env::Mode::kRead, false, &file));
      uint64_t bytes = 0;
      STEPWELL_RETURN_IF_ERROR(file->Size(&bytes));
      marker_.segment_bytes = std::max<uint64_t>({marker_.segment_bytes, bytes, uint64_t{64} << 20});
      SegmentTrailer trailer;
      if (marker_.record_bytes == 0 && ReadTrailer(*file, number, &trailer).ok()) UseHeader(trailer.header);
      STEPWELL_RETURN_IF_ERROR(ForPages(*file, 0, 1, [&](uint64_t, const std::byte* page) {
        if (PageIsGood(page, PageKind::kSegment, number, 0)) UseHeader(GetPayload<SegmentHeader>(page));
      }));
    }
    if (marker_.record_bytes == 0) {
      return Status(Code::kCorrupt, directory_ + ": neither SYNCED nor any segment says what its records are");
    }
    return UseFormat();
  }

  void UseHeader(const SegmentHeader& header) {
    marker_.record_bytes = header.record_bytes;
    marker_.fingerprint = header.fingerprint;
    marker_.count_offset = header.count_offset;
    marker_.step_offset = header.step_offset;
  }
  Status UseFormat() {
    report_->record_bytes = marker_.record_bytes;
    report_->fingerprint = marker_.fingerprint;
    report_->synced_seq = marker_.synced_seq;
    return Geometry::Make(marker_.record_bytes, marker_.segment_bytes, &geometry_);
  }

  Status CheckSegment(uint64_t number) {
    Piece piece;
    piece.number = number;
    const std::string path = directory_ + "/" + SegmentName(number);
    STEPWELL_RETURN_IF_ERROR(env_->Open(path, Env::Mode::kRead, false, &piece.file));
    uint64_t bytes = 0;
    STEPWELL_RETURN_IF_ERROR(piece.file->Size(&bytes));
    const size_t problems = report_->problems.size();
    Status header;
    STEPWELL_RETURN_IF_ERROR(ForPages(*piece.file, 0, 1, [&](uint64_t, const std::byte* page) {
      header = CheckPage(page, PageKind::kSegment, number, 0, path);
      if (header.ok()) piece.header = GetPayload<SegmentHeader>(page);
    }));
    if (header.code() == Code::kFormat) return header;
    piece.header_good = header.ok();
    SegmentTrailer trailer{};
    const Status sealed = ReadTrailer(*piece.file, number, &trailer);
    piece.sealed = sealed.ok();
    if (!piece.header_good && !piece.sealed && number >= marker_.next_segment && !marker_damaged_) {
      return Status::Ok();  // made and never synced; opening the log removes it
    }
    ++report_->segments;
    if (!piece.header_good) {
      Problem(path, 0, header.message());
      piece.header = piece.sealed ? trailer.header
                                  : SegmentHeader{number, 0, marker_.fingerprint, marker_.record_bytes,
                                                  marker_.count_offset, marker_.step_offset, 0};
    }
    if (piece.header.record_bytes != marker_.record_bytes || piece.header.fingerprint != marker_.fingerprint) {
      return Status(Code::kFormat, path + ": offset 0: holds records of " + std::to_string(piece.header.record_bytes) +
                                       " bytes, the log holds records of " + std::to_string(marker_.record_bytes));
    }
    if (piece.sealed) {
      piece.places = static_cast<uint32_t>(trailer.places);
      STEPWELL_RETURN_IF_ERROR(CheckFooter(trailer, path, &piece));
    } else {
      const uint64_t pages = bytes / kPageBytes;
      piece.places = static_cast<uint32_t>(pages < 2 ? 0 : (pages - 1) / geometry_.block_pages) *
                     geometry_.records_per_block;
      if (pages >= 2) {
        bool zero = true, data = false;
        STEPWELL_RETURN_IF_ERROR(ForPages(*piece.file, pages - 1, 1, [&](uint64_t page, const std::byte* at) {
          zero = std::all_of(at, at + kPageBytes, [](std::byte byte) { return byte == std::byte{0}; });
          data = PageIsGood(at, PageKind::kData, number, page);
        }));
        if (!zero && !data) Problem(path, (pages - 1) * kPageBytes, sealed.message());
      }
    }
    STEPWELL_RETURN_IF_ERROR(CheckData(path, &piece));
    Count(path, problems, &piece);
    piece.damaged = report_->problems.size() > problems;
    return piece.damaged && repair_ ? RepairSegment(path, piece) : Status::Ok();
  }

  Status CheckFooter(const SegmentTrailer& trailer, const std::string& path, Piece* piece) {
    piece->footer.resize(piece->places);
    piece->footer_known.resize(piece->places);
    if (trailer.footer_pages != geometry_.FooterPages(piece->places)) {
      Problem(path, (trailer.footer_page + trailer.footer_pages) * kPageBytes,
              path + ": the trailer's counts do not agree with each other");
      return Status::Ok();
    }
    return ForPages(*piece->file, trailer.footer_page, trailer.footer_pages, [&](uint64_t page, const std::byte* at) {
      const Status status = CheckPage(at, PageKind::kFooter, piece->number, page, path);
      if (!status.ok()) {
        Problem(path, page * kPageBytes, status.message());
        return;
      }
      const auto begin = static_cast<uint32_t>((page - trailer.footer_page) * kEntriesPerPage);
      const uint32_t count = std::min(kEntriesPerPage, piece->places - begin);
      std::memcpy(piece->footer.data() + begin, at + kHeaderBytes, count * sizeof(FooterEntry));
      std::fill_n(piece->footer_known.begin() + begin, count, uint8_t{1});
    });
  }

  Status CheckData(const std::string& path, Piece* piece) {
    const uint32_t blocks = piece->places / geometry_.records_per_block;
    piece->records.assign(piece->places, FooterEntry{});
    piece->bad.assign(piece->places, 0);
    std::vector<std::byte> block(geometry_.BlockBytes());
    std::vector<uint8_t> good(geometry_.block_pages);
    std::vector<std::byte> record(geometry_.record_bytes);
    std::vector<CheckProblem> pending;  // of an open segment: a torn tail is no problem
    uint32_t at_block = 0;
    return ForPages(*piece->file, 1, uint64_t{blocks} * geometry_.block_pages, [&](uint64_t page, const std::byte* at) {
      const auto in_block = static_cast<uint32_t>((page - 1) % geometry_.block_pages);
      std::memcpy(block.data() + in_block * kPageBytes, at, kPageBytes);
      const Status status = CheckPage(at, PageKind::kData, piece->number, page, path);
      good[in_block] = status.ok();
      if (!status.ok()) pending.push_back({path, page * kPageBytes, status.message()});
      if (in_block + 1 < geometry_.block_pages) return;
      uint32_t records = geometry_.records_per_block;
      bool any = false;
      for (uint32_t i = 0; i < geometry_.block_pages; ++i) {
        if (!good[i]) continue;
        records = std::min<uint32_t>(HeaderOf(block.data() + i * kPageBytes).records, geometry_.records_per_block);
        any = true;
      }
      const bool synced = piece->number == marker_.open_segment && at_block < marker_.open_blocks;
      if (any || piece->sealed || synced) {
        for (CheckProblem& problem : pending) report_->problems.push_back(std::move(problem));
        pending.clear();
      }
      for (uint32_t i = 0; i < records; ++i) {
        const uint32_t place = at_block * geometry_.records_per_block + i;
        const uint32_t stream = i * geometry_.stored_bytes;
        for (uint32_t p = stream / kPayloadBytes; p <= (stream + geometry_.stored_bytes - 1) / kPayloadBytes; ++p) {
          if (!good[p]) piece->bad[place] = 1;
        }
        if (piece->bad[place]) continue;
        const RecordView view{block.data(), stream};
        const RecordKey key = view.key();
        view.CopyRecord(record.data(), geometry_.record_bytes);
        piece->records[place] = FooterEntry{
            key.id, key.word,
            IsTombstone(key.word) ? 0 : FieldOr(record.data(), piece->header.step_offset, UINT32_MAX)};
      }
      ++at_block;
    });
  }

  // Compares records with the footer, and notes what exists.
  // `others`: problems that were known before the segment's own.
  void Count(const std::string& path, size_t others, Piece* piece) {
    bool synced = false;  // some record
    for (uint32_t place = 0; place < piece->places; ++place) {
      const FooterEntry& record = piece->records[place];
      const bool known = piece->sealed && piece->footer_known[place];
      const uint64_t offset = geometry_.BlockOffset(geometry_.BlockOf(place)) +
                              geometry_.StreamOffset(place) / kPayloadBytes * kPageBytes;
      if (piece->bad[place]) {
        if (!known) {
          const bool synced = piece->number == marker_.open_segment &&
                              geometry_.BlockOf(place) < marker_.open_blocks;
          if (piece->sealed || synced || place < LastRecord(*piece)) ++report_->lost_unnamed;
        } else if (Exists(piece->footer[place].word)) {
          Rank(piece->footer[place], true);
        }
        continue;
      }
      if (known && std::memcmp(&record, &piece->footer[place], sizeof(record)) != 0) {
        Problem(path, offset, path + ": offset " + std::to_string(offset) + ": record " + std::to_string(place) +
                                  " is id " + std::to_string(record.id) + " word " + std::to_string(record.word) +
                                  ", the footer says id " + std::to_string(piece->footer[place].id) + " word " +
                                  std::to_string(piece->footer[place].word));
      }
      if (record.word == 0) continue;
      ++report_->records;
      if (!Exists(record.word)) continue;
      Rank(record, false);
      synced = true;
    }
    if (!synced || piece->sealed) return;
    const bool open_is_known = marker_.synced_seq != kMaxSeq;
    if (!open_is_known) {  // the newest one it was
      if (piece->number < marker_.open_segment) return;
      marker_.open_segment = piece->number;
      marker_.open_blocks = geometry_.BlockOf(LastRecord(*piece) - 1) + 1;
    } else if ((marker_.open_blocks == 0 || piece->number != marker_.open_segment) &&
               others == report_->problems.size()) {
      uint64_t bytes = 0;
      (void)piece->file->Size(&bytes);
      Problem(path, bytes, EndIsGone(path, bytes));
    }
  }

  static uint32_t LastRecord(const Piece& piece) {
    uint32_t last = piece.places;
    while (last > 0 && piece.records[last - 1].word == 0) --last;
    return last;
  }

  void Rank(const FooterEntry& entry, bool lost) {
    ranked_.push_back(Ranked{KeyOfId(entry.id), TableOfWord(entry.word), lost,
                             SeqOfWord(entry.word) << 1 | IsTombstone(entry.word)});
    max_seq_ = std::max(max_seq_, SeqOfWord(entry.word));
  }

  // Of each key the highest rank counts; of equal ones an intact copy.
  void Settle() {
    std::sort(ranked_.begin(), ranked_.end(), [](const Ranked& a, const Ranked& b) {
      return std::tie(a.table, a.key, a.rank, b.lost) < std::tie(b.table, b.key, b.rank, a.lost);
    });
    for (size_t i = 0; i < ranked_.size(); ++i) {
      const Ranked& last = ranked_[i];
      if (i + 1 < ranked_.size() && ranked_[i + 1].table == last.table && ranked_[i + 1].key == last.key) continue;
      if (last.rank & 1) {
        ++report_->tombstones;
      } else if (last.lost) {
        report_->lost.emplace_back(last.table, IdOfKey(last.key));
      } else {
        ++report_->live_rows;
      }
    }
  }

  Status RepairSegment(const std::string& path, const Piece& piece) {
    const std::string temporary = path + ".tmp";
    Segment made;
    made.header = piece.header;
    std::vector<std::pair<uint32_t, FooterEntry>> keep;  // old place and record
    for (uint32_t place = 0; place < piece.places; ++place) {
      if (!piece.bad[place]) {
        if (Exists(piece.records[place].word)) keep.emplace_back(place, piece.records[place]);
      } else if (piece.sealed && piece.footer_known[place] && Exists(piece.footer[place].word)) {
        FooterEntry tombstone = piece.footer[place];
        tombstone.word |= uint64_t{1} << 15;
        tombstone.last_step = 0;
        keep.emplace_back(place, tombstone);
      }
    }
    if (keep.empty()) {
      STEPWELL_RETURN_IF_ERROR(env_->Unlink(path));
      return env_->SyncDirectory(directory_);
    }
    STEPWELL_RETURN_IF_ERROR(env_->Open(temporary, Env::Mode::kCreate, false, &made.file));
    STEPWELL_RETURN_IF_ERROR(WriteHeader(*made.file, made.header));
    const uint32_t per_block = geometry_.records_per_block;
    const auto blocks = static_cast<uint32_t>((keep.size() + per_block - 1) / per_block);
    std::vector<FooterEntry> entries(size_t{blocks} * per_block);
    AlignedBytes from = AllocateAligned(geometry_.BlockBytes()), to = AllocateAligned(geometry_.BlockBytes());
    if (from == nullptr || to == nullptr) return Status(Code::kIoError, "no memory for repair's buffers");
    std::vector<std::byte> record(geometry_.record_bytes);
    uint32_t from_block = UINT32_MAX;
    for (uint32_t block = 0; block < blocks; ++block) {
      uint32_t records = 0;
      for (; records < per_block && size_t{block} * per_block + records < keep.size(); ++records) {
        const auto& [place, entry] = keep[size_t{block} * per_block + records];
        entries[size_t{block} * per_block + records] = entry;
        std::fill(record.begin(), record.end(), std::byte{0});
        if (!IsTombstone(entry.word)) {
          if (geometry_.BlockOf(place) != from_block) {
            from_block = geometry_.BlockOf(place);
            size_t got = 0;
            STEPWELL_RETURN_IF_ERROR(
                piece.file->Pread(from.get(), geometry_.BlockBytes(), geometry_.BlockOffset(from_block), &got));
          }
          CopyOut(from.get(), geometry_.StreamOffset(place) + sizeof(RecordKey), record.data(),
                  geometry_.record_bytes);
        }
        const RecordKey key{entry.id, entry.word};
        CopyIn(to.get(), records * geometry_.stored_bytes, &key, sizeof(key));
        CopyIn(to.get(), records * geometry_.stored_bytes + sizeof(key), record.data(), geometry_.record_bytes);
      }
      SealBlock(geometry_, piece.number, block, to.get(), records);
      STEPWELL_RETURN_IF_ERROR(made.file->Pwrite(to.get(), geometry_.BlockBytes(), geometry_.BlockOffset(block)));
    }
    STEPWELL_RETURN_IF_ERROR(WriteFooter(geometry_, made, entries));
    STEPWELL_RETURN_IF_ERROR(made.file->Datasync());
    STEPWELL_RETURN_IF_ERROR(env_->Rename(temporary, path));
    return env_->SyncDirectory(directory_);
  }

  Status RepairMarker() {
    if (marker_.synced_seq == kMaxSeq) marker_.synced_seq = max_seq_;
    MarkerFile file;
    report_->synced_seq = marker_.synced_seq;
    return file.Create(env_, directory_, false, marker_);
  }

  Env* const env_;
  const std::string directory_;
  const bool repair_;
  CheckReport* const report_;
  Marker marker_{};
  bool marker_damaged_ = false;
  std::vector<VoidRange> voids_;
  Geometry geometry_;
  std::vector<Ranked> ranked_;
  uint64_t max_seq_ = 0;
};

}  // namespace
}  // namespace ssd

Status CheckDir(const std::string& directory, bool repair, CheckReport* report, Env* env) {
  *report = CheckReport{};
  return ssd::Checker(env == nullptr ? Env::Posix() : env, directory, repair, report).Run();
}

Status ReadFormat(const std::string& directory, SsdFormat* format, Env* env) {
  if (env == nullptr) env = Env::Posix();
  if (!env->Exists(directory + "/" + ssd::kMarkerName)) {
    return Status(Code::kInvalid, directory + ": holds no log (no " + ssd::kMarkerName + " file)");
  }
  ssd::MarkerFile file;
  std::string damaged_slot;
  STEPWELL_RETURN_IF_ERROR(file.Open(env, directory, false, &damaged_slot));
  const ssd::Marker marker = file.current();
  *format = SsdFormat{marker.record_bytes, marker.count_offset,  marker.step_offset,
                      marker.fingerprint,  marker.segment_bytes, marker.synced_seq};
  return Status::Ok();
}

}  // namespace stepwell
