// PageReader: many reads at once, through io_uring or through a pool of threads that call pread. The same answers
// from both; a file's injected faults (File::ReadFault) are seen by both.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "io/aligned.h"
#include "io/env.h"
#include "io/uring.h"
#include "util/thread_pool.h"

namespace stepwell {

struct ReadExtent {
  File* file = nullptr;
  uint64_t offset = 0;  // a multiple of 4096
  uint32_t bytes = 0;   // a multiple of 4096, at most the reader's max_bytes
};

class PageReader {
 public:
  // done(i, data, status) for extent i, from any thread, several at a time; data is valid during the call only and
  // holds all the bytes asked for if status is ok.
  using Done = std::function<void(size_t, const std::byte*, const Status&)>;

  virtual ~PageReader() = default;
  virtual const char* kind() const = 0;
  // Reads every extent, in the order given as far as that matters for speed; returns when all are done. Safe to call
  // from several threads. `depth`: at most so many in flight (0: the reader's own depth).
  virtual void Read(const std::vector<ReadExtent>& extents, const Done& done, uint32_t depth = 0) = 0;
  virtual uint64_t buffer_bytes() = 0;
};

// Requires: max_bytes is a multiple of 4096. kIoError where io_uring cannot be used.
Status NewUringReader(uint32_t depth, uint32_t max_bytes, std::unique_ptr<PageReader>* reader);
std::unique_ptr<PageReader> NewPreadReader(uint32_t threads, uint32_t max_bytes);

}  // namespace stepwell
