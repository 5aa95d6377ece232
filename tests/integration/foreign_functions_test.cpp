// Every function of the program that gantry calls by itself calls gantry again, in a thread whose
// active pool is another one. It must neither hang, nor get memory of that pool.
//
// Three kinds of functions are not here. Host functions on streams and releases of captures must
// not call gantry. The functions of make_graphed(), graph_if() and graph_while() are run by the
// call that they are given to.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gantry/gantry.hpp>

#include "device/drivers/fault_source.hpp"
#include "memory/oom/memory_pressure.hpp"
#include "tests/memory/heap_fixture.hpp"

namespace gantry {
namespace {

using memory::Block;
using memory::Buffer;
using memory::MemPool;
using memory::MemPoolGuard;
using testing::kMib;

// What a function of the program does when gantry calls it.
class Reentry {
 public:
  static Reentry& instance() {
    static Reentry reentry;
    return reentry;
  }

  // Allocates, uses, frees, reads statistics and empties the cache; once at a time.
  void operator()(const std::string& where) {
    if (std::exchange(is_inside_, true)) return;
    ++calls_[where];
    const std::size_t before = chosen_ == nullptr ? 0 : chosen_->use_count();
    {
      const Stream stream = Stream::default_stream();
      Buffer block = memory::allocate(stream, kMib);
      driver().fill(block.data(), 1, block.bytes(), stream.native());
      const Buffer small = memory::allocate(stream, 512);
      if (chosen_ != nullptr) {
        EXPECT_EQ(chosen_->use_count(), before)
            << where << " got memory of a pool that is not its own";
      }
      EXPECT_GT(memory::stats().allocated_bytes.all.current, 0) << where;
    }
    static_cast<void>(memory::host_memory_stats());
    memory::empty_cache();
    is_inside_ = false;
  }

  int calls(const std::string& where) { return calls_[where]; }
  void begin(MemPool* chosen) {
    calls_.clear();
    chosen_ = chosen;
  }

 private:
  std::map<std::string, int> calls_;
  MemPool* chosen_ = nullptr;
  bool is_inside_ = false;
};

void reenter(const char* where) { Reentry::instance()(where); }

// An adaptor as programs write them: it notes each call and forwards it.
class Adaptor final : public memory::Allocator {
 public:
  explicit Adaptor(memory::Allocator& upstream) : upstream_(upstream) {}
  ~Adaptor() override { reenter("destructor"); }
  Adaptor(const Adaptor&) = delete;
  Adaptor& operator=(const Adaptor&) = delete;

  Block allocate(const Stream& stream, std::size_t bytes, std::size_t alignment) override {
    reenter("allocate");
    Block block = upstream_.allocate(stream, bytes, alignment);
    block.allocator = this;
    return block;
  }
  void deallocate(Block& block) noexcept override {
    reenter("deallocate");
    Block forwarded = std::exchange(block, {});
    forwarded.allocator = &upstream_;
    upstream_.deallocate(forwarded);
  }
  void record_stream(const Block& block, const Stream& stream) override {
    reenter("record_stream");
    upstream_.record_stream(block, stream);
  }
  void empty_cache(Device device) override {
    reenter("empty_cache");
    upstream_.empty_cache(device);
  }

 private:
  memory::Allocator& upstream_;
};

class ForeignFunctionsTest : public testing::HeapTest {
 protected:
  void SetUp() override {
    HeapTest::SetUp();
    if (IsSkipped()) return;
    pool.emplace(Device::cuda(0), memory::MemPoolOptions{.use_on_oom = true});
    Reentry::instance().begin(&*pool);
    guard.emplace(*pool);
  }
  void TearDown() override {
    Reentry::instance().begin(nullptr);
    guard.reset();
    pool.reset();
    memory::empty_cache();
    HeapTest::TearDown();
  }
  static int calls(const std::string& where) { return Reentry::instance().calls(where); }

