// The record of a flight file about calls and of failures, in memory of this process.
#include "job/flight_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace gantry::flight {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

constexpr std::size_t kPage = 4096;

// A file of `ranks` ranks in memory.
class FileInMemory {
 public:
  explicit FileInMemory(int ranks) {
    Header header{};
    const std::size_t bytes = View::lay_out(header, ranks, kPage);
    base_.reset(static_cast<std::byte*>(::operator new (bytes, std::align_val_t{kPage})));
    std::memset(base_.get(), 0, bytes);
    header.version = kVersion;
    header.magic.store(kMagic);
    std::memcpy(base_.get(), static_cast<const void*>(&header), sizeof header);
  }
  [[nodiscard]] View view() const { return View(base_.get()); }

 private:
  struct Free {
    void operator()(std::byte* base) const { ::operator delete (base, std::align_val_t{kPage}); }
  };
  std::unique_ptr<std::byte, Free> base_;
};

void record(const View& view, int rank, std::int64_t number) {
  Rank& mine = view.rank(rank);
  const std::uint64_t ticket = mine.recorded.load() + 1;
  Record made{};
  made.call.number = number;
  view.ring(rank)[ticket % kRing].put(ticket, made);
  mine.recorded.store(ticket);
}

TEST(FlightFileTest, AFullRingHasItsOldestCallAndNoOlderOne) {
  const FileInMemory file(2);
  constexpr std::int64_t kCalls = static_cast<std::int64_t>(kRing) + 5;
  for (std::int64_t number = 1; number <= kCalls; ++number) record(file.view(), 1, number);
  const auto has = [&](std::uint64_t number) {
    const std::optional<Record> found = file.view().find(1, Queue::collective, number);
    EXPECT_TRUE(!found || static_cast<std::uint64_t>(found->call.number) == number);
    return found.has_value();
  };
  EXPECT_TRUE(has(6)) << "the oldest that has a place";
  EXPECT_FALSE(has(5)) << "overwritten";
  EXPECT_TRUE(has(kCalls));
  EXPECT_FALSE(has(kCalls + 1));
  EXPECT_EQ(file.view().newest_number(1, Queue::collective), static_cast<std::uint64_t>(kCalls));
  EXPECT_FALSE(file.view().newest(0)) << "another rank's";
}

TEST(FlightFileTest, ACallBeyondThePackedNumbersIsNotNamed) {
  constexpr std::uint64_t kFirstUnnamed = std::uint64_t{1} << 36;
  for (const std::uint64_t call :
       {std::uint64_t{0}, std::uint64_t{1}, kFirstUnnamed - 1, kFirstUnnamed, kFirstUnnamed + 5}) {
    const Diagnosis given{.reason = Reason::died, .rank = 4095, .call = call, .author = 17};
    const Diagnosis read = Diagnosis::unpack(given.pack());
    EXPECT_EQ(read.call, call < kFirstUnnamed ? call : 0);
    EXPECT_EQ(read.reason, Reason::died);
    EXPECT_EQ(read.rank, 4095);
    EXPECT_EQ(read.author, 17);
  }
}

TEST(FlightFileTest, ADetailNamesOnlyRanksOfTheGroup) {
  const FileInMemory file(3);
  const Detail written{.text = "late", .ranks = {0, 2, 3, 4, -1, 1}, .calls = {"a", "b"}};
  const std::string packed = written.pack();
  std::copy(packed.begin(), packed.end(), file.view().rank(1).detail);
  const Diagnosis diagnosis{.reason = Reason::timed_out, .rank = 0, .author = 1};
  const Detail read = Detail::of(file.view(), diagnosis);
  EXPECT_EQ(read.text, "late");
  EXPECT_THAT(read.ranks, ElementsAre(0, 2, 1));
  EXPECT_THAT(read.calls, ElementsAre("a", "b"));
}

