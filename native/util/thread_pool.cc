#include "util/thread_pool.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>

namespace stepwell {

namespace {
bool OnMainThread() {
  static thread_local const bool main = syscall(SYS_gettid) == getpid();
  return main;
}
}  // namespace

// Tasks are claimed by counting `next` up; the job is finished when `done` reaches `num_tasks`. A thread that comes
// late finds nothing to claim and never touches `task`, whose owner may be gone by then.
struct ThreadPool::Job {
  Job(size_t count, const std::function<void(size_t)>& function) : num_tasks(count), task(&function) {}

  void RunTasks() {
    size_t ran = 0;
    for (size_t i = next.fetch_add(1); i < num_tasks; i = next.fetch_add(1)) {
      (*task)(i);
      ++ran;
    }
    if (ran > 0 && done.fetch_add(ran, std::memory_order_acq_rel) + ran == num_tasks) {
      std::lock_guard<std::mutex> lock(mutex);
      finished.notify_all();
    }
  }

  void Wait() {
    if (done.load(std::memory_order_acquire) == num_tasks) return;
    std::unique_lock<std::mutex> lock(mutex);
    finished.wait(lock, [this] { return done.load(std::memory_order_acquire) == num_tasks; });
  }

  const size_t num_tasks;
  const std::function<void(size_t)>* const task;
  std::atomic<size_t> next{0};
  std::atomic<size_t> done{0};
  std::mutex mutex;
  std::condition_variable finished;
};

ThreadPool::ThreadPool(int num_threads, Team team) : num_threads_(num_threads), team_(team) {
  for (int i = 1; i < num_threads; ++i) threads_.emplace_back([this] { Work(); });
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::Run(size_t num_tasks, const std::function<void(size_t)>& task) {
  if (num_tasks == 0) return;
  if (num_tasks == 1 || num_threads_ == 1) {
    for (size_t i = 0; i < num_tasks; ++i) task(i);
    return;
  }
  if (team_ != nullptr && OnMainThread()) {
    Job job(num_tasks, task);
    // Always as many threads: a team whose size changes ends threads and starts others.
    team_([](void* given) { static_cast<Job*>(given)->RunTasks(); }, &job, static_cast<unsigned>(num_threads_), 0);
    return;
  }
  auto job = std::make_shared<Job>(num_tasks, task);
  {
    std::lock_guard<std::mutex> lock(mutex_);
    jobs_.push_back(job);
  }
  if (num_tasks > 2) {
    wake_.notify_all();
  } else {
    wake_.notify_one();
  }
  job->RunTasks();
  {
    std::lock_guard<std::mutex> lock(mutex_);
    auto found = std::find(jobs_.begin(), jobs_.end(), job);
    if (found != jobs_.end()) jobs_.erase(found);
  }
  job->Wait();
}

void ThreadPool::Work() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return stop_ || !jobs_.empty(); });
    if (stop_) return;
    std::shared_ptr<Job> job = jobs_.front();
    lock.unlock();
    job->RunTasks();
    lock.lock();
    if (!jobs_.empty() && jobs_.front() == job) jobs_.pop_front();
  }
}

}  // namespace stepwell
