#include "ssd/segment_writer.h"

#include <algorithm>

namespace stepwell::ssd {

constexpr uint64_t kChunkBytes = uint64_t{1} << 20;  // a write large enough for the device's full speed

struct SegmentWriter::Pool {
  Pool(size_t bytes, size_t count) : chunk_bytes(bytes), max_chunks(count) {}
  const size_t chunk_bytes;
  const size_t max_chunks;
  std::mutex mutex;
  std::condition_variable returned;
  std::vector<std::unique_ptr<Chunk>> free;  // guarded by mutex
  size_t made = 0;                           // guarded by mutex; chunks that exist
  bool failing = false;                      // guarded by mutex
};

void SealBlock(const Geometry& geometry, uint64_t segment, uint32_t block, std::byte* data, uint32_t records) {
  const uint32_t used = records * geometry.stored_bytes;
  ZeroIn(data, used, static_cast<uint32_t>(geometry.block_pages * kPayloadBytes) - used);
  const uint64_t first = geometry.BlockOffset(block) / kPageBytes;
  for (uint32_t page = 0; page < geometry.block_pages; ++page) {
    SealPage(data + page * kPageBytes, PageKind::kData, segment, first + page, records);
  }
}

namespace {
uint32_t BlocksPerChunk(const Geometry& geometry) {
  return std::max<uint32_t>(1, static_cast<uint32_t>(kChunkBytes / geometry.BlockBytes()));
}
}  // namespace

SegmentWriter::SegmentWriter(const Geometry& geometry, uint64_t buffer_bytes, std::function<void(Segment&)> on_sealed)
    : geometry_(geometry),
      blocks_per_chunk_(std::min(BlocksPerChunk(geometry), geometry.max_blocks)),
      on_sealed_(std::move(on_sealed)),
      pool_(std::make_shared<Pool>(
          size_t{blocks_per_chunk_} * geometry.BlockBytes(),
          std::max<uint64_t>(3, buffer_bytes / (uint64_t{blocks_per_chunk_} * geometry.BlockBytes())))) {
  thread_ = std::thread([this] { Work(); });
}

SegmentWriter::~SegmentWriter() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
  }
  work_.notify_all();
  thread_.join();
}

uint64_t SegmentWriter::buffer_bytes() const {
  std::lock_guard<std::mutex> lock(pool_->mutex);
  return pool_->made * pool_->chunk_bytes;
}

std::shared_ptr<Chunk> SegmentWriter::TakeChunk(bool* stalled) {
  std::unique_ptr<Chunk> chunk;
  {
    std::unique_lock<std::mutex> lock(pool_->mutex);
    while (pool_->free.empty() && pool_->made >= pool_->max_chunks && !pool_->failing) {
      *stalled = true;
      pool_->returned.wait(lock);
    }
    if (!pool_->free.empty()) {
      chunk = std::move(pool_->free.back());
      pool_->free.pop_back();
    } else {
      ++pool_->made;
    }
  }
  if (chunk == nullptr) {
    chunk = std::make_unique<Chunk>();
    chunk->data = AllocateAligned(pool_->chunk_bytes);
    if (chunk->data == nullptr) {
      std::lock_guard<std::mutex> lock(pool_->mutex);
      --pool_->made;
      return nullptr;
    }
  }
  // Readers may hold the chunk longer than the log does; the last one hands it back.
  return std::shared_ptr<Chunk>(chunk.release(), [pool = pool_](Chunk* back) {
    std::unique_ptr<Chunk> owned(back);
    std::lock_guard<std::mutex> lock(pool->mutex);
    if (pool->made > pool->max_chunks) {
      --pool->made;
    } else {
      pool->free.push_back(std::move(owned));
    }
    pool->returned.notify_one();
  });
}

uint64_t SegmentWriter::Push(WriteJob job) {
  std::lock_guard<std::mutex> lock(mutex_);
  jobs_.push_back(std::move(job));
  work_.notify_one();
  return ++pushed_;
}

