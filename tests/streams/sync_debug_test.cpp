#include <gantry/streams/sync_debug.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include <gantry/extend/driver.hpp>
#include <gantry/gantry.hpp>

#include "tests/support/device_fixture.hpp"
#include "tests/support/subprocess.hpp"

namespace {

using namespace gantry;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

const std::string kFile = "sync_debug_test.cpp";

class SyncDebugTest : public gantry::testing::DeviceTest {
 protected:
  void TearDown() override {
    set_sync_debug_mode(SyncDebug::off);
    DeviceTest::TearDown();
  }

  /// The text of the error that `call` throws, empty if there is none.
  static std::string error_of(const std::function<void()>& call) {
    try {
      call();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }
  /// What `call` writes to standard error.
  static std::string log_of(const std::function<void()>& call) {
    ::testing::internal::CaptureStderr();
    call();
    return ::testing::internal::GetCapturedStderr();
  }

  Device device_ = Device::cuda(0);
};

TEST_F(SyncDebugTest, ModesAreKept) {
  EXPECT_EQ(sync_debug_mode(), SyncDebug::off);
  {
    const SyncDebugGuard outer(SyncDebug::warn);
    EXPECT_EQ(sync_debug_mode(), SyncDebug::warn);
    {
      const SyncDebugGuard inner(SyncDebug::error);
      EXPECT_EQ(sync_debug_mode(), SyncDebug::error);
    }
    EXPECT_EQ(sync_debug_mode(), SyncDebug::warn);
  }
  EXPECT_EQ(sync_debug_mode(), SyncDebug::off);
  EXPECT_EQ(error_of([] { set_sync_debug_mode(static_cast<SyncDebug>(7)); }),
            "set_sync_debug_mode: expected off, warn or error, but got 7");
}

TEST_F(SyncDebugTest, NoDriverStandsInTheWayWhileItIsOff) {
  Driver* const own = &driver();
  set_sync_debug_mode(SyncDebug::warn);
  EXPECT_NE(&driver(), own);
  set_sync_debug_mode(SyncDebug::off);
  EXPECT_EQ(&driver(), own);
}

// A replaced driver stays behind the decorator, and comes back without it.
TEST_F(SyncDebugTest, AnExchangedDriverIsDecorated) {
  Driver& own = driver();
  set_sync_debug_mode(SyncDebug::error);
  Driver* const before = exchange_driver(nullptr);
  EXPECT_EQ(before, &own);
  EXPECT_NE(&driver(), &own);
  EXPECT_NE(error_of([&] { synchronize(device_); }), "");
  set_sync_debug_mode(SyncDebug::off);
  EXPECT_EQ(&driver(), &own);
}

// Every call that blocks, and what the error says that it does.
TEST_F(SyncDebugTest, BlockingCallsAreRefusedBeforeTheyBlock) {
  const Tensor tensor = ones({64}, {.dtype = f32, .device = device_});
  Tensor target = zeros({64}, {.dtype = f32, .device = device_});
  const Tensor pageable = ones({64}, f32);
  Tensor pinned = zeros({64}, {.dtype = f32, .pinned = true});
  const Stream stream = Stream::from_pool(device_);
  Event event;
  event.record(stream);
  std::vector<Communicator> group = Communicator::local({device_});
  synchronize(device_);
  std::vector<float> host(64);
  const std::string of_stream = "synchronizing the default stream of cuda:0 blocks the host";
  struct Call {
    const char* function;
    std::string doing;
    std::function<void()> run;
  };
  const std::vector<Call> calls{
      {"gantry::synchronize", "synchronizing cuda:0 blocks the host",
       [&] { synchronize(device_); }},
      {"gantry::Stream::synchronize", "synchronizing a stream of cuda:0",
       [&] { stream.synchronize(); }},
      {"gantry::Event::synchronize", "synchronizing an event", [&] { event.synchronize(); }},
      {"gantry::Tensor::cpu", of_stream, [&] { (void)tensor.cpu(); }},
      {"gantry::Tensor::item", of_stream, [&] { (void)tensor.sum().item<float>(); }},
      {"gantry::Tensor::to_", of_stream, [&] { (void)tensor.to_vector<float>(); }},
      {"gantry::Tensor::copy_", of_stream, [&] { target.copy_(pageable); }},
      {"gantry::Tensor::copy_", of_stream, [&] { pinned.copy_(tensor); }},
      {"gantry::Driver::copy", "copying 256 bytes from pageable host memory",
       [&] { driver().copy(target.data_ptr<float>(), host.data(), 256, stream.native()); }},
      {"gantry::Driver::copy", "copying 256 bytes to pageable host memory",
       [&] { driver().copy(host.data(), target.data_ptr<float>(), 256, stream.native()); }},
      {"gantry::Work::synchronize", "waiting for a collective operation",
       [&] { group[0].all_reduce(target).synchronize(); }},
  };
  const SyncDebugGuard guard(SyncDebug::error);
  for (const Call& call : calls) {
    const std::string text = error_of(call.run);
    EXPECT_THAT(text, StartsWith(call.function));
    EXPECT_THAT(text, HasSubstr(": called a synchronizing operation: " + call.doing));
    EXPECT_THAT(text, HasSubstr(kFile + ":"));
    EXPECT_THAT(text, HasSubstr("SyncDebug::error forbids it"));
  }
}

TEST_F(SyncDebugTest, CallsThatDoNotBlockAreLeftAlone) {
  const Tensor tensor = ones({64}, {.dtype = f32, .device = device_});
  Tensor pinned = zeros({64}, {.dtype = f32, .pinned = true});
  const Stream stream = Stream::from_pool(device_);
  synchronize(device_);
  const SyncDebugGuard guard(SyncDebug::error);
  const std::string log = log_of([&] {
    Tensor other = tensor.add(1).mul(2);
    pinned.copy_(other, {.non_blocking = true});
    other.copy_(pinned, {.non_blocking = true});
    stream.wait(Stream::current(device_));
    Event event = stream.record();
    (void)event.query();
    (void)stream.query();
  });
  EXPECT_EQ(log, "");
}

TEST_F(SyncDebugTest, WarnsOnceForEachPlace) {
  const SyncDebugGuard guard(SyncDebug::warn);
  const std::string log = log_of([&] {
    for (int i = 0; i < 5; ++i) synchronize(device_);
  });
  EXPECT_THAT(log, HasSubstr("sync debug: synchronizing cuda:0 blocks the host, in "));
  EXPECT_THAT(log, HasSubstr(kFile + ":"));
  EXPECT_EQ(log.find("sync debug"), log.rfind("sync debug"));
  const std::string other = log_of([&] { synchronize(device_); });
  EXPECT_THAT(other, HasSubstr("sync debug: "));
}

// A refused free would leak, so it is warned about at most.
TEST_F(SyncDebugTest, FreesAreNeverRefused) {
  { const Tensor tensor = ones({1 << 20}, {.dtype = f32, .device = device_}); }
  void* const data = driver().allocate(0, 4096);
  const SyncDebugGuard guard(SyncDebug::error);
  EXPECT_NO_THROW(memory::empty_cache());
  const std::string log = log_of([&] { driver().deallocate(0, data); });
  EXPECT_THAT(log, HasSubstr("freeing device memory"));
}

// Gantry's own waits go on: a communicator is made and left, memory is found.
TEST_F(SyncDebugTest, GantrysOwnWaitsAreNotRefused) {
  GANTRY_REQUIRE_DEVICES(2);
  const SyncDebugGuard guard(SyncDebug::error);
  std::vector<Communicator> group = Communicator::local({device_, Device::cuda(1)});
  std::vector<Tensor> tensors;
  for (int i = 0; i < 2; ++i) tensors.push_back(full({16}, i + 1.0, {.device = Device::cuda(i)}));
  for (std::size_t i = 0; i < 2; ++i) group[i].all_reduce(tensors[i]);
  group.clear();
  set_sync_debug_mode(SyncDebug::off);
  EXPECT_EQ(tensors[0].slice(0, 0, 1).cpu().item<float>(), 3.0F);
}

TEST_F(SyncDebugTest, TheVariableSetsTheMode) {
  const auto run = [](const char* value) {
    return gantry::testing::run_command({.argv = {GANTRY_TEST_PROGRAM_DIR "/sync_debug_program"},
                                         .environment = {{"GANTRY_SYNC_DEBUG", value}}});
  };
  const auto warned = run("warn");
  EXPECT_EQ(warned.exit_code, 0) << warned.describe();
  EXPECT_THAT(warned.err, HasSubstr("sync debug: synchronizing cuda:0"));
  const auto refused = run("error");
  EXPECT_EQ(refused.exit_code, 1) << refused.describe();
  EXPECT_THAT(refused.err, HasSubstr("SyncDebug::error forbids it"));
  const auto off = run("off");
  EXPECT_EQ(off.exit_code, 0) << off.describe();
  EXPECT_THAT(off.err, Not(HasSubstr("sync debug")));
  const auto malformed = run("loud");
  EXPECT_NE(malformed.exit_code, 0);
  EXPECT_THAT(malformed.out + malformed.err,
              HasSubstr("GANTRY_SYNC_DEBUG: expected off, warn or error, but got 'loud'"));
}

}  // namespace