TEST(FlightFileTest, RanksOutsideOfAJobAreNoRanksOfIt) {
  const FileInMemory file(3);
  file.view().rank(0).job_rank = 0;  // unknown
  file.view().rank(1).job_rank = 1;
  file.view().rank(2).job_rank = 8;
  EXPECT_THAT(job_ranks(file.view(), {0, 1, 2, 3, -1}), ElementsAre(0, 7));
}

// Two pages, of which the second one takes no access until expect_reader(): then a writer comes in
// between when a reader arrives there, by the signal of the fault.
class WatchedPages {
 public:
  WatchedPages() : page_(static_cast<std::size_t>(getpagesize())) {
    void* const pages =
        mmap(nullptr, 2 * page_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(pages, MAP_FAILED);
    base_ = static_cast<std::byte*>(pages);
    struct sigaction action {};
    action.sa_flags = SA_SIGINFO;
    action.sa_sigaction = [](int, siginfo_t*, void*) { current->let_writer_in(); };
    current = this;
    EXPECT_EQ(sigaction(SIGSEGV, &action, &before_), 0);
  }
  ~WatchedPages() {
    EXPECT_EQ(sigaction(SIGSEGV, &before_, nullptr), 0);
    munmap(base_, 2 * page_);
  }
  WatchedPages(const WatchedPages&) = delete;
  WatchedPages& operator=(const WatchedPages&) = delete;

  // The place that has `bytes` before the second page.
  [[nodiscard]] std::byte* before_second(std::size_t bytes) const { return base_ + page_ - bytes; }
  void expect_reader(std::function<void()> write) {
    write_ = std::move(write);
    EXPECT_EQ(mprotect(base_ + page_, page_, PROT_NONE), 0);
  }

 private:
  void let_writer_in() {
    if (write_ == nullptr || mprotect(base_ + page_, page_, PROT_READ | PROT_WRITE) != 0) _exit(1);
    std::exchange(write_, nullptr)();
  }

  inline static WatchedPages* current = nullptr;

  const std::size_t page_;
  std::byte* base_ = nullptr;
  std::function<void()> write_;
  struct sigaction before_ {};
};

TEST(FlightFileTest, AnEntryThatChangesUnderItsReaderIsNotRead) {
  WatchedPages pages;
  Entry& entry = *reinterpret_cast<Entry*>(pages.before_second(sizeof(Entry) / 2));
  const auto put = [&](std::int64_t number) {
    Record made{};
    made.call.number = made.bytes = number;
    entry.put(static_cast<std::uint64_t>(number), made);
  };
  put(1);
  ASSERT_TRUE(entry.get(1));
  EXPECT_EQ(entry.get(1)->bytes, 1);
  pages.expect_reader([&] { put(2); });
  EXPECT_FALSE(entry.get(1)) << "it has the beginning of one call and the end of another";
  ASSERT_TRUE(entry.get(2));
  EXPECT_EQ(entry.get(2)->call.number, 2);
}

TEST(FlightFileTest, CountsThatChangeUnderTheirReaderAreNotRead) {
  constexpr int kRanks = 4;
  WatchedPages pages;
  BlockCounts place(reinterpret_cast<std::atomic<std::uint64_t>*>(
      pages.before_second(BlockCounts::words_for(kRanks) / 2 * sizeof(std::uint64_t))));
  const auto put = [&](std::int64_t number) {
    const std::array<std::int64_t, kRanks> counts{number, number, number, number};
    place.put(static_cast<std::uint64_t>(number), counts, counts);
  };
  put(1);
  ASSERT_TRUE(place.get(1, kRanks));
  EXPECT_THAT(*place.get(1, kRanks), Each(1));
  pages.expect_reader([&] { put(2); });
  EXPECT_FALSE(place.get(1, kRanks));
  ASSERT_TRUE(place.get(2, kRanks));
  EXPECT_THAT(*place.get(2, kRanks), Each(2));
}

}  // namespace
}  // namespace gantry::flight
