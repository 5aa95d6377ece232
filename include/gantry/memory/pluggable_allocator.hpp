#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>

#include <gantry/core/checked_ptr.hpp>
#include <gantry/memory/allocator.hpp>

namespace gantry::memory {

// Note [An allocator of one's own]
// There are two ways to put another allocator in the place of the caching allocator of a device:
// functions of a shared object (load_allocator, below), or a class of the program. The class below
// counts and passes everything on; a block must name the object that takes it back, which is why it
// stays the inner allocator's here.
//
//   class CountingAllocator : public memory::Allocator {
//    public:
//     explicit CountingAllocator(memory::Allocator& inner) : inner_(inner) {}
//     memory::Block allocate(std::size_t bytes, Stream stream) override {
//       memory::Block block = inner_.allocate(bytes, stream);
//       allocations += 1;
//       allocated_bytes += block.bytes;
//       return block;
//     }
//     void deallocate(memory::Block& block) noexcept override { inner_.deallocate(block); }
//     void record_stream(const memory::Block& block, const Stream& stream) override {
//       inner_.record_stream(block, stream);
//     }
//     void empty_cache(Device device) override { inner_.empty_cache(device); }
//     std::string name() const override { return "counting " + inner_.name(); }
//     std::atomic<std::size_t> allocations{0}, allocated_bytes{0};
//    private:
//     memory::Allocator& inner_;
//   };
//
//   CountingAllocator counting(memory::allocator(Device::cuda(0)));
//   memory::set_allocator(Device::cuda(0), &counting);   // nullptr restores the caching allocator

/// Gives `size` bytes of memory of `device` for work on `stream` (cudaStream_t, null: the default
/// stream), or null if there is none. Called with `device` current, from any thread.
using PluggableAlloc = void* (*)(std::ptrdiff_t size, int device, void* stream);
/// Takes back what PluggableAlloc gave for the same size, device and stream; work that is queued on
/// `stream` may still use it.
using PluggableFree = void (*)(void* data, std::ptrdiff_t size, int device, void* stream);

/// Names of further functions of the shared object; an empty name is none.
struct PluggableHooks {
  std::string init{};           ///< void (int device_count), called once by load_allocator
  std::string empty_cache{};    ///< void (), called by empty_cache with the device current
  std::string record_stream{};  ///< void (void* data, void* stream), called by record_stream
};

/// Device memory from functions of a shared object, as torch's CUDAPluggableAllocator.
///
/// For set_allocator(device, &it). Its blocks name an object of their own as their allocator, so
/// they, and the library with its code, stay valid after this object is gone; but call
/// set_allocator(device, nullptr) before it goes. Without a record_stream function the stream of
/// a freed block is made to wait for the streams that were recorded before the function that frees
/// is called. Exceptions of the library's functions are turned into Error by allocate and into a
/// logged warning by deallocate. Copies share the library; after a move every member of the source
/// but deallocate throws InvalidArgument.
class PluggableAllocator final : public Allocator {
 public:
  /// Throws: OutOfMemoryError if the library gives null; Error if its function throws.
  [[nodiscard]] Block allocate(std::size_t bytes, Stream stream) override;
  void deallocate(Block& block) noexcept override;
  void record_stream(const Block& block, const Stream& stream) override;
  /// Calls the empty_cache function, if there is one.
  void empty_cache(Device device) override;
  /// "pluggable".
  [[nodiscard]] std::string name() const override;

  /// Blocks and bytes that were allocated and not freed yet.
  [[nodiscard]] std::size_t live_blocks() const;
  /// Bytes in blocks that are not freed.
  [[nodiscard]] std::size_t live_bytes() const;

 private:
  class Library;
  explicit PluggableAllocator(std::shared_ptr<Library> library);
  friend PluggableAllocator load_allocator(const std::filesystem::path&, const std::string&,
                                           const std::string&, const PluggableHooks&);

  gantry::detail::CheckedPtr<std::shared_ptr<Library>> library_;
};

/// Loads `shared_object` and finds its functions: PluggableAlloc `alloc_symbol`, PluggableFree
/// `free_symbol` and the hooks. A name without a slash is searched as dlopen does.
/// Throws: InvalidArgument that tells what the loader says.
[[nodiscard]] PluggableAllocator load_allocator(const std::filesystem::path& shared_object,
                                                const std::string& alloc_symbol,
                                                const std::string& free_symbol,
                                                const PluggableHooks& hooks = {});

}  // namespace gantry::memory
