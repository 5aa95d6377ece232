// Tags that another thread computes, against tags of the calling thread.
#include "core/authentication/tag_thread.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <thread>
#include <vector>

#include "core/authentication/keys.hpp"

namespace gantry {
namespace {

std::vector<std::byte> some_bytes(std::size_t count) {
  std::mt19937 random(static_cast<unsigned>(count));
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

TEST(TagThreadTest, TheTagsAreThoseOfTheCallingThread) {
  const Key key = random_key();
  MessageTags aside(key, MessageTags::End::sender);
  MessageTags own(key, MessageTags::End::sender);
  MessageTags checks(key, MessageTags::End::receiver);
  TagThread thread(TagThread::Start::always);
  std::mt19937 random(3);
  const std::vector<std::byte> bytes = some_bytes(1 << 20);
  for (int message = 0; message < 50; ++message) {
    const int pieces = static_cast<int>(random() % 5);
    for (int i = 0; i < pieces; ++i) {
      const std::size_t begin = random() % bytes.size();
      const auto piece = std::span(bytes).subspan(begin, random() % (bytes.size() - begin));
      thread.add(aside, piece);
      own.add(piece);
      thread.add(checks, piece);
    }
    thread.drain();
    const MessageTag tag = aside.finish();
    EXPECT_EQ(tag, own.finish());
    EXPECT_TRUE(checks.accept(std::as_bytes(std::span(tag))));
  }
}

TEST(TagThreadTest, BytesAreAddedInTheOrderOfTheirNumbers) {
  for (const auto start : {TagThread::Start::always, TagThread::Start::with_spare_cpus}) {
    MessageTags tags(random_key(), MessageTags::End::sender);
    TagThread thread(start);
    EXPECT_TRUE(thread.has_added(0));
    const std::vector<std::byte> bytes = some_bytes(1 << 20);
    std::uint64_t last = 0;
    for (int i = 0; i < 20; ++i) {
      const std::uint64_t added = thread.add(tags, bytes);
      EXPECT_GE(added, last);
      if (thread.has_added(added)) {
        EXPECT_TRUE(thread.has_added(last));
      }
      last = added;
    }
    while (!thread.has_added(last)) std::this_thread::yield();
    (void)tags.finish();
  }
}

TEST(TagThreadTest, AfterADrainAllBytesAreAdded) {
  MessageTags tags(random_key(), MessageTags::End::sender);
  const std::vector<std::byte> bytes = some_bytes(1 << 20);
  TagThread thread(TagThread::Start::always);
  std::uint64_t last = 0;
  for (int i = 0; i < 20; ++i) last = thread.add(tags, bytes);
  thread.drain();
  EXPECT_TRUE(thread.has_added(last));
}

TEST(TagThreadTest, ADrainOfBothDirectionsAwaitsEach) {
  MessageTags sent(random_key(), MessageTags::End::sender);
  MessageTags received(random_key(), MessageTags::End::receiver);
  const std::vector<std::byte> bytes = some_bytes(1 << 20);
  for (const bool sends_more : {false, true}) {
    TagThreads threads(TagThread::Start::always);
    std::uint64_t outgoing = 0;
    std::uint64_t incoming = 0;
    for (int i = 0; i < (sends_more ? 20 : 1); ++i) outgoing = threads.outgoing.add(sent, bytes);
    for (int i = 0; i < (sends_more ? 1 : 20); ++i) {
      incoming = threads.incoming.add(received, bytes);
    }
    threads.drain();
    EXPECT_TRUE(threads.outgoing.has_added(outgoing));
    EXPECT_TRUE(threads.incoming.has_added(incoming));
  }
}

// Brief waits end also while there are bytes, and some later one finds none.
TEST(TagThreadTest, BriefWaitsEndInAnIdleThread) {
  MessageTags sent(random_key(), MessageTags::End::sender);
  MessageTags received(random_key(), MessageTags::End::receiver);
  const std::vector<std::byte> bytes = some_bytes(1 << 20);
  for (const bool sends : {false, true}) {
    TagThreads threads(TagThread::Start::always);
    threads.wait_briefly();
    TagThread& busy = sends ? threads.outgoing : threads.incoming;
    for (int i = 0; i < 20; ++i) busy.add(sends ? sent : received, bytes);
    while (!busy.is_idle()) threads.wait_briefly();
    EXPECT_TRUE(busy.has_added(20));
  }
}

TEST(TagThreadTest, ADrainWithoutBytesReturns) {
  TagThread thread(TagThread::Start::always);
  thread.drain();
}

// The destructor lets the thread finish what it has.
TEST(TagThreadTest, AnEndWithoutAWaitLeavesNothingBehind) {
  MessageTags tags(random_key(), MessageTags::End::sender);
  const std::vector<std::byte> bytes = some_bytes(1 << 20);
  {
    TagThread thread(TagThread::Start::always);
    for (int i = 0; i < 20; ++i) thread.add(tags, bytes);
  }
  (void)tags.finish();
}

TEST(TagThreadTest, AChildOfAForkEndsWithoutTheThread) {
  MessageTags tags(random_key(), MessageTags::End::sender);
  const std::vector<std::byte> bytes = some_bytes(1 << 16);
  auto thread = std::make_unique<TagThread>(TagThread::Start::always);
  thread->add(tags, bytes);
  thread->drain();
  const pid_t child = fork();
  if (child == 0) {
    thread.reset();
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace gantry
