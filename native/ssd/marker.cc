#include "ssd/marker.h"

#include "io/aligned.h"

namespace stepwell::ssd {
namespace {

void FillSlot(std::byte* page, const Marker& marker, uint64_t slot) {
  PutPayload(page, marker);
  SealPage(page, PageKind::kMarker, 0, slot, 0);
}

}  // namespace

Status MarkerFile::Create(Env* env, const std::string& directory, bool direct, const Marker& marker) {
  // Under another name first: a crash leaves either no SYNCED file or a whole one.
  const std::string path = directory + "/" + kMarkerName;
  AlignedBytes pages = AllocateAligned(2 * kPageBytes);
  if (pages == nullptr) return Status(Code::kIoError, "no memory for a page");
  FillSlot(pages.get(), marker, 0);
  FillSlot(pages.get() + kPageBytes, marker, 1);
  {
    std::unique_ptr<File> file;
    STEPWELL_RETURN_IF_ERROR(env->Open(path + ".tmp", Env::Mode::kCreate, direct, &file));
    STEPWELL_RETURN_IF_ERROR(file->Pwrite(pages.get(), 2 * kPageBytes, 0));
    STEPWELL_RETURN_IF_ERROR(file->Datasync());
  }
  STEPWELL_RETURN_IF_ERROR(env->Rename(path + ".tmp", path));
  STEPWELL_RETURN_IF_ERROR(env->SyncDirectory(directory));
  STEPWELL_RETURN_IF_ERROR(env->Open(path, Env::Mode::kReadWrite, direct, &file_));
  std::lock_guard<std::mutex> lock(mutex_);
  current_ = marker;
  return Status::Ok();
}

Status MarkerFile::Open(Env* env, const std::string& directory, bool direct, std::string* damaged_slot) {
  const std::string path = directory + "/" + kMarkerName;
  STEPWELL_RETURN_IF_ERROR(env->Open(path, Env::Mode::kReadWrite, direct, &file_));
  AlignedBytes pages = AllocateAligned(2 * kPageBytes);
  if (pages == nullptr) return Status(Code::kIoError, "no memory for a page");
  size_t got = 0;
  STEPWELL_RETURN_IF_ERROR(file_->Pread(pages.get(), 2 * kPageBytes, 0, &got));
  if (got < 2 * kPageBytes) std::memset(pages.get() + got, 0, 2 * kPageBytes - got);
  std::lock_guard<std::mutex> lock(mutex_);
  bool any = false;
  Status bad;
  for (uint64_t slot = 0; slot < 2; ++slot) {
    const std::byte* page = pages.get() + slot * kPageBytes;
    const Status status = CheckPage(page, PageKind::kMarker, 0, slot, path);
    if (status.code() == Code::kFormat) return status;
    if (!status.ok()) {
      *damaged_slot = status.message();
      bad = status;
      continue;
    }
    const Marker marker = GetPayload<Marker>(page);
    if (!any || marker.generation > current_.generation) current_ = marker;
    any = true;
  }
  return any ? Status::Ok() : bad;
}

Status MarkerFile::Write(Marker marker) {
  std::lock_guard<std::mutex> lock(mutex_);
  marker.generation = current_.generation + 1;
  AlignedBytes page = AllocateAligned(kPageBytes);
  if (page == nullptr) return Status(Code::kIoError, "no memory for a page");
  const uint64_t slot = marker.generation % 2;
  FillSlot(page.get(), marker, slot);
  STEPWELL_RETURN_IF_ERROR(file_->Pwrite(page.get(), kPageBytes, slot * kPageBytes));
  STEPWELL_RETURN_IF_ERROR(file_->Datasync());
  current_ = marker;
  return Status::Ok();
}

}  // namespace stepwell::ssd
