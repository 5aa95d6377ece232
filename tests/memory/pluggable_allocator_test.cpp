#include <gantry/memory/pluggable_allocator.hpp>

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <string>
#include <thread>

#include <gantry/core/error.hpp>
#include <gantry/device/guard.hpp>
#include <gantry/memory/caching_allocator.hpp>
#include <gantry/memory/stats.hpp>
#include <gantry/streams/stream.hpp>

#include "tests/memory/allocator_contract.hpp"
#include "tests/memory/pluggable_library.hpp"
#include "tests/support/fault_driver.hpp"

namespace gantry::memory {
namespace {

using gantry::testing::FaultDriver;
using gantry::testing::PluggableLog;
using gantry::testing::StreamHold;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr const char* kLibrary = GANTRY_TEST_PLUGGABLE_LIBRARY;

bool is_loaded() {
  void* handle = ::dlopen(kLibrary, RTLD_NOW | RTLD_NOLOAD);
  if (handle != nullptr) ::dlclose(handle);
  return handle != nullptr;
}

// Of a library that is loaded.
PluggableLog& log_of_library() {
  void* handle = ::dlopen(kLibrary, RTLD_NOW | RTLD_NOLOAD);
  auto* log = static_cast<PluggableLog*>(::dlsym(handle, "pluggable_log"));
  ::dlclose(handle);
  return *log;
}

class PluggableAllocatorTest : public gantry::testing::DeviceTest {
 protected:
  void TearDown() override {
    for (int i = 0; i < device_count(); ++i) set_allocator(Device::cuda(i), nullptr);
    DeviceTest::TearDown();
  }
  static PluggableAllocator load(const PluggableHooks& hooks = {}) {
    PluggableAllocator made = load_allocator(kLibrary, "pluggable_alloc", "pluggable_free", hooks);
    PluggableLog& log = log_of_library();
    const int devices = log.devices;
    log = {};
    log.devices = devices;
    return made;
  }
};

TEST_F(PluggableAllocatorTest, FunctionsSeeSizeDeviceAndStream) {
  PluggableAllocator plugged = load();
  const PluggableLog& log = log_of_library();
  for (int i = 0; i < device_count(); ++i) {
    const Device device = Device::cuda(i);
    for (const Stream& stream : {Stream::default_stream(device), Stream::from_pool(device)}) {
      Block block = plugged.allocate(stream, 1000);
      ASSERT_NE(block.data, nullptr);
      EXPECT_EQ(block.bytes, 1000u);
      EXPECT_EQ(block.device, device);
      EXPECT_EQ(driver().pointer_info(block.data).device, i);
      EXPECT_EQ(plugged.live_blocks(), 1u);
      EXPECT_EQ(plugged.live_bytes(), 1000u);
      plugged.deallocate(block);
      EXPECT_EQ(block.data, nullptr);
      plugged.deallocate(block);  // of nothing
    }
  }
  EXPECT_EQ(log.allocations, 2 * device_count());
  EXPECT_EQ(log.frees, 2 * device_count());
  EXPECT_EQ(log.mismatches, 0);
  EXPECT_EQ(log.wrong_device, 0);
  EXPECT_EQ(plugged.live_bytes(), 0u);
  EXPECT_EQ(plugged.name(), "pluggable");
  EXPECT_EQ(current_device(), Device::cuda(0));
}

TEST_F(PluggableAllocatorTest, ServesItsDeviceOnly) {
  PluggableAllocator plugged = load();
  const PluggableLog& log = log_of_library();
  const auto shared = std::make_shared<PluggableAllocator>(plugged);
  EXPECT_EQ(set_allocator(Device::cuda(0), shared), nullptr);
  EXPECT_EQ(&allocator(Device::cuda(0)), shared.get());
  { const Buffer buffer = allocate(Stream::current(Device::cuda(0)), 5000); }
  EXPECT_EQ(log.allocations, 1);
  void* raw = allocate_raw(300);
  EXPECT_EQ(log.allocations, 2);
  memory::deallocate_raw(raw);
  EXPECT_EQ(log.frees, 2);
  if (device_count() > 1) {
    { const Buffer buffer = allocate(Stream::current(Device::cuda(1)), 5000); }
    EXPECT_EQ(log.allocations, 2);
  }
  EXPECT_EQ(set_allocator(Device::cuda(0), nullptr), shared);
}

TEST_F(PluggableAllocatorTest, BlocksReturnToTheAllocatorThatMadeThem) {
  PluggableAllocator plugged = load();
  const PluggableLog& log = log_of_library();
  const Stream stream = Stream::current(Device::cuda(0));
  Buffer cached = allocate(stream, 4096);
  void* data = cached.data();
  set_allocator(Device::cuda(0), std::make_shared<PluggableAllocator>(plugged));
  Buffer made = allocate(stream, 4096);
  EXPECT_EQ(log.allocations, 1);
  cached.reset();
  EXPECT_EQ(log.frees, 0) << "the library was given a block of the caching allocator";
  set_allocator(Device::cuda(0), nullptr);
  EXPECT_EQ(allocate(stream, 4096).data(), data) << "the caching allocator lost its block";
  made.reset();
  EXPECT_EQ(log.frees, 1);
  EXPECT_EQ(log.mismatches, 0);
}

TEST_F(PluggableAllocatorTest, HooksAreCalled) {
  PluggableAllocator plugged = load({.init = "pluggable_init",
                                     .empty_cache = "pluggable_empty",
                                     .record_stream = "pluggable_record"});
  const PluggableLog& log = log_of_library();
  EXPECT_EQ(log.devices, device_count());
  set_allocator(Device::cuda(0), std::make_shared<PluggableAllocator>(plugged));
  Buffer buffer = allocate(Stream::current(), 4096);
  allocator(Device::cuda(0)).record_stream(buffer.block(), Stream::from_pool());
  EXPECT_EQ(log.recorded, 1);
  EXPECT_EQ(log.last_recorded, buffer.data());
  allocator(Device::cuda(0)).record_stream(buffer.block(), Stream::current());
  EXPECT_EQ(log.recorded, 1) << "its own stream needs no record";
  empty_cache();
  EXPECT_EQ(log.empties, 1);
}

TEST_F(PluggableAllocatorTest, WithoutAHookFreesWaitForRecordedStreams) {
  PluggableAllocator plugged = load();
  const Stream own = Stream::from_pool();
  const Stream user = Stream::from_pool();
  Block block = plugged.allocate(own, 4096);
  plugged.record_stream(block, user);
  plugged.record_stream(block, user);
  std::optional<StreamHold> hold(std::in_place, user);
  FaultDriver driver;
  std::thread freeing([&] { plugged.deallocate(block); });  // the library synchronizes with own
  while (std::atomic_ref(log_of_library().frees).load() == 0) std::this_thread::yield();
  EXPECT_FALSE(own.query()) << "the free is not ordered behind the recorded stream";
  EXPECT_EQ(driver.calls("record_event"), 1u);
  hold.reset();
  freeing.join();
  EXPECT_EQ(log_of_library().frees, 1);
}

TEST_F(PluggableAllocatorTest, FreesAreSafeWhenEventsFail) {
  PluggableAllocator plugged = load();
  const Stream own = Stream::from_pool();
  const Stream user = Stream::from_pool();
  for (const char* call : {"record_event", "wait_event"}) {
    Block block = plugged.allocate(own, 4096);
    plugged.record_stream(block, user);
    FaultDriver driver;
    driver.fail_on(call, 1);
    plugged.deallocate(block);
    EXPECT_EQ(driver.calls("synchronize_stream"), 2u) << "the host did not wait in place of it";
  }
  EXPECT_EQ(plugged.live_blocks(), 0u);
}

TEST_F(PluggableAllocatorTest, FreesLeaveCapturesOfRecordedStreamsWhole) {
  PluggableAllocator plugged = load();
  const Stream own = Stream::from_pool();
  const Stream user = Stream::from_pool();
  for (const char* failing : {"none", "record_event"}) {
    Block block = plugged.allocate(own, 4096);
    plugged.record_stream(block, user);
    FaultDriver driver;
    driver.begin_capture(user.native(), CaptureMode::global);
    driver.fail_on(failing, 1);
    plugged.deallocate(block);
    EXPECT_FALSE(driver.is_capturing(own.native())) << "a wait made it take part";
    NativeGraph graph = nullptr;
    EXPECT_NO_THROW(graph = driver.end_capture(user.native()));
    driver.destroy_graph(graph);
  }
  EXPECT_EQ(plugged.live_blocks(), 0u);
}

TEST_F(PluggableAllocatorTest, NullIsOutOfMemory) {
  PluggableAllocator plugged = load();
  log_of_library().is_full = true;
  const Stream stream = Stream::current();
  try {
    static_cast<void>(plugged.allocate(stream, 3000));
    FAIL() << "no error";
  } catch (const OutOfMemoryError& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("CUDA out of memory. Tried to allocate 2.93 KiB. GPU 0 has"));
    EXPECT_EQ(error.breakdown().requested, 3000);
    EXPECT_GT(error.breakdown().total, 0);
  }
  EXPECT_EQ(plugged.live_blocks(), 0u);
  log_of_library().is_full = false;
  Buffer buffer(plugged.allocate(stream, 3000));
  EXPECT_NE(buffer.data(), nullptr);
}

TEST_F(PluggableAllocatorTest, ExceptionsDoNotEscapeTheLibrary) {
  PluggableAllocator throwing = load_allocator(kLibrary, "throwing_alloc", "pluggable_free");
  EXPECT_THAT([&] { static_cast<void>(throwing.allocate(Stream::current(), 100)); },
              ThrowsMessage<Error>(
                  AllOf(HasSubstr("the alloc function of"), HasSubstr("no allocation today"))));
  PluggableAllocator freeing = load_allocator(kLibrary, "pluggable_alloc", "throwing_free");
  Buffer buffer(freeing.allocate(Stream::current(), 100));
  buffer.reset();  // a warning
  EXPECT_EQ(freeing.live_blocks(), 0u);
}

TEST_F(PluggableAllocatorTest, MissingFilesAndSymbolsAreNamed) {
  const auto loading = [](const char* path, const char* alloc, const char* free,
                          const PluggableHooks& hooks = {}) {
    return [=] { static_cast<void>(load_allocator(path, alloc, free, hooks)); };
  };
  EXPECT_THAT(loading("/nowhere/libnothing.so", "a", "b"),
              ThrowsMessage<InvalidArgument>(AllOf(
                  HasSubstr("load_allocator: expected a shared object that can be loaded, but "
                            "got '/nowhere/libnothing.so'"),
                  HasSubstr("No such file"))));
  EXPECT_THAT(loading(kLibrary, "no_alloc", "pluggable_free"),
              ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("expected a function 'no_alloc' in"),
                                                   HasSubstr("undefined symbol: no_alloc"))));
  EXPECT_THAT(loading(kLibrary, "pluggable_alloc", "no_free"),
              ThrowsMessage<InvalidArgument>(HasSubstr("'no_free'")));
  EXPECT_THAT(loading(kLibrary, "pluggable_alloc", "pluggable_free", {.init = "no_init"}),
              ThrowsMessage<InvalidArgument>(HasSubstr("'no_init'")));
  EXPECT_THAT(loading(kLibrary, "pluggable_alloc", "pluggable_free", {.empty_cache = "no_empty"}),
              ThrowsMessage<InvalidArgument>(HasSubstr("'no_empty'")));
  EXPECT_THAT(
      loading(kLibrary, "pluggable_alloc", "pluggable_free", {.record_stream = "no_record"}),
      ThrowsMessage<InvalidArgument>(HasSubstr("'no_record'")));
  EXPECT_FALSE(is_loaded()) << "a failed load left the library behind";
}

