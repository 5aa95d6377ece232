// Which processes run.
#include "core/processes/process_stamp.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>

#include "core/processes/process_watch.hpp"
#include "tests/support/descriptor_limit.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/process_state.hpp"

namespace gantry {
namespace {

using testing::DescriptorLimit;

void await_state(pid_t pid, char state) {
  EXPECT_TRUE(testing::eventually([&] { return testing::state_of(pid) == state; })) << state;
}

// What a child knows of itself.
template <class Body>
pid_t start(ProcessStamp& stamp, Body&& body) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  const pid_t pid = fork();
  if (pid == 0) {
    const ProcessStamp own = this_process();
    if (write(ends[1], &own, sizeof own) != sizeof own) _exit(1);
    body();
  }
  EXPECT_EQ(read(ends[0], &stamp, sizeof stamp), static_cast<ssize_t>(sizeof stamp));
  close(ends[0]);
  close(ends[1]);
  EXPECT_EQ(stamp.pid, pid);
  return pid;
}

TEST(ProcessStampTest, AnEndedProcessDoesNotRunEvenIfNobodyReapedIt) {
  ProcessStamp stamp;
  const pid_t pid = start(stamp, [] {
    for (;;) pause();
  });
  EXPECT_FALSE(has_ended(stamp));
  EXPECT_TRUE(has_ended({stamp.pid, stamp.start_time + 1})) << "another one of that number";
  kill(pid, SIGKILL);
  await_state(pid, 'Z');
  // A thread of a sanitizer may end after the first one.
  while (!has_ended(stamp)) std::this_thread::yield();
  EXPECT_EQ(waitpid(pid, nullptr, 0), pid);
  EXPECT_TRUE(has_ended(stamp));
}

TEST(ProcessStampTest, AProcessRunsAsLongAsAnyOfItsThreads) {
  ProcessStamp stamp;
  const pid_t pid = start(stamp, [] {
    testing::continue_in_another_thread([] {
      for (;;) pause();
    });
  });
  await_state(pid, 'Z');
  EXPECT_FALSE(has_ended(stamp));
  kill(pid, SIGKILL);
  EXPECT_EQ(waitpid(pid, nullptr, 0), pid);
  EXPECT_TRUE(has_ended(stamp));
}

TEST(ProcessStampTest, KnowsWhoIsStopped) {
  ProcessStamp stamp;
  const pid_t pid = start(stamp, [] {
    for (;;) pause();
  });
  EXPECT_FALSE(is_stopped(stamp));
  kill(pid, SIGSTOP);
  await_state(pid, 'T');
  EXPECT_TRUE(is_stopped(stamp));
  EXPECT_FALSE(has_ended(stamp));
  kill(pid, SIGKILL);
  EXPECT_EQ(waitpid(pid, nullptr, 0), pid);
}

TEST(ProcessStampTest, ParenthesesInANameAreNotItsEnd) {
  for (const char* const name : {")", "(", "a) b", "a (b)", ") Z 1 1 1 1 1"}) {
    ProcessStamp stamp;
    const pid_t pid = start(stamp, [&] {
      prctl(PR_SET_NAME, name);
      for (;;) raise(SIGSTOP);
    });
    await_state(pid, 'T');
    EXPECT_EQ(find_process(pid), stamp) << name;
    EXPECT_TRUE(is_stopped(stamp)) << name;
    kill(pid, SIGKILL);
    EXPECT_EQ(waitpid(pid, nullptr, 0), pid);
  }
}

// A child that waits for its end.
class Child {
 public:
  Child() {
    pid_ = start(stamp_, [] {
      for (;;) pause();
    });
  }
  ~Child() { end(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  const ProcessStamp& stamp() const { return stamp_; }
  void end() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    EXPECT_EQ(waitpid(pid_, nullptr, 0), pid_);
    pid_ = 0;
  }

 private:
  ProcessStamp stamp_;
  pid_t pid_ = 0;
};

TEST(ProcessStampTest, WithoutDescriptorsALivingProcessHasNotEnded) {
  Child child;
  const ProcessStamp self = this_process();
  {
    const DescriptorLimit limit;
    EXPECT_EQ(status_of(child.stamp()).liveness, Liveness::unknown);
    EXPECT_EQ(status_of(child.stamp()).error, EMFILE);
    EXPECT_FALSE(has_ended(child.stamp()));
    EXPECT_FALSE(is_stopped(child.stamp()));
    // A thread that asks for the first time gets the same answer.
    ProcessStamp of_thread;
    std::thread([&] { of_thread = this_process(); }).join();
    EXPECT_EQ(of_thread, self);
    child.end();
    EXPECT_TRUE(has_ended(child.stamp())) << "its number belongs to nobody";
  }
  EXPECT_TRUE(has_ended(child.stamp()));
}

TEST(ProcessStampTest, AWatchWithoutADescriptorAsks) {
  Child child;
  const DescriptorLimit limit;
  const ProcessWatch watch(child.stamp());
  EXPECT_EQ(watch.descriptor(), -1);
  EXPECT_FALSE(watch.has_ended());
  child.end();
  EXPECT_TRUE(watch.has_ended());
}

TEST(ProcessStampTest, AProcessIsFoundByItsNumber) {
  Child child;
  const ProcessStamp stamp = child.stamp();
  EXPECT_EQ(find_process(stamp.pid), stamp);
  EXPECT_EQ(find_process(getpid()), this_process());
  child.end();
  EXPECT_NE(find_process(stamp.pid), stamp);
  EXPECT_EQ(find_process(-1), std::nullopt);
}

TEST(ProcessStampTest, AWatchThatCannotTellWhoseNumberItIsKeepsNoDescriptor) {
  Child child;
  const DescriptorLimit limit(1);  // for the process, none for a look at it
  const ProcessWatch watch(child.stamp());
  EXPECT_EQ(watch.descriptor(), -1);
  EXPECT_FALSE(watch.has_ended());
}

TEST(ProcessStampTest, AWatchSurvivesAProgramThatClosesAllDescriptors) {
  Child child;
  const ProcessWatch watch(child.stamp());
  if (watch.descriptor() < 0) GTEST_SKIP() << "this kernel has no pid descriptors";
  // The test's own: the watch closes the number once more, which belongs to another file then.
  close(watch.descriptor());
  EXPECT_FALSE(watch.has_ended());
  const int other = open("/dev/zero", O_RDONLY);
  ASSERT_EQ(dup2(other, watch.descriptor()), watch.descriptor());
  EXPECT_FALSE(watch.has_ended()) << "the other file can be read";
  child.end();
  EXPECT_TRUE(watch.has_ended());
}

}  // namespace
}  // namespace gantry
