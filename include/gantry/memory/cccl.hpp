#pragma once

#include <cuda/memory_resource>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include <gantry/device/device.hpp>
#include <gantry/memory/allocator.hpp>
#include <gantry/memory/caching_allocator.hpp>
#include <gantry/streams/stream.hpp>

// gantry's memory for CCCL, Thrust and RMM, and theirs for gantry. This header needs the headers of
// the CUDA toolkit, and nothing of it is in <gantry/gantry.hpp>. With CCCL 3.0 define
// LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE before the first include.

namespace gantry {

/// `stream` for CCCL. The stream outlives the reference.
/// @since 0.3
[[nodiscard]] inline cuda::stream_ref to_stream_ref(const Stream& stream) {
  auto handle = static_cast<cudaStream_t>(stream.native_handle());
#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
  if (handle == nullptr) handle = cudaStreamLegacy;
#endif
  return cuda::stream_ref{handle};
}
/// A stream of `device` that CCCL has; the conditions are those of Stream::external(). The handle 0
/// is the default stream of the file's own calls of CUDA: with CUDA_API_PER_THREAD_DEFAULT_STREAM
/// the calling thread's.
/// @since 0.3
[[nodiscard]] inline Stream from_stream_ref(cuda::stream_ref stream,
                                            Device device = Device::cuda()) {
  void* handle = stream.get();
#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
  if (handle == nullptr) handle = cudaStreamPerThread;
#endif
  return Stream::external(handle, device);
}

namespace memory {

/// gantry's memory of one device as a resource of CCCL: a cuda::mr::async_resource (CCCL 3.0) and a
/// cuda::mr::resource (3.1 and later) that is device_accessible. RMM takes it, too.
///
/// A cheap handle: all resources of one device are equal. Each frees what another one allocated.
/// Memory comes from allocate(), so pools, limits, statistics and the program's own allocator
/// apply.
///
/// Device/stream: memory is for work on the stream, as of allocate(). A free is behind the earlier
/// work of its own stream, which runs behind all work that uses the memory. The stream of the
/// allocation may be destroyed before. The forms without a stream block the host until the memory
/// may be used on any stream; at the free, no work uses the memory.
/// Thread safety: any thread.
/// Throws: as allocate(). Frees of other pointers are ignored.
/// @since 0.3
class DeviceResource {
 public:
  /// The memory of `device`; by default of the current one.
  explicit DeviceResource(Device device = Device::cuda())
      : blocks_(&Blocks::of(Stream::default_stream(device).device())) {}

  /// The device of the memory.
  [[nodiscard]] Device device() const noexcept { return blocks_->device; }

  /// As CCCL 3.1 spells it, in stream order.
  /// @{
  [[nodiscard]] void* allocate(cuda::stream_ref stream, std::size_t bytes, std::size_t alignment) {
    return blocks_->take(from_stream_ref(stream, device()), bytes, alignment);
  }
  void deallocate(cuda::stream_ref stream, void* data, std::size_t /*bytes*/,
                  std::size_t /*alignment*/) noexcept {
    blocks_->give_back(data, stream);
  }
  /// @}
  /// As CCCL 3.1 spells it, for any stream.
  /// @{
  [[nodiscard]] void* allocate_sync(std::size_t bytes, std::size_t alignment = kDefaultAlignment) {
    const Stream stream = Stream::default_stream(device());
    void* const data = blocks_->take(stream, bytes, alignment);
    try {
      stream.synchronize();
    } catch (...) {
      deallocate_sync(data, bytes, alignment);
      throw;
    }
    return data;
  }
  void deallocate_sync(void* data, std::size_t /*bytes*/,
                       std::size_t /*alignment*/ = kDefaultAlignment) noexcept {
    blocks_->give_back(data, to_stream_ref(Stream::default_stream(device())));
  }
  /// @}

  /// As CCCL 3.0 and RMM spell it.
  /// @{
  [[nodiscard]] void* allocate_async(std::size_t bytes, std::size_t alignment,
                                     cuda::stream_ref stream) {
    return allocate(stream, bytes, alignment);
  }
  [[nodiscard]] void* allocate_async(std::size_t bytes, cuda::stream_ref stream) {
    return allocate(stream, bytes, kDefaultAlignment);
  }
  void deallocate_async(void* data, std::size_t bytes, std::size_t alignment,
                        cuda::stream_ref stream) noexcept {
    deallocate(stream, data, bytes, alignment);
  }
  void deallocate_async(void* data, std::size_t bytes, cuda::stream_ref stream) noexcept {
    deallocate(stream, data, bytes, kDefaultAlignment);
  }
  [[nodiscard]] void* allocate(std::size_t bytes, std::size_t alignment = kDefaultAlignment) {
    return allocate_sync(bytes, alignment);
  }
  void deallocate(void* data, std::size_t bytes,
                  std::size_t alignment = kDefaultAlignment) noexcept {
    deallocate_sync(data, bytes, alignment);
  }
  /// @}

