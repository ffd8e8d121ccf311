// Sync and LinkTo: what is durable, and copies of the log by hard links.
#include <algorithm>

#include "ssd/log.h"

namespace stepwell::ssd {

Status Log::Sync() {
  std::lock_guard<std::mutex> sync_lock(sync_mutex_);
  uint64_t seq = 0, job = 0;
  SyncedPart open;
  {
    std::lock_guard<std::mutex> lock(append_mutex_);
    if (closed_) return Status(Code::kClosed, options_.directory + ": the log is closed");
    seq = last_seq_.load();
    if (seq == synced_seq_.load() && unsynced_.empty()) return Status::Ok();
    EndBlock();
    if (open_ != nullptr) open = SyncedPart{open_->number(), next_place_ / geometry_.records_per_block};
    job = writer_->last_job();
  }
  return SyncTo(seq, job, open);
}

// Requires: sync_mutex_. All records up to seq are in jobs up to `job`; `open` is what they fill of the open segment.
Status Log::SyncTo(uint64_t seq, uint64_t job, const SyncedPart& open) {
  STEPWELL_RETURN_IF_ERROR(writer_->WaitFor(job));
  std::vector<std::shared_ptr<Segment>> files;
  bool directory = false;
  uint64_t next_segment = 0;
  {
    std::lock_guard<std::mutex> lock(append_mutex_);
    next_segment = segments_.next_number();
    files.assign(unsynced_.begin(), unsynced_.end());
    unsynced_.clear();
    std::swap(directory, directory_changed_);
  }
  Status status;
  for (const auto& segment : files) {
    status = segment->file->Datasync();
    if (!status.ok()) break;
  }
  if (status.ok() && directory) status = env_->SyncDirectory(options_.directory);
  if (status.ok()) status = WriteMarker(seq, next_segment, open);
  if (!status.ok()) {
    std::lock_guard<std::mutex> lock(append_mutex_);
    unsynced_.insert(files.begin(), files.end());
    directory_changed_ = directory_changed_ || directory;
    return status;
  }
  if (retired_bytes_.load() > 0) {
    std::lock_guard<std::mutex> lock(background_mutex_);
    nudged_ = true;
    background_wake_.notify_one();
  }
  return Status::Ok();
}

Status Log::WriteMarker(uint64_t seq, uint64_t next_segment, const SyncedPart& open) {
  Marker marker = marker_.current();
  marker.synced_seq = std::max(marker.synced_seq, seq);
  marker.next_segment = next_segment;
  marker.open_segment = open.segment;
  marker.open_blocks = open.blocks;
  STEPWELL_RETURN_IF_ERROR(marker_.Write(marker));
  synced_seq_.store(marker.synced_seq);
  return Status::Ok();
}

Status Log::LinkTo(const std::string& target, std::vector<std::string>* files) {
  Readers::Ticket ticket(readers_);  // no segment is unlinked meanwhile
  std::lock_guard<std::mutex> sync_lock(sync_mutex_);
  std::vector<std::shared_ptr<Segment>> segments;
  uint64_t seq = 0, job = 0;
  {
    std::lock_guard<std::mutex> lock(append_mutex_);
    if (closed_) return Status(Code::kClosed, options_.directory + ": the log is closed");
    SealOpen();
    seq = last_seq_.load();
    job = writer_->last_job();
    segments = segments_.All();
    // Those made ahead hold nothing yet.
    for (const auto& segment : prepared_) std::erase(segments, segment);
  }
  STEPWELL_RETURN_IF_ERROR(SyncTo(seq, job, SyncedPart{}));

  STEPWELL_RETURN_IF_ERROR(env_->MakeDirectory(target));
  std::vector<std::string> names;
  STEPWELL_RETURN_IF_ERROR(env_->List(target, &names));
  for (const std::string& name : names) {
    uint64_t number;
    if (name == kMarkerName || ParseSegmentName(name, &number)) {
      return Status(Code::kInvalid, target + ": holds a log already (" + name + "); choose an empty directory");
    }
  }
  std::vector<std::string> linked;
  Status status;
  for (const auto& segment : segments) {
    const std::string name = SegmentName(segment->number());
    status = env_->Link(options_.directory + "/" + name, target + "/" + name);
    if (!status.ok()) break;
    linked.push_back(name);
  }
  if (status.ok()) {
    Marker marker = marker_.current();
    marker.synced_seq = seq;
    MarkerFile target_marker;
    status = target_marker.Create(env_, target, options_.direct, marker);
  }
  if (!status.ok()) {
    for (const std::string& name : linked) (void)env_->Unlink(target + "/" + name);
    return status;
  }
  linked.push_back(kMarkerName);
  if (files != nullptr) *files = std::move(linked);
  return Status::Ok();
}

}  // namespace stepwell::ssd