  const Device device = Device::cuda(0);
  memory::Allocator& built_in = memory::allocator(Device::cuda(0));
  std::optional<MemPool> pool;  // the thread's own code has chosen it
  std::optional<MemPoolGuard> guard;
};

TEST_F(ForeignFunctionsTest, AllocatorOfAPoolUnderItsOwnGuard) {
  {
    MemPool own(device, {.use_on_oom = true, .allocator = std::make_shared<Adaptor>(built_in)});
    Reentry::instance().begin(&own);
    const MemPoolGuard own_guard(own);
    const Tensor x = ones({10}, device);
    EXPECT_EQ(own.use_count(), 1u);
    EXPECT_EQ(x.sum().item<float>(), 10);
    EXPECT_GE(calls("allocate"), 1);
  }
  Reentry::instance().begin(&*pool);
  memory::empty_cache();
}

TEST_F(ForeignFunctionsTest, AllocatorOfAPoolUnderAnotherGuard) {
  std::optional<MemPool> own(
      std::in_place, device,
      memory::MemPoolOptions{.use_on_oom = true, .allocator = std::make_shared<Adaptor>(built_in)});
  std::optional<Buffer> block = own->allocate(Stream::current(), 3 * kMib);
  EXPECT_EQ(calls("allocate"), 1);
  block.reset();
  memory::empty_cache();
  EXPECT_EQ(calls("deallocate"), 1);
  block = own->allocate(Stream::current(), 3 * kMib);
  own.reset();
  block.reset();
  memory::empty_cache();
  EXPECT_EQ(calls("deallocate"), 2);
  EXPECT_EQ(calls("destructor"), 1);
}

TEST_F(ForeignFunctionsTest, PoolOverAnAdaptorIsShortOfMemory) {
  MemPool own(device, {.use_on_oom = true, .allocator = std::make_shared<Adaptor>(built_in)});
  const Buffer live = own.allocate(Stream::current(), 3 * kMib);
  const std::size_t total = device_properties(device).total_memory;
  EXPECT_THROW(static_cast<void>(own.allocate(Stream::current(), total)), OutOfMemoryError);
  EXPECT_GE(calls("allocate"), 1);
}

TEST_F(ForeignFunctionsTest, AllocatorOfADevice) {
  auto adaptor = std::make_shared<Adaptor>(built_in);
  memory::set_allocator(device, adaptor);
  {
    Tensor x = ones({1 << 18}, device);
    EXPECT_GE(calls("allocate"), 1);
    const Stream side = Stream::from_pool(device);
    x.record_stream(side);
    EXPECT_GE(calls("record_stream"), 1);
    void* raw = memory::allocate_raw(512);
    memory::deallocate_raw(raw);
  }
  EXPECT_GE(calls("deallocate"), 2);
  memory::empty_cache();
  EXPECT_GE(calls("empty_cache"), 1);
  Reentry::instance().begin(nullptr);  // the program itself destroys it
  memory::set_allocator(device, nullptr);
  adaptor.reset();
  EXPECT_EQ(calls("destructor"), 1);
}

TEST_F(ForeignFunctionsTest, FunctionsOfALibrary) {
  void* library = ::dlopen(GANTRY_TEST_REENTERING_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << ::dlerror();
  *static_cast<void (**)(const char*)>(::dlsym(library, "reentering_hook")) = reenter;
  memory::PluggableHooks hooks;
  hooks.init = "reentering_init";
  hooks.empty_cache = "reentering_empty";
  hooks.record_stream = "reentering_record";
  memory::PluggableAllocator plugged = memory::load_allocator(
      GANTRY_TEST_REENTERING_LIBRARY, "reentering_alloc", "reentering_free", hooks);
  {
    const Buffer block(plugged.allocate(Stream::current(), kMib));
    plugged.record_stream(block.block(), Stream::from_pool(device));
  }
  plugged.empty_cache(device);
  for (const char* where : {"alloc", "free", "record_stream", "empty_cache"}) {
    EXPECT_EQ(calls(where), 1) << where;
  }
  ::dlclose(library);
}

TEST_F(ForeignFunctionsTest, DeletersOfForeignMemory) {
  float numbers[4] = {1, 2, 3, 4};
  static_cast<void>(from_blob(
      numbers, {4}, [](void*) { reenter("from_blob"); }, f32));
  EXPECT_EQ(calls("from_blob"), 1);
  static_cast<void>(
      Storage::foreign(numbers, sizeof numbers, Device::cpu(), [](void*) { reenter("storage"); }));
  EXPECT_EQ(calls("storage"), 1);
  for (const bool copies : {false, true}) {
    std::int64_t size = 4;
    auto* managed = new dlpack::ManagedVersioned{};
    managed->version = dlpack::kVersion;
    managed->dl_tensor.data = numbers;
    managed->dl_tensor.device = {dlpack::MemoryKind::cpu, 0};
    managed->dl_tensor.ndim = 1;
    managed->dl_tensor.dtype = {dlpack::TypeCode::floating, 32, 1};
    managed->manager_ctx = new std::int64_t(size);
    managed->dl_tensor.shape = static_cast<std::int64_t*>(managed->manager_ctx);
    managed->deleter = [](DLManagedTensorVersioned* self) {
      reenter("dlpack");
      dlpack::ManagedVersioned& fields = dlpack::fields(*self);
      delete static_cast<std::int64_t*>(fields.manager_ctx);
      delete &fields;
    };
    static_cast<void>(from_dlpack(dlpack::handle(*managed), {.copy = copies}));
  }
  EXPECT_EQ(calls("dlpack"), 2);
}

TEST_F(ForeignFunctionsTest, OutOfMemoryObservers) {
  // Observers cannot be removed.
  static bool is_on = false;
  memory::add_oom_observer([](Device, const OomReport&) {
    if (!is_on) return;
    reenter("observer");
    // Its own error reaches no observer.
    const std::size_t total = device_properties(Device::cuda(0)).total_memory;
    EXPECT_THROW(static_cast<void>(memory::allocate(Stream::current(), 2 * total)),
                 OutOfMemoryError);
  });
  is_on = true;
  const std::size_t total = device_properties(device).total_memory;
  for (int i = 0; i < 2; ++i) {
    EXPECT_THROW(static_cast<void>(memory::allocate(Stream::current(), 2 * total)),
                 OutOfMemoryError);
  }
  is_on = false;
  EXPECT_EQ(calls("observer"), 2);
}

TEST_F(ForeignFunctionsTest, OutOfMemoryHandlers) {
  // Requests above the limit call no handler, and the memory of a GPU takes seconds to fill.
  constexpr std::size_t kLimit = 64 * kMib;
  constexpr std::size_t kMost = kLimit - 2 * kMib;
  const auto total = static_cast<double>(device_properties(device).total_memory);
  memory::empty_cache();
  memory::set_fraction(std::min(1.0, static_cast<double>(kLimit) / total), device);
  const memory::OomHandler handler = memory::add_oom_handler([&](Device, std::size_t) {
    reenter("handler");
    // Its own requests call no handler.
    EXPECT_THROW(static_cast<void>(memory::allocate(Stream::current(), kMost)), OutOfMemoryError);
    return false;
  });
  const memory::Buffer some = memory::allocate(Stream::current(), std::size_t{4} << 20);
  EXPECT_THROW(static_cast<void>(memory::allocate(Stream::current(), kMost)), OutOfMemoryError);
  EXPECT_EQ(calls("handler"), 1);
  memory::set_fraction(1, device);
}

TEST_F(ForeignFunctionsTest, MemoryPressureCallbacks) {
  static bool is_on = false;
  memory::MemoryPressureCallbacks::instance().add([](int, memory::Waiting) noexcept {
    if (is_on) reenter("pressure");
    return false;
  });
  is_on = true;
  memory::empty_cache();
  EXPECT_EQ(calls("pressure"), device_count());
  const std::size_t total = device_properties(device).total_memory;
  EXPECT_THROW(static_cast<void>(memory::allocate(Stream::current(), 2 * total)), OutOfMemoryError);
  is_on = false;
  EXPECT_GT(calls("pressure"), device_count());
}

TEST_F(ForeignFunctionsTest, FaultSources) {
  struct Source final : FaultSource {
    int fault_device() const noexcept override { return 0; }
    bool has_fault() const noexcept override { return true; }
    void raise_fault() override {
      reenter("fault");
      synchronize(Device::cuda(0));
    }
  } source;
  add_fault_source(source);
  Reentry::instance().begin(nullptr);  // faults are sources of gantry, not of the program
  synchronize(device);
  remove_fault_source(source);
  EXPECT_EQ(calls("fault"), 1);
}

}  // namespace
}  // namespace gantry
