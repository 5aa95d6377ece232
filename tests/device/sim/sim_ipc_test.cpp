#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <set>
#include <sstream>
#include <vector>

#include "device/sim/memory/sim_ipc.hpp"
#include "tests/device/handle_text.hpp"
#include "tests/device/sim/sim_machine.hpp"
#include "tests/support/descriptor_limit.hpp"
#include "tests/support/pipe_process.hpp"

namespace gantry::testing {
namespace {

class SimIpcTest : public SimMachineTest {
 protected:
  SimIpcTest()
      : memory_(from_text<NativeMemoryHandle>(peer_.read_line())),
        event_(from_text<NativeEventHandle>(peer_.read_line())) {}

  std::string tell(const std::string& command) {
    peer_.write_line(command);
    return peer_.read_line();
  }
  void kill_peer() {
    peer_.kill(SIGKILL);
    peer_.wait();
  }

  PipeProcess peer_{{GANTRY_TEST_PROGRAM_DIR "/sim_ipc_peer"}};
  NativeMemoryHandle memory_;
  NativeEventHandle event_;
  NativeStream stream_ = driver_.create_stream(0, 0);
};

TEST_F(SimIpcTest, OpenedMemoryIsTheExportersAndIsCounted) {
  auto* data = static_cast<char*>(driver_.open_memory(0, memory_));
  EXPECT_EQ(driver_.open_memory(0, memory_), data);
  void* elsewhere = driver_.open_memory(1, memory_);
  EXPECT_NE(elsewhere, data);
  EXPECT_EQ(driver_.pointer_info(data + 100).device, 0);
  EXPECT_EQ(driver_.memory_info(0).free, driver_.memory_info(0).total);
  EXPECT_EQ(read(data, 4, stream_), "oooo");
  driver_.fill(data, 'm', kBytes, stream_);
  driver_.synchronize_stream(stream_);
  EXPECT_EQ(tell("show"), "mmmm");
  EXPECT_EQ(read(elsewhere, 4, stream_), "mmmm");
  driver_.close_memory(elsewhere);
  driver_.close_memory(data);
  EXPECT_NO_THROW(sim::check_device_access(0, data, kBytes));
  expect_cuda_error(700, "opened for cuda:0", [&] { sim::check_device_access(2, data, kBytes); });
  driver_.close_memory(data);
  expect_cuda_error(1, "freed before", [&] { driver_.close_memory(data); });
  expect_cuda_error(1, "not the begin", [&] { driver_.close_memory(&stream_); });
}

TEST_F(SimIpcTest, OpenedMemorySurvivesTheExporter) {
  auto* data = static_cast<char*>(driver_.open_memory(0, memory_));
  kill_peer();
  EXPECT_EQ(read(data, 4, stream_), "oooo");
  driver_.close_memory(data);
}

TEST_F(SimIpcTest, SaysWhyAHandleCannotBeOpened) {
  NativeMemoryHandle garbage = memory_;
  garbage.bytes[0] = std::byte{0};
  expect_cuda_error(1, "no memory handle", [&] { (void)driver_.open_memory(0, garbage); });
  NativeEventHandle garbage_event;
  expect_cuda_error(1, "no event handle", [&] { (void)driver_.open_event(0, garbage_event); });
  EXPECT_EQ(tell("free"), "freed");
  expect_cuda_error(400, "the exporter has freed it",
                    [&] { (void)driver_.open_memory(0, memory_); });
  const std::string pid = std::to_string(peer_.pid());
  kill_peer();
  expect_cuda_error(400, "the process that exported it (" + pid + ") is gone",
                    [&] { (void)driver_.open_memory(0, memory_); });
  expect_cuda_error(400, "is gone", [&] { (void)driver_.open_event(0, event_); });
}

// A process with one open file, of which a handle of memory can be made.
class FileOwner {
 public:
  static constexpr std::size_t kBytes = 8192;

  FileOwner(uid_t user, int seals) {
    int ends[2] = {};
    if (pipe2(ends, O_CLOEXEC) != 0) return;
    const UniqueFd from(ends[0]);
    UniqueFd to(ends[1]);
    pid_ = fork();
    if (pid_ == 0) {
      if (syscall(SYS_setresuid, user, user, user) != 0) _exit(1);
      const int file = memfd_create("sim-ipc-test", MFD_ALLOW_SEALING);
      if (ftruncate(file, kBytes) != 0 || fcntl(file, F_ADD_SEALS, seals) != 0) _exit(1);
      const sim::FileName name = sim::name_file(file);
      if (write(to.get(), &name, sizeof name) != sizeof name) _exit(1);
      for (;;) pause();
    }
    to.reset();
    if (read(from.get(), &name_, sizeof name_) != sizeof name_) ADD_FAILURE() << "no name";
  }
  ~FileOwner() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  FileOwner(const FileOwner&) = delete;
  FileOwner& operator=(const FileOwner&) = delete;