TEST_F(PluggableAllocatorTest, TheLibraryStaysWhileABlockLives) {
  EXPECT_FALSE(is_loaded());
  std::optional<PluggableAllocator> plugged = load();
  Buffer buffer(plugged->allocate(Stream::current(), 4096));
  plugged.reset();
  ASSERT_TRUE(is_loaded());
  EXPECT_EQ(log_of_library().allocations, 1);
  EXPECT_EQ(log_of_library().frees, 0);
  buffer.reset();
  EXPECT_FALSE(is_loaded());
}

// The example of pluggable_allocator.hpp.
class CountingAllocator : public memory::Allocator {
 public:
  explicit CountingAllocator(memory::Allocator& inner) : inner_(inner) {}
  memory::Block allocate(const Stream& stream, std::size_t bytes, std::size_t alignment) override {
    memory::Block block = inner_.allocate(stream, bytes, alignment);
    allocations += 1;
    allocated_bytes += block.bytes;
    return block;
  }
  void deallocate(memory::Block& block) noexcept override { inner_.deallocate(block); }
  void record_stream(const memory::Block& block, const Stream& stream) override {
    inner_.record_stream(block, stream);
  }
  void empty_cache(Device device) override { inner_.empty_cache(device); }
  std::string name() const override { return "counting " + inner_.name(); }
  std::atomic<std::size_t> allocations{0}, allocated_bytes{0};