  /// True for resources of one device.
  friend bool operator==(const DeviceResource& a, const DeviceResource& b) noexcept {
    return a.blocks_ == b.blocks_;
  }
  /// Devices can access the memory; the host cannot.
  friend void get_property(const DeviceResource&, cuda::mr::device_accessible) noexcept {}

 private:
  // The blocks that the resources of one device gave out.
  struct Blocks {
    explicit Blocks(Device device) : device(device) {}

    // Never destroyed: programs free memory while they exit.
    static Blocks& of(Device device) {
      static auto& mutex = *new std::mutex();
      static auto& all = *new std::unordered_map<int, std::unique_ptr<Blocks>>();
      const std::lock_guard lock(mutex);
      std::unique_ptr<Blocks>& blocks = all[device.index];
      if (blocks == nullptr) blocks = std::make_unique<Blocks>(device);
      return *blocks;
    }

    void* take(const Stream& stream, std::size_t bytes, std::size_t alignment) {
      Entry entry{memory::allocate(stream, bytes, alignment), stream.id()};
      void* const data = entry.buffer.data();
      if (data == nullptr) return nullptr;
      const std::lock_guard lock(mutex);
      entries.emplace(data, std::move(entry));
      return data;
    }
    void give_back(void* data, cuda::stream_ref stream) noexcept {
      std::unique_lock lock(mutex);
      auto entry = entries.extract(data);
      lock.unlock();
      if (entry.empty()) return;
      auto& [buffer, stream_id] = entry.mapped();
      try {
        // One handle may name several streams: one of each thread, or one after another.
        const Stream last = from_stream_ref(stream, device);
        if (last.id() == stream_id) return;
        buffer.block().allocator->set_stream(buffer.block(), last);
      } catch (...) {  // the device failed: the memory must not be reused too early
        static_cast<void>(buffer.release());
      }
    }

    struct Entry {
      Buffer buffer;
      std::uint64_t stream_id;  // of the allocation
    };

    const Device device;
    std::mutex mutex;  // guards the next member
    std::unordered_map<void*, Entry> entries;
  };

  Blocks* blocks_;
};

/// A DeviceResource that throws `Error`, made from the text, in the place of OutOfMemoryError. Code
/// of another library that catches its own type then frees memory and tries again.
///
/// `DeviceResourceThrowing<rmm::out_of_memory>` is for RMM. A DeviceResource of the device is
/// equal, and each frees what the other one allocated. Thread safety: any thread. Throws: `Error`;
/// else as DeviceResource.
/// @code
/// memory::DeviceResourceThrowing<rmm::out_of_memory> memory;
/// rmm::mr::failure_callback_resource_adaptor<> retrying(memory, free_some, nullptr);
/// @endcode
/// @since 0.3
template <class Error>
class DeviceResourceThrowing : public DeviceResource {
 public:
  using DeviceResource::DeviceResource;

  /// As DeviceResource has them.
  /// @{
  [[nodiscard]] void* allocate(cuda::stream_ref stream, std::size_t bytes, std::size_t alignment) {
    return translate([&] { return DeviceResource::allocate(stream, bytes, alignment); });
  }
  [[nodiscard]] void* allocate_sync(std::size_t bytes, std::size_t alignment = kDefaultAlignment) {
    return translate([&] { return DeviceResource::allocate_sync(bytes, alignment); });
  }
  [[nodiscard]] void* allocate_async(std::size_t bytes, std::size_t alignment,
                                     cuda::stream_ref stream) {
    return allocate(stream, bytes, alignment);
  }
  [[nodiscard]] void* allocate_async(std::size_t bytes, cuda::stream_ref stream) {
    return allocate(stream, bytes, kDefaultAlignment);
  }
  [[nodiscard]] void* allocate(std::size_t bytes, std::size_t alignment = kDefaultAlignment) {
    return allocate_sync(bytes, alignment);
  }
  /// @}

