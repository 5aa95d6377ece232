// Groups inside one process that cannot start some of its threads.

#include <dirent.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <string_view>
#include <vector>

#include <gantry/core/error.hpp>

#include "tests/collectives/communicator/local_group.hpp"
#include "tests/collectives/throws.hpp"

namespace gantry {
namespace {

using testing::expect_throws;
using testing::rank_threads;

constexpr int kUnlimited = -1;
// How many threads the calling one may still make.
thread_local int threads_left = kUnlimited;

using Start = void* (*)(void*);

int create(pthread_t* thread, const pthread_attr_t* attributes, Start start, void* argument) {
  using Create = int (*)(pthread_t*, const pthread_attr_t*, Start, void*);
  static const auto real = reinterpret_cast<Create>(dlsym(RTLD_NEXT, "pthread_create"));
  if (threads_left == 0) return EAGAIN;
  if (threads_left > 0) --threads_left;
  return real(thread, attributes, start, argument);
}

// How often the library looked which threads this process has.
std::mutex looks_mutex;
int looks = 0;
std::condition_variable looked;

DIR* open_directory(const char* path) {
  using Open = DIR* (*)(const char*);
  static const auto real = reinterpret_cast<Open>(dlsym(RTLD_NEXT, "opendir"));
  if (std::string_view(path) == "/proc/self/task") {
    const std::lock_guard lock(looks_mutex);
    ++looks;
    looked.notify_all();
  }
  return real(path);
}

// Waits until a rank that waits for this one looks for its thread.
void await_look() {
  std::unique_lock lock(looks_mutex);
  const int wanted = looks + 1;
  ASSERT_TRUE(looked.wait_for(lock, std::chrono::minutes(2), [&] { return looks >= wanted; }));
}

using LocalThreadsTest = testing::LocalGroupTest;

// Each rank's elements are its rank plus one; the sum shows that the group works.
void expect_working(int ranks, const std::vector<Device>& devices) {
  std::vector<Communicator> group = Communicator::local(devices);
  std::vector<Tensor> tensors;
  for (Communicator& member : group) {
    tensors.push_back(full({1000}, member.rank() + 1, {.device = member.device()}));
    member.all_reduce(tensors.back());
  }
  for (const Tensor& tensor : tensors) {
    EXPECT_EQ(tensor.amin().item<int>(), ranks * (ranks + 1) / 2);
  }
}

// Operations through the host wait for the other ranks, which the same thread would call later.
TEST_F(LocalThreadsTest, OneThreadForAllRanksIsAnErrorThroughTheHost) {
  GANTRY_REQUIRE_DEVICES(2);
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer has a thread of its own, which may be the program's";
#endif
  setenv("GANTRY_COLL_ALGO", "host", 1);
  const std::vector<Communicator> group = Communicator::local(devices(2));
  unsetenv("GANTRY_COLL_ALGO");
  const Tensor tensor = full({1000}, 1, {.device = group[0].device()});
  expect_throws<InvalidArgument>(
      [&] { group[0].all_reduce(tensor); },
      "collective: expected a thread for each of the 2 ranks, since operations through the host "
      "wait for the other ranks, but got one thread, which waits as rank 0");
  expect_throws<PeerLostError>([&] { group[1].barrier(); }, "rank 0");
}

// A thread that is late is another thread all the same.
TEST_F(LocalThreadsTest, AThreadForEachRankMayComeLateThroughTheHost) {
  GANTRY_REQUIRE_DEVICES(2);
  setenv("GANTRY_COLL_ALGO", "host", 1);
  const std::vector<Communicator> group = Communicator::local(devices(2));
  unsetenv("GANTRY_COLL_ALGO");
  rank_threads(2, [&](int rank) {
    if (rank == 1) await_look();
    const Communicator& member = group[static_cast<std::size_t>(rank)];
    const Tensor tensor = full({1000}, rank + 1, {.device = member.device()});
    member.all_reduce(tensor).synchronize();
    EXPECT_EQ(tensor.amin().item<int>(), 3);
  });
}

TEST_F(LocalThreadsTest, ARankWithoutAThreadIsAnErrorAndTheNextGroupWorks) {
  GANTRY_REQUIRE_DEVICES(2);
  const int ranks = std::min(device_count(), 4);
  expect_working(ranks, devices(ranks));
  for (int got = 0; got < ranks; ++got) {
    // On a thread of its own, for which there is a deadline.
    rank_threads(1, [&](int) {
      threads_left = got;
      expect_throws<Error>(
          [&] { (void)Communicator::local(devices(ranks)); },
          fmt::format("Communicator::local: expected a thread for each of {} ranks, but got none "
                      "for rank {}: Resource temporarily unavailable",
                      ranks, got));
    });
    expect_working(ranks, devices(ranks));
  }
}

}  // namespace
}  // namespace gantry

// Instead of the system's, for this whole process.
extern "C" [[gnu::visibility("default")]] int pthread_create(pthread_t* thread,
                                                             const pthread_attr_t* attributes,
                                                             gantry::Start start,
                                                             void* argument) noexcept {
  return gantry::create(thread, attributes, start, argument);
}

extern "C" [[gnu::visibility("default")]] DIR* opendir(const char* path) {
  return gantry::open_directory(path);
}
