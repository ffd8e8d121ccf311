// A pool of threads of a settable size. A call runs its tasks on the caller and on the pool's idle threads; several
// callers may run at once. A pool of one has no thread of its own.
//
// Somebody else in the process may keep threads that wait for the main thread's work by spinning, as OpenMP's do for a
// while after each parallel region of torch's. Threads of our own would have to share a core with those: 1.2 ms of a
// DLRM step of 16 on two cores. So a pool may be given that team, and runs calls of the main thread on it.
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

// Calls body(context) on so many threads at once, the caller among them, and returns when all have returned. It is
// the signature of OpenMP's GOMP_parallel; flags are 0.
using Team = void (*)(void (*body)(void*), void* context, unsigned num_threads, unsigned flags);

class ThreadPool {
 public:
  // Requires: num_threads >= 1. The caller of Run counts as one of them. `team` may be null.
  explicit ThreadPool(int num_threads, Team team = nullptr);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return num_threads_; }
  bool has_team() const { return team_ != nullptr; }

  // Calls task(0) .. task(num_tasks - 1), each once, in any order, and returns when all have returned. A task must
  // not throw, and must not call Run on the same pool.
  void Run(size_t num_tasks, const std::function<void(size_t)>& task);

 private:
  struct Job;
  void Work();

  const int num_threads_;
  const Team team_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::shared_ptr<Job>> jobs_;  // guarded by mutex_
  bool stop_ = false;                      // guarded by mutex_
  std::vector<std::thread> threads_;
};

}  // namespace stepwell
