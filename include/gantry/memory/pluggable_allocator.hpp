#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>

#include <gantry/core/checked_ptr.hpp>
#include <gantry/core/export.hpp>
#include <gantry/memory/allocator.hpp>

namespace gantry::memory {

/// Returns `size` bytes of memory of `device` for work on `stream` (cudaStream_t, null: the default
/// stream), or null if there is none. The address is a multiple of kDefaultAlignment, as of
/// cudaMalloc. Called with `device` current, from any thread.
using PluggableAlloc = void* (*)(std::ptrdiff_t size, int device, void* stream);
/// Frees memory of PluggableAlloc. Size, device and stream are those of the allocation. Work
/// already submitted to `stream` may still use the memory.
using PluggableFree = void (*)(void* data, std::ptrdiff_t size, int device, void* stream);

/// Names of further functions of the shared object; an empty name is none.
/// @since 0.1
struct PluggableHooks {
  std::string init{};           ///< void (int device_count), called once by load_allocator
  std::string empty_cache{};    ///< void (), called by empty_cache with the device current
  std::string record_stream{};  ///< void (void* data, void* stream), called by record_stream
};

class PluggableAllocator;
// The default of `hooks` and the documentation are below.
[[nodiscard]] GANTRY_API PluggableAllocator
load_allocator(const std::filesystem::path& shared_object, const std::string& alloc_symbol,
               const std::string& free_symbol, const PluggableHooks& hooks);

/// Device memory from functions of a shared object, as torch's CUDAPluggableAllocator. A class of
/// the program can replace the caching allocator too: docs/how-to/plug-in-an-allocator.md.
///
/// For set_allocator(device, std::make_shared<PluggableAllocator>(load_allocator(…))). Its blocks
/// keep the library loaded, also after this object is destroyed. Without a record_stream function,
/// a free first makes the stream of the block wait for the recorded streams. The functions have no
/// alignment argument. For an alignment above kDefaultAlignment, allocate() requests that many
/// bytes more.
///
/// If a function of the library throws, allocate() throws Error, and deallocate() logs a warning.
/// Copies share the library. After a move every member of the source but deallocate() throws
/// InvalidArgument.
/// Thread safety: every member may be called from any thread.
/// @code
/// const std::string path = "libplugin.so";
/// if (std::filesystem::exists(path)) {
///   auto plugin = memory::load_allocator(path, "plugin_alloc", "plugin_free");
///   auto shared = std::make_shared<memory::PluggableAllocator>(std::move(plugin));
///   memory::set_allocator("cuda:0", shared);
/// }
/// @endcode
/// @since 0.1
class GANTRY_API PluggableAllocator final : public Allocator {
 public:
  /// Throws: OutOfMemoryError if the library returns null; Error if its function throws.
  [[nodiscard]] Block allocate(const Stream& stream, std::size_t bytes,
                               std::size_t alignment = kDefaultAlignment) override;
  void deallocate(Block& block) noexcept override;
  void record_stream(const Block& block, const Stream& stream) override;
  /// Calls the empty_cache function, if there is one.
  void empty_cache(Device device) override;
  /// "pluggable".
  [[nodiscard]] std::string name() const override;

  /// Number of blocks that are not freed.
  [[nodiscard]] std::size_t live_blocks() const;
  /// Bytes that these blocks requested from the library.
  [[nodiscard]] std::size_t live_bytes() const;

 private:
  class GANTRY_LOCAL Library;
  explicit PluggableAllocator(std::shared_ptr<Library> library);
  friend PluggableAllocator load_allocator(const std::filesystem::path&, const std::string&,
                                           const std::string&, const PluggableHooks&);

  gantry::detail::CheckedPtr<std::shared_ptr<Library>> library_;
};

/// Loads `shared_object` and finds its functions: PluggableAlloc `alloc_symbol`, PluggableFree
/// `free_symbol` and the hooks. dlopen's search path applies to a name without a slash.
/// Throws: InvalidArgument, with the loader's message, if the file or a function cannot be loaded.
/// @since 0.1
[[nodiscard]] GANTRY_API PluggableAllocator
load_allocator(const std::filesystem::path& shared_object, const std::string& alloc_symbol,
               const std::string& free_symbol, const PluggableHooks& hooks = {});

}  // namespace gantry::memory

extern "C" {

/// The way back: a memory::PluggableAlloc of libgantry.so, which gives PyTorch's
/// CUDAPluggableAllocator memory of allocate_raw(). 0 bytes give null.
/// Throws: OutOfMemoryError; InvalidArgument for a negative size.
/// @since 0.3
[[nodiscard]] GANTRY_API void* gantry_malloc(std::ptrdiff_t size, int device, void* stream);
/// Frees memory of gantry_malloc(), in the order of the stream that it was allocated for. Only
/// `data` counts. Throws: InvalidArgument for another pointer.
/// @since 0.3
GANTRY_API void gantry_free(void* data, std::ptrdiff_t size, int device, void* stream);

}  // extern "C"