uint64_t SegmentWriter::last_job() {
  std::lock_guard<std::mutex> lock(mutex_);
  return pushed_;
}

Status SegmentWriter::ProbeLocked(std::unique_lock<std::mutex>& lock) {
  if (error_.ok()) return Status::Ok();
  const uint64_t attempt = attempts_;
  retry_ = true;
  work_.notify_one();
  done_.wait(lock, [&] { return attempts_ > attempt; });
  return error_;
}

Status SegmentWriter::Probe() {
  std::unique_lock<std::mutex> lock(mutex_);
  return ProbeLocked(lock);
}

Status SegmentWriter::WaitFor(uint64_t job) {
  std::unique_lock<std::mutex> lock(mutex_);
  bool probed = false;
  while (finished_ < job) {
    if (!error_.ok()) {
      if (probed) return error_;
      probed = true;
      STEPWELL_RETURN_IF_ERROR(ProbeLocked(lock));
      continue;
    }
    done_.wait(lock, [&] { return finished_ >= job || !error_.ok(); });
  }
  return Status::Ok();
}

void SegmentWriter::Work() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    work_.wait(lock, [this] { return stop_ || (!jobs_.empty() && (error_.ok() || retry_)); });
    if (jobs_.empty() || (stop_ && !error_.ok())) return;  // only when stopping
    const WriteJob job = jobs_.front();
    retry_ = false;
    lock.unlock();
    Status status = Run(job);
    {
      std::lock_guard<std::mutex> pool_lock(pool_->mutex);
      pool_->failing = !status.ok();
      if (pool_->failing) pool_->returned.notify_all();
    }
    lock.lock();
    error_ = status;
    ++attempts_;
    if (status.ok()) {
      jobs_.pop_front();
      ++finished_;
    }
    done_.notify_all();
  }
}

Status SegmentWriter::Run(const WriteJob& job) {
  Segment& segment = *job.segment;
  if (job.seal) {
    std::shared_ptr<std::vector<FooterEntry>> entries;
    {
      std::lock_guard<std::mutex> lock(segment.chunk_mutex);
      entries = segment.entries;
    }
    const std::vector<FooterEntry> sealed(entries->begin(), entries->begin() + job.places);
    STEPWELL_RETURN_IF_ERROR(WriteFooter(geometry_, segment, sealed));
    bytes_written_ += geometry_.FooterPages(job.places) * kPageBytes;
    {
      std::lock_guard<std::mutex> lock(segment.chunk_mutex);
      segment.entries.reset();
    }
    segment.sealed.store(true, std::memory_order_release);
    on_sealed_(segment);
    return Status::Ok();
  }
  std::byte* data = job.chunk->data.get() + size_t{job.begin - job.chunk_first} * geometry_.BlockBytes();
  for (uint32_t block = job.begin; block < job.end; ++block) {
    const uint32_t records = block + 1 == job.end ? job.last_records : geometry_.records_per_block;
    SealBlock(geometry_, segment.number(), block, data + size_t{block - job.begin} * geometry_.BlockBytes(), records);
  }
  if (job.begin < job.end) {
    const size_t bytes = size_t{job.end - job.begin} * geometry_.BlockBytes();
    STEPWELL_RETURN_IF_ERROR(segment.file->Pwrite(data, bytes, geometry_.BlockOffset(job.begin)));
    bytes_written_ += bytes;
    segment.written_blocks.store(job.end, std::memory_order_release);
  }
  if (job.chunk_done) {
    const uint32_t number = job.chunk_first / blocks_per_chunk_;
    std::lock_guard<std::mutex> lock(segment.chunk_mutex);
    std::erase_if(segment.chunks, [&](const auto& chunk) { return chunk.first == number; });
  }
  return Status::Ok();
}

}  // namespace stepwell::ssd