  [[nodiscard]] NativeMemoryHandle handle(std::size_t bytes = kBytes) const {
    return sim::encode(sim::MemoryName{.file = name_, .bytes = bytes});
  }

 private:
  pid_t pid_ = -1;
  sim::FileName name_;
};

TEST_F(SimIpcTest, RefusesMemoryThatCouldFault) {
  const FileOwner open_file(geteuid(), 0);
  expect_cuda_error(1, "that keeps its size",
                    [&] { (void)driver_.open_memory(0, open_file.handle()); });
  const FileOwner sealed(geteuid(), F_SEAL_SHRINK);
  expect_cuda_error(1, "names no memory of 16384 bytes",
                    [&] { (void)driver_.open_memory(0, sealed.handle(2 * FileOwner::kBytes)); });
  driver_.close_memory(driver_.open_memory(0, sealed.handle()));
}

TEST_F(SimIpcTest, RefusesMemoryOfAnotherUser) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can open files of other users";
  const FileOwner owner(65534, F_SEAL_SHRINK);
  expect_cuda_error(304, "belongs to user 65534",
                    [&] { (void)driver_.open_memory(0, owner.handle()); });
}

TEST_F(SimIpcTest, RefusesTheExportersOwnHandlesAndPartsOfAllocations) {
  auto* data = static_cast<char*>(driver_.allocate(0, kBytes));
  const NativeMemoryHandle own = driver_.export_memory(data);
  EXPECT_EQ(own.bytes, driver_.export_memory(data).bytes);
  expect_cuda_error(201, "this process exported it", [&] { (void)driver_.open_memory(1, own); });
  expect_cuda_error(1, "not the begin", [&] { (void)driver_.export_memory(data + 512); });
  void* opened = driver_.open_memory(0, memory_);
  expect_cuda_error(1, "not the begin", [&] { (void)driver_.export_memory(opened); });
  driver_.close_memory(opened);
  driver_.deallocate(0, data);
}

TEST_F(SimIpcTest, WaitsForAnEventOfAnotherProcess) {
  const NativeEvent event = driver_.open_event(0, event_);
  EXPECT_TRUE(driver_.query_event(event));  // never recorded
  void* data = driver_.open_memory(0, memory_);
  EXPECT_EQ(tell("record"), "recorded");
  EXPECT_FALSE(driver_.query_event(event));
  driver_.wait_event(stream_, event);
  auto* pinned = static_cast<char*>(driver_.allocate_pinned(4));
  driver_.copy(pinned, data, 4, stream_);
  EXPECT_FALSE(driver_.query_stream(stream_));
  EXPECT_EQ(tell("open"), "opened");
  driver_.synchronize_stream(stream_);
  EXPECT_EQ(std::string(pinned, 4), "pppp");
  EXPECT_TRUE(driver_.query_event(event));
  driver_.synchronize_event(event);
  driver_.deallocate_pinned(pinned);
  driver_.close_memory(data);
  driver_.destroy_event(event);
}

TEST_F(SimIpcTest, DeathOfTheRecorderFailsTheWaitInsteadOfHanging) {
  const NativeEvent event = driver_.open_event(0, event_);
  EXPECT_EQ(tell("record"), "recorded");
  driver_.wait_event(stream_, event);
  bool ran = false;
  sim::launch(stream_, [&] { ran = true; });
  const std::string pid = std::to_string(peer_.pid());
  peer_.kill(SIGKILL);  // not reaped yet: a zombie counts as gone
  const std::string text = "the process that recorded the event (" + pid + ") is gone";
  expect_cuda_error(719, text, [&] { driver_.synchronize_stream(stream_); });
  EXPECT_FALSE(ran);
  expect_cuda_error(719, text, [&] { driver_.synchronize_event(event); });
  expect_cuda_error(719, text, [&] { (void)driver_.query_event(event); });
  peer_.wait();
  sim::launch(stream_, [&] { ran = true; });
  driver_.synchronize_stream(stream_);
  EXPECT_TRUE(ran);
  driver_.destroy_event(event);
}

TEST_F(SimIpcTest, RecordsOfEitherProcessCount) {
  const NativeEvent event = driver_.open_event(0, event_);
  const NativeStream other = driver_.create_stream(0, 0);
  int value = 0;
  int seen = 0;
  {
    const Gate gate(stream_);
    sim::launch(stream_, [&] { value = 5; });
    driver_.record_event(event, stream_);
    EXPECT_FALSE(driver_.query_event(event));
    driver_.wait_event(other, event);
    sim::launch(other, [&] { seen = value; });
  }
  driver_.synchronize_stream(other);
  EXPECT_EQ(seen, 5);
  EXPECT_TRUE(driver_.query_event(event));
  EXPECT_EQ(tell("record"), "recorded");
  EXPECT_FALSE(driver_.query_event(event));
  EXPECT_EQ(tell("open"), "opened");
  driver_.synchronize_event(event);
  driver_.destroy_event(event);
}

TEST_F(SimIpcTest, ManyEventsTakeFewDescriptors) {
  constexpr int kEvents = 3000;
  const int before = count_descriptors();
  const int peer_before = std::stoi(tell("events 0"));
  std::istringstream handles(tell("events " + std::to_string(kEvents)));
  std::vector<NativeEventHandle> known;
  std::string word;
  for (int i = 0; i < kEvents && handles >> word; ++i) {
    known.push_back(from_text<NativeEventHandle>(word));
  }
  ASSERT_EQ(known.size(), std::size_t{kEvents});
  int peer_after = 0;
  handles >> peer_after;
  EXPECT_LE(peer_after, peer_before + 4);
  std::set<std::array<std::byte, 64>> different;
  std::vector<NativeEvent> opened;
  for (const NativeEventHandle& handle : known) {
    different.insert(handle.bytes);
    opened.push_back(driver_.open_event(0, handle));
    EXPECT_TRUE(driver_.query_event(opened.back())) << "never recorded";
  }
  EXPECT_EQ(different.size(), known.size());
  EXPECT_LE(count_descriptors(), before);
  for (const NativeEvent event : opened) driver_.destroy_event(event);
}

TEST_F(SimIpcTest, AnEventInThePlaceOfADestroyedOneIsAnotherEvent) {
  const auto handle_of = [](const std::string& line) {
    return from_text<NativeEventHandle>(line.substr(0, line.find(' ')));
  };
  const NativeEventHandle first = handle_of(tell("events 1"));
  const NativeEvent opened = driver_.open_event(0, first);
  {
    const Gate gate(stream_);
    driver_.record_event(opened, stream_);
    EXPECT_FALSE(driver_.query_event(opened));
  }
  driver_.synchronize_event(opened);
  EXPECT_EQ(tell("destroy"), "destroyed");
  expect_cuda_error(400, "the exporter has destroyed it",
                    [&] { (void)driver_.open_event(0, first); });
  const NativeEventHandle second = handle_of(tell("events 1"));
  EXPECT_NE(first.bytes, second.bytes);
  expect_cuda_error(400, "the exporter has destroyed it",
                    [&] { (void)driver_.open_event(0, first); });
  const NativeEvent reopened = driver_.open_event(0, second);
  EXPECT_TRUE(driver_.query_event(reopened)) << "this one was never recorded";
  {
    const Gate gate(stream_);
    driver_.record_event(reopened, stream_);
    EXPECT_FALSE(driver_.query_event(reopened));
  }
  driver_.synchronize_event(reopened);
  EXPECT_TRUE(driver_.query_event(opened)) << "what it waited for is long over";
  driver_.destroy_event(reopened);
  driver_.destroy_event(opened);
}

TEST_F(SimIpcTest, WithoutDescriptorsNothingIsCalledGoneOrFreed) {
  {
    const DescriptorLimit limit;
    expect_cuda_error(304, "Too many open files", [&] { (void)driver_.open_memory(0, memory_); });
    expect_cuda_error(304, "Too many open files", [&] { (void)driver_.open_event(0, event_); });
  }
  {
    const DescriptorLimit limit(1);  // for the memory, none for a look at its exporter
    auto* data = static_cast<char*>(driver_.open_memory(0, memory_));
    EXPECT_EQ(read(data, 4, stream_), "oooo");
    driver_.close_memory(data);
  }
  const NativeEvent event = driver_.open_event(0, event_);
  EXPECT_EQ(tell("record"), "recorded");
  {
    const DescriptorLimit limit;
    EXPECT_FALSE(driver_.query_event(event)) << "its recorder is not called dead";
  }
  EXPECT_EQ(tell("open"), "opened");
  driver_.synchronize_event(event);
  driver_.destroy_event(event);
}

}  // namespace
}  // namespace gantry::testing
