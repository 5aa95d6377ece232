#include "compat/nccl/watch.hpp"

#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <gantry/core/log.hpp>

#include "compat/nccl/outcome.hpp"
#include "compat/nccl/rank.hpp"

namespace gantry::nccl_api {

namespace {

constexpr auto kPeriod = std::chrono::milliseconds(100);

// The thread, and the ranks that have no known fault. Never destroyed.
class WatchThread {
 public:
  void add(const std::shared_ptr<Rank>& rank) {
    const std::lock_guard lock(mutex_);
    ranks_.push_back(rank);
    if (!thread_.joinable() && !stops_) thread_ = std::thread([this] { run(); });
    changed_.notify_all();
  }

  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stops_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (!stops_) {
      std::vector<std::weak_ptr<Rank>> ranks = ranks_;
      lock.unlock();
      std::vector<std::weak_ptr<Rank>> failed;
      for (const std::weak_ptr<Rank>& entry : ranks) {
        const std::shared_ptr<Rank> rank = entry.lock();
        if (!rank || tell(*rank)) failed.push_back(entry);
      }
      lock.lock();
      std::erase_if(ranks_, [&](const std::weak_ptr<Rank>& entry) {
        for (const auto& other : failed) {
          if (!entry.owner_before(other) && !other.owner_before(entry)) return true;
        }
        return false;
      });
      const auto has_news = [this] { return stops_ || !ranks_.empty(); };
      if (ranks_.empty()) {
        changed_.wait(lock, has_news);
      } else {
        changed_.wait_for(lock, kPeriod, [this] { return stops_; });
      }
    }
  }

  // Writes the failure of `rank`. False: it has none.
  static bool tell(const Rank& rank) {
    const std::exception_ptr failure = rank.failure();
    if (!failure) return false;
    logging::warn("NCCL communicator, rank " + std::to_string(rank.rank) + " of " +
                  std::to_string(rank.size) + ": " + Outcome::of(failure).text);
    return true;
  }

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::vector<std::weak_ptr<Rank>> ranks_;
  bool stops_ = false;
  std::thread thread_;
};

}  // namespace

void watch(const std::shared_ptr<Rank>& rank) {
  static std::mutex mutex;
  static WatchThread* thread = nullptr;
  static pid_t owner = 0;
  const std::lock_guard lock(mutex);
  if (thread == nullptr || owner != getpid()) {  // a forked child has no thread
    const bool is_first = thread == nullptr;
    thread = new WatchThread;
    owner = getpid();
    if (is_first) {
      std::atexit([] {
        if (owner == getpid()) thread->stop();
      });
    }
  }
  thread->add(rank);
}

}  // namespace gantry::nccl_api
