// A readers-writer lock of four bytes, held for the few microseconds that one shard's part of a batch takes.
// Writers are not starved: a waiting writer stops new readers.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>

namespace stepwell {

class RwSpin {
 public:
  void LockShared() {
    for (int spins = 0;; ++spins) {
      uint32_t state = state_.load(std::memory_order_relaxed);
      if ((state & (kWriter | kWaiting)) == 0 &&
          state_.compare_exchange_weak(state, state + 1, std::memory_order_acquire)) {
        return;
      }
      Pause(spins);
    }
  }
  void UnlockShared() { state_.fetch_sub(1, std::memory_order_release); }

  void Lock() {
    for (int spins = 0;; ++spins) {
      uint32_t state = state_.load(std::memory_order_relaxed);
      if ((state & ~kWaiting) == 0) {
        if (state_.compare_exchange_weak(state, kWriter, std::memory_order_acquire)) return;
      } else if ((state & kWaiting) == 0) {
        state_.compare_exchange_weak(state, state | kWaiting, std::memory_order_relaxed);
      }
      Pause(spins);
    }
  }
  // Keeps the waiting mark of another writer; that writer clears it when it takes the lock.
  void Unlock() { state_.fetch_and(~kWriter, std::memory_order_release); }

 private:
  static constexpr uint32_t kWriter = 1u << 31;
  static constexpr uint32_t kWaiting = 1u << 30;

  static void Pause(int spins) {
    if (spins < 64) {
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
    } else {
      std::this_thread::yield();
    }
  }

  std::atomic<uint32_t> state_{0};
};

class SharedGuard {
 public:
  explicit SharedGuard(RwSpin& lock) : lock_(lock) { lock_.LockShared(); }
  ~SharedGuard() { lock_.UnlockShared(); }
  SharedGuard(const SharedGuard&) = delete;
  SharedGuard& operator=(const SharedGuard&) = delete;

 private:
  RwSpin& lock_;
};

class ExclusiveGuard {
 public:
  explicit ExclusiveGuard(RwSpin& lock) : lock_(lock) { lock_.Lock(); }
  ~ExclusiveGuard() { lock_.Unlock(); }
  ExclusiveGuard(const ExclusiveGuard&) = delete;
  ExclusiveGuard& operator=(const ExclusiveGuard&) = delete;

 private:
  RwSpin& lock_;
};

}  // namespace stepwell
