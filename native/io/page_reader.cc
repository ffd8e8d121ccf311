#include "io/page_reader.h"

#include <algorithm>

namespace stepwell {
namespace {

Status ShortRead(const ReadExtent& extent, size_t got) {
  return Status(Code::kCorrupt, extent.file->path() + ": offset " + std::to_string(extent.offset) + ": the file ends " +
                                    std::to_string(got) + " bytes on, expected " + std::to_string(extent.bytes) +
                                    "; it was cut short: run `stepwell store check` on the directory");
}

Status NoMemory() { return Status(Code::kIoError, "no memory for read buffers; free some or read smaller batches"); }

// Things that a call borrows, so that as many are made as calls ever ran at the same time.
template <class T>
class Shelf {
 public:
  std::unique_ptr<T> Take() {
    std::lock_guard<std::mutex> lock(mutex_);
    if (items_.empty()) return nullptr;
    std::unique_ptr<T> item = std::move(items_.back());
    items_.pop_back();
    return item;
  }
  void Put(std::unique_ptr<T> item) {
    std::lock_guard<std::mutex> lock(mutex_);
    items_.push_back(std::move(item));
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<T>> items_;
};

class UringReader : public PageReader {
 public:
  UringReader(uint32_t depth, uint32_t max_bytes) : depth_(depth), max_bytes_(max_bytes) {}

  struct Queue {
    std::unique_ptr<Uring> ring;
    AlignedBytes memory;  // depth buffers of max_bytes
    std::vector<uint32_t> free;
    std::vector<size_t> extent;  // that a buffer is in flight for; kIdle: it is free
  };
  static constexpr size_t kIdle = SIZE_MAX;

  Status NewQueue(std::unique_ptr<Queue>* queue) {
    auto made = std::make_unique<Queue>();
    STEPWELL_RETURN_IF_ERROR(Uring::Create(depth_, &made->ring));
    made->memory = AllocateAligned(size_t{depth_} * max_bytes_);
    if (made->memory == nullptr) return NoMemory();
    for (uint32_t i = depth_; i-- > 0;) made->free.push_back(i);
    made->extent.assign(depth_, kIdle);
    num_queues_.fetch_add(1);
    *queue = std::move(made);
    return Status::Ok();
  }
  void Put(std::unique_ptr<Queue> queue) { shelf_.Put(std::move(queue)); }

  const char* kind() const override { return "uring"; }
  uint64_t buffer_bytes() override { return num_queues_.load() * uint64_t{depth_} * max_bytes_; }

  void Read(const std::vector<ReadExtent>& extents, const Done& done, uint32_t depth) override {
    if (extents.empty()) return;
    std::unique_ptr<Queue> queue = shelf_.Take();
    if (queue == nullptr) {
      const Status status = NewQueue(&queue);
      if (!status.ok()) {
        for (size_t i = 0; i < extents.size(); ++i) done(i, nullptr, status);
        return;
      }
    }
    const size_t limit = depth == 0 ? depth_ : std::min(depth, depth_);
    Uring& ring = *queue->ring;
    size_t next = 0, in_flight = 0;
    Status broken;
    while (next < extents.size() || in_flight > 0) {
      for (; next < extents.size() && in_flight < limit && broken.ok(); ++next, ++in_flight) {
        const ReadExtent& extent = extents[next];
        const uint32_t buffer = queue->free.back();
        queue->free.pop_back();
        queue->extent[buffer] = next;
        ring.QueueRead(extent.file->descriptor(), Buffer(*queue, buffer), extent.bytes, extent.offset, buffer);
      }
      if (in_flight == 0) break;
      // Reads are handed over in groups: fewer system calls, and the device still has most of its queue.
      const Status status = ring.Submit(static_cast<uint32_t>(std::max<size_t>(1, std::min(in_flight, limit / 4))));
      if (!status.ok()) broken = status;
      uint64_t tag;
      int32_t result;
      while (ring.Take(&tag, &result)) {
        const auto buffer = static_cast<uint32_t>(tag);
        const size_t i = queue->extent[buffer];
        Finish(extents[i], i, Buffer(*queue, buffer), result, done);
        queue->extent[buffer] = kIdle;
        queue->free.push_back(buffer);
        --in_flight;
      }
      if (!broken.ok()) break;
    }
    if (broken.ok()) {
      shelf_.Put(std::move(queue));
      return;
    }
    // The ring itself failed. Its memory must outlive reads that may still be in flight, so it is given up.
    for (const size_t i : queue->extent) {
      if (i != kIdle) done(i, nullptr, broken);
    }
    for (size_t i = next; i < extents.size(); ++i) done(i, nullptr, broken);
    (void)queue.release();
  }

