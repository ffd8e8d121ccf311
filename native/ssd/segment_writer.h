// SegmentWriter: the thread that writes blocks of open segments, with their checksums, and footers.
//
// Jobs are done in the order they came. A job that fails stays first and keeps its memory, so nothing is lost: the
// thread waits, and tries again when Probe() or WaitFor() asks for it.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "ssd/segment.h"

namespace stepwell::ssd {

struct WriteJob {
  std::shared_ptr<Segment> segment;
  // Blocks [begin, end) of the segment, from `chunk`, whose first block is chunk_first. The last has `last_records`.
  std::shared_ptr<Chunk> chunk;
  uint32_t chunk_first = 0, begin = 0, end = 0, last_records = 0;
  bool chunk_done = false;  // no more blocks will come in this chunk
  bool seal = false;        // instead of blocks: the footer over `places`
  uint32_t places = 0;
};

class SegmentWriter {
 public:
  // on_sealed runs on the writer's thread.
  SegmentWriter(const Geometry& geometry, uint64_t buffer_bytes, std::function<void(Segment&)> on_sealed);
  // Tries what is left once and ends the thread.
  ~SegmentWriter();

  uint32_t blocks_per_chunk() const { return blocks_per_chunk_; }

  // Waits while every chunk is in use (*stalled is set then); while writes fail it hands out more instead, so a
  // caller that has begun can always finish. Null only when there is no memory.
  std::shared_ptr<Chunk> TakeChunk(bool* stalled);
  uint64_t Push(WriteJob job);  // the job's number
  uint64_t last_job();

  // Ok, or the error of one more try if writes are failing.
  Status Probe();
  // Until the job and all before it are done, or one has failed once more.
  Status WaitFor(uint64_t job);

  uint64_t bytes_written() const { return bytes_written_.load(); }
  uint64_t buffer_bytes() const;

 private:
  struct Pool;
  void Work();
  Status Run(const WriteJob& job);
  Status ProbeLocked(std::unique_lock<std::mutex>& lock);

  const Geometry geometry_;
  const uint32_t blocks_per_chunk_;
  const std::function<void(Segment&)> on_sealed_;
  const std::shared_ptr<Pool> pool_;
  std::atomic<uint64_t> bytes_written_{0};

  std::mutex mutex_;
  std::condition_variable work_, done_;
  std::deque<WriteJob> jobs_;  // guarded by mutex_, as all below
  uint64_t pushed_ = 0, finished_ = 0;
  Status error_;
  uint64_t attempts_ = 0;  // tries that ended
  bool retry_ = false;
  bool stop_ = false;
  std::thread thread_;
};

// Zeroes what is unused of a block and writes its pages' headers. `records` <= records_per_block.
void SealBlock(const Geometry& geometry, uint64_t segment, uint32_t block, std::byte* data, uint32_t records);

}  // namespace stepwell::ssd
