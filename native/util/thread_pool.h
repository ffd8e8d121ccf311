// A pool of threads of a settable size. A call runs its tasks on the caller and on the pool's idle threads; several
// callers may run at once. A pool of one has no thread of its own.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace stepwell {

class ThreadPool {
 public:
  // Requires: num_threads >= 1. The caller of Run counts as one of them.
  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return num_threads_; }

  // Calls task(0) .. task(num_tasks - 1), each once, in any order, and returns when all have returned. A task must
  // not throw, and must not call Run on the same pool.
  void Run(size_t num_tasks, const std::function<void(size_t)>& task);

 private:
  struct Job;
  void Work();

  const int num_threads_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::shared_ptr<Job>> jobs_;  // guarded by mutex_
  bool stop_ = false;                      // guarded by mutex_
  std::vector<std::thread> threads_;
};

}  // namespace stepwell