 private:
  std::byte* Buffer(const Queue& queue, uint32_t i) const { return queue.memory.get() + size_t{i} * max_bytes_; }

  void Finish(const ReadExtent& extent, size_t i, std::byte* data, int32_t result, const Done& done) {
    Status status = extent.file->ReadFault(extent.offset, extent.bytes);
    if (status.ok() && result != static_cast<int32_t>(extent.bytes)) {
      // Short or interrupted: the slow way gives the bytes or the reason.
      size_t got = 0;
      status = extent.file->Pread(data, extent.bytes, extent.offset, &got);
      if (status.ok() && got != extent.bytes) status = ShortRead(extent, got);
    }
    done(i, data, status);
  }

  const uint32_t depth_;
  const uint32_t max_bytes_;
  std::atomic<uint64_t> num_queues_{0};
  Shelf<Queue> shelf_;
};

class PreadReader : public PageReader {
 public:
  PreadReader(uint32_t threads, uint32_t max_bytes) : max_bytes_(max_bytes), pool_(static_cast<int>(threads) + 1) {}

  const char* kind() const override { return "pread"; }
  uint64_t buffer_bytes() override { return num_buffers_.load() * max_bytes_; }

  void Read(const std::vector<ReadExtent>& extents, const Done& done, uint32_t depth) override {
    const size_t workers = depth == 0 ? SIZE_MAX : depth;
    const size_t per_task = std::max<size_t>({1, extents.size() / workers, std::min<size_t>(8, extents.size() / 64)});
    const size_t num_tasks = (extents.size() + per_task - 1) / per_task;
    pool_.Run(num_tasks, [&](size_t task) {
      std::unique_ptr<AlignedBytes> buffer = shelf_.Take();
      if (buffer == nullptr) {
        buffer = std::make_unique<AlignedBytes>(AllocateAligned(max_bytes_));
        num_buffers_.fetch_add(1);
      }
      for (size_t i = task * per_task; i < std::min(extents.size(), (task + 1) * per_task); ++i) {
        const ReadExtent& extent = extents[i];
        size_t got = 0;
        Status status = *buffer == nullptr ? NoMemory()
                                           : extent.file->Pread(buffer->get(), extent.bytes, extent.offset, &got);
        if (status.ok() && got != extent.bytes) status = ShortRead(extent, got);
        done(i, buffer->get(), status);
      }
      if (*buffer != nullptr) shelf_.Put(std::move(buffer));
    });
  }

 private:
  const uint32_t max_bytes_;
  std::atomic<uint64_t> num_buffers_{0};
  Shelf<AlignedBytes> shelf_;
  ThreadPool pool_;
};

}  // namespace

Status NewUringReader(uint32_t depth, uint32_t max_bytes, std::unique_ptr<PageReader>* reader) {
  auto made = std::make_unique<UringReader>(depth, max_bytes);
  std::unique_ptr<UringReader::Queue> queue;
  STEPWELL_RETURN_IF_ERROR(made->NewQueue(&queue));
  made->Put(std::move(queue));
  *reader = std::move(made);
  return Status::Ok();
}

std::unique_ptr<PageReader> NewPreadReader(uint32_t threads, uint32_t max_bytes) {
  return std::make_unique<PreadReader>(threads, max_bytes);
}

}  // namespace stepwell