 private:
  template <class Allocate>
  static void* translate(Allocate&& allocate) {
    try {
      return allocate();
    } catch (const OutOfMemoryError& error) {
      throw Error(error.what());
    }
  }
};

/// A resource of CCCL or RMM as the allocator of a gantry device:
/// `set_allocator(device, std::make_shared<ResourceAllocator<R>>(resource, device))`.
///
/// `Resource`: allocates in stream order, as CCCL 3.0 or 3.1 spells it, memory of `device`.
/// A copy of `resource` lives as long as the allocator. A free first makes the stream of the block
/// wait for the recorded streams.
/// Thread safety: as the resource.
/// Throws: what the resource throws.
/// @since 0.3
template <class Resource>
class ResourceAllocator final : public Allocator {
 public:
  /// Memory of `device` by `resource`.
  ResourceAllocator(Resource resource, Device device)
      : resource_(std::move(resource)), device_(device) {}

  [[nodiscard]] Block allocate(const Stream& stream, std::size_t bytes,
                               std::size_t alignment = kDefaultAlignment) override {
    if (bytes == 0) return {.device = device_};
    auto use = std::make_unique<Use>(stream, alignment);
    void* const data = take(to_stream_ref(stream), bytes, alignment);
    return {data, bytes, device_, this, use.release()};
  }
  void deallocate(Block& block) noexcept override {
    if (block.data == nullptr) return;
    const std::unique_ptr<Use> use(static_cast<Use*>(block.handle));
    try {
      for (const Stream& other : use->others) use->stream.wait(other);
      give_back(to_stream_ref(use->stream), block.data, block.bytes, use->alignment);
    } catch (...) {  // the device failed: the memory stays with it
    }
    block = {};
  }
  void record_stream(const Block& block, const Stream& stream) override {
    if (block.data == nullptr) return;
    Use& use = *static_cast<Use*>(block.handle);
    const std::lock_guard lock(use.mutex);
    if (stream == use.stream) return;
    if (std::ranges::find(use.others, stream) == use.others.end()) use.others.push_back(stream);
  }
  void set_stream(const Block& block, const Stream& stream) override {
    if (block.data == nullptr) return;
    Use& use = *static_cast<Use*>(block.handle);
    const std::lock_guard lock(use.mutex);
    std::erase(use.others, stream);
    use.stream = stream;
  }
  /// "resource".
  [[nodiscard]] std::string name() const override { return "resource"; }

 private:
  struct Use {
    Use(Stream stream, std::size_t alignment) : stream(std::move(stream)), alignment(alignment) {}

    Stream stream;
    std::size_t alignment;
    std::mutex mutex;  // guards the next member
    std::vector<Stream> others;
  };

  void* take(cuda::stream_ref stream, std::size_t bytes, std::size_t alignment) {
    if constexpr (requires { resource_.allocate(stream, bytes, alignment); }) {
      return resource_.allocate(stream, bytes, alignment);
    } else {
      return resource_.allocate_async(bytes, alignment, stream);
    }
  }
  void give_back(cuda::stream_ref stream, void* data, std::size_t bytes, std::size_t alignment) {
    if constexpr (requires { resource_.deallocate(stream, data, bytes, alignment); }) {
      resource_.deallocate(stream, data, bytes, alignment);
    } else {
      resource_.deallocate_async(data, bytes, alignment, stream);
    }
  }

  Resource resource_;
  const Device device_;
};

/// Temporary memory of Thrust's algorithms, from gantry, for one stream:
///
///     TemporaryMemory memory(stream);
///     thrust::sort(thrust::cuda::par_nosync(memory).on(handle), begin, end);
///
/// Thread safety: as allocate().
/// @since 0.3
class TemporaryMemory {
 public:
  /// Thrust allocates bytes.
  using value_type = char;

  /// For algorithms on `stream`.
  explicit TemporaryMemory(Stream stream) : stream_(std::move(stream)) {}

  /// `bytes` of memory. Throws: OutOfMemoryError.
  [[nodiscard]] char* allocate(std::ptrdiff_t bytes) {
    return static_cast<char*>(allocate_raw(static_cast<std::size_t>(bytes), stream_));
  }
  /// Frees memory of allocate(); work that is already submitted may still use it.
  void deallocate(char* data, std::size_t /*bytes*/) { deallocate_raw(data); }

 private:
  Stream stream_;
};

}  // namespace memory
}  // namespace gantry