 private:
  memory::Allocator& inner_;
};

TEST_F(PluggableAllocatorTest, AClassOfTheProgramMayTakeThePlaceToo) {
  auto counting = std::make_shared<CountingAllocator>(memory::allocator(Device::cuda(0)));
  memory::set_allocator(Device::cuda(0), counting);
  const Stream stream = Stream::current();
  Buffer buffer = memory::allocate(stream, 1000);
  void* raw = memory::allocate_raw(24, stream);
  EXPECT_EQ(counting->allocations, 2u);
  EXPECT_EQ(counting->allocated_bytes, 1024u);
  EXPECT_NE(buffer.block().allocator, counting.get());
  memory::set_allocator(Device::cuda(0), nullptr);
  memory::deallocate_raw(raw);
  buffer.reset();
}

// The file that has gantry_malloc: PyTorch gets its path.
std::string path_of_gantry() {
  Dl_info info{};
  EXPECT_NE(::dladdr(reinterpret_cast<const void*>(&gantry_malloc), &info), 0);
  return info.dli_fname;
}

TEST_F(PluggableAllocatorTest, TakesGantrysOwnFunctions) {
  PluggableAllocator own = load_allocator(path_of_gantry(), "gantry_malloc", "gantry_free");
  for (const Stream& stream : {Stream::default_stream(), Stream::from_pool()}) {
    for (const std::size_t bytes : {std::size_t{1}, std::size_t{512}, std::size_t{5} << 20}) {
      const std::size_t before = allocated(Device::cuda(0));
      Block block = own.allocate(stream, bytes);
      ASSERT_NE(block.data, nullptr);
      EXPECT_GE(allocated(Device::cuda(0)), before + bytes);
      own.deallocate(block);
      EXPECT_EQ(allocated(Device::cuda(0)), before);
    }
  }
}

