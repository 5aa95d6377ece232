#include "tests/support/rank_threads.hpp"

#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <thread>
#include <vector>

namespace gantry::testing {
namespace {

struct Failure {
  int rank;
  std::string text;
};

struct Progress {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<bool> ended;
  int running = 0;
  std::optional<Failure> first_failure;
};

std::string call_and_describe_failure(const std::function<void(int)>& fn, int rank) {
  try {
    fn(rank);
    return {};
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "an exception that is no std::exception";
  }
}

void run_rank(const std::function<void(int)>& fn, const std::function<void()>& on_failure, int rank,
              Progress& progress) {
  const std::string failure = call_and_describe_failure(fn, rank);
  bool is_first = false;
  {
    const std::lock_guard lock(progress.mutex);
    is_first = !failure.empty() && !progress.first_failure;
    if (is_first) progress.first_failure = Failure{rank, failure};
  }
  if (is_first && on_failure) on_failure();
  const std::lock_guard lock(progress.mutex);
  progress.ended[static_cast<std::size_t>(rank)] = true;
  --progress.running;
  progress.changed.notify_all();
}

[[noreturn]] void die_of_timeout(const Progress& progress, std::chrono::seconds timeout) {
  std::fprintf(stderr, "rank_threads: still running after %lld s: ranks",
               static_cast<long long>(timeout.count()));
  for (std::size_t rank = 0; rank < progress.ended.size(); ++rank) {
    if (!progress.ended[rank]) std::fprintf(stderr, " %zu", rank);
  }
  if (progress.first_failure) {
    std::fprintf(stderr, "; before that, rank %d threw: %s", progress.first_failure->rank,
                 progress.first_failure->text.c_str());
  }
  std::fprintf(stderr, "\n");
  std::fflush(nullptr);
  std::_Exit(124);
}

}  // namespace

void rank_threads(int count, const std::function<void(int rank)>& fn, std::chrono::seconds timeout,
                  const std::function<void()>& on_failure) {
  Progress progress;
  progress.ended.assign(static_cast<std::size_t>(count), false);
  progress.running = count;
  std::vector<std::thread> threads;
  threads.reserve(static_cast<std::size_t>(count));
  for (int rank = 0; rank < count; ++rank) {
    threads.emplace_back([&, rank] { run_rank(fn, on_failure, rank, progress); });
  }
  {
    std::unique_lock lock(progress.mutex);
    if (!progress.changed.wait_for(lock, timeout, [&] { return progress.running == 0; })) {
      die_of_timeout(progress, timeout);
    }
  }
  for (std::thread& thread : threads) thread.join();
  if (progress.first_failure) {
    throw std::runtime_error("rank " + std::to_string(progress.first_failure->rank) + ": " +
                             progress.first_failure->text);
  }
}

}  // namespace gantry::testing