TEST_F(PluggableAllocatorTest, GantrysOwnFunctionsRefuseWhatTheyCannotServe) {
  EXPECT_EQ(gantry_malloc(0, 0, nullptr), nullptr);
  EXPECT_THROW((void)gantry_malloc(-1, 0, nullptr), InvalidArgument);
  EXPECT_THROW((void)gantry_malloc(8, device_count(), nullptr), Error);
  EXPECT_THROW((void)gantry_malloc(std::ptrdiff_t{1} << 60, 0, nullptr), OutOfMemoryError);
  gantry_free(nullptr, 0, 0, nullptr);
  int local = 0;
  EXPECT_THROW(gantry_free(&local, sizeof(local), 0, nullptr), InvalidArgument);
}

}  // namespace
}  // namespace gantry::memory

namespace gantry::testing {

INSTANTIATE_TEST_SUITE_P(Pluggable, AllocatorContract,
                         ::testing::Values(AllocatorProvider{
                             "pluggable",
                             []() -> memory::Allocator& {
                               // What its blocks name; loaded for the rest of the process.
                               static memory::PluggableAllocator& plugged =
                                   *new memory::PluggableAllocator(
                                       memory::load_allocator(GANTRY_TEST_CONTRACT_LIBRARY,
                                                              "pluggable_alloc", "pluggable_free"));
                               static memory::Allocator& inner = [&]() -> memory::Allocator& {
                                 const memory::Buffer first(plugged.allocate(Stream::current(), 1));
                                 return *first.block().allocator;
                               }();
                               return inner;
                             },
                             Device::cuda(0), false}),
                         [](const auto& info) { return info.param.label; });

}  // namespace gantry::testing
