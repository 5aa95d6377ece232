#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <ranges>
#include <span>
#include <type_traits>
#include <utility>

#include <gantry/core/export.hpp>
#include <gantry/memory/allocator.hpp>

namespace gantry::memory {

/// The sole owner of a Block, which it frees when it is destroyed. Move-only; a moved-from buffer
/// is empty.
///
/// Copies to and from the host are ordered on their stream, as by cudaMemcpyAsync. The host memory
/// must stay valid until the copy completes. If it is pageable, the host blocks: copy_to() until
/// the data has arrived, copy_from() until the data is read. If it is page-locked, the host does
/// not block.
/// Thread safety: one thread at a time, as for any value.
/// @code
/// const std::vector<float> host(256, 1.0F);
/// const Stream stream = Stream::current("cuda:0");
/// memory::Buffer buffer = memory::allocate(stream, host.size() * sizeof(float));
/// buffer.copy_from(host);
/// std::span<float> elements = buffer.as<float>();  // for kernels
/// @endcode
/// @since 0.1
class GANTRY_API Buffer {
 public:
  Buffer() = default;
  /// Takes over `block`.
  explicit Buffer(Block block) noexcept : block_(block) {}
  /// Takes over `block`, and keeps `owner` alive until it is freed.
  Buffer(Block block, std::shared_ptr<Allocator> owner) noexcept
      : block_(block), owner_(std::move(owner)) {}
  ~Buffer() { reset(); }
  /// Takes over the block of `other`, which is empty afterwards.
  Buffer(Buffer&& other) noexcept
      : block_(std::exchange(other.block_, {})), owner_(std::move(other.owner_)) {}
  /// Frees the own block, then takes over that of `other`.
  Buffer& operator=(Buffer&& other) noexcept {
    if (this != &other) {
      reset();
      block_ = std::exchange(other.block_, {});
      owner_ = std::move(other.owner_);
    }
    return *this;
  }

  /// First byte; nullptr if the buffer is empty.
  [[nodiscard]] void* data() const noexcept { return block_.data; }
  /// Requested size; 0 if the buffer is empty.
  [[nodiscard]] std::size_t bytes() const noexcept { return block_.bytes; }
  /// Device of the memory; the CPU if the buffer is empty.
  [[nodiscard]] Device device() const noexcept { return block_.device; }
  /// The block, which the buffer still owns.
  [[nodiscard]] const Block& block() const noexcept { return block_; }
  /// The allocator that the buffer keeps alive; nullptr for a built-in one.
  [[nodiscard]] const std::shared_ptr<Allocator>& owner() const noexcept { return owner_; }
  /// True unless the buffer is empty.
  [[nodiscard]] explicit operator bool() const noexcept { return block_.data != nullptr; }

  /// The memory as elements of type T. An empty buffer has no elements. Only kernels may access
  /// elements of device memory.
  /// Throws: InvalidArgument if the size is no multiple of sizeof(T), or the address is not aligned
  /// for T.
  template <class T>
  [[nodiscard]] std::span<T> as() {
    check_elements(sizeof(T), alignof(T));
    return {static_cast<T*>(block_.data), block_.bytes / sizeof(T)};
  }
  template <class T>
  [[nodiscard]] std::span<const T> as() const {
    check_elements(sizeof(T), alignof(T));
    return {static_cast<const T*>(block_.data), block_.bytes / sizeof(T)};
  }

  /// Copies all elements of `host` to the beginning of the buffer.
  /// Device/stream: `stream`, the current stream of the buffer's device by default. The buffer may
  /// be freed directly after the call. The host itself copies to a buffer of the CPU, at once, and
  /// ignores `stream`.
  /// Throws: InvalidArgument if `host` is larger than the buffer, or `stream` is of another device;
  /// CudaError.
  template <class T>
  requires std::is_trivially_copyable_v<T>
  void copy_from(std::span<const T> host, const std::optional<Stream>& stream = std::nullopt) {
    copy_from_host(host.data(), host.size_bytes(), stream);
  }
  template <std::ranges::contiguous_range Range>
  requires(std::ranges::sized_range<Range>&& std::is_trivially_copyable_v<
           std::ranges::range_value_t<Range>>) void copy_from(const Range& host,
                                                              const std::optional<Stream>& stream =
                                                                  std::nullopt) {
    copy_from(std::span<const std::ranges::range_value_t<Range>>(host), stream);
  }
  /// Fills all elements of `host` from the beginning of the buffer. Otherwise as copy_from().
  template <class T>
  requires(std::is_trivially_copyable_v<T> && !std::is_const_v<T>) void copy_to(
      std::span<T> host, const std::optional<Stream>& stream = std::nullopt) const {
    copy_to_host(host.data(), host.size_bytes(), stream);
  }
  template <std::ranges::contiguous_range Range>
  requires(std::ranges::sized_range<Range>&&
               std::is_trivially_copyable_v<std::ranges::range_value_t<Range>> &&
           !std::is_const_v<std::remove_reference_t<std::ranges::range_reference_t<
               Range>>>) void copy_to(Range& host,
                                      const std::optional<Stream>& stream = std::nullopt) const {
    copy_to(std::span<std::ranges::range_value_t<Range>>(host), stream);
  }

  /// Frees the block now; the buffer is empty afterwards.
  void reset() noexcept {
    if (block_.allocator != nullptr) block_.allocator->deallocate(block_);
    block_ = {};
    owner_.reset();
  }
  /// Returns the block, for the caller to free; the buffer is empty afterwards. The allocator
  /// owner() stays alive until the end of the process, because gantry does not see that free.
  [[nodiscard]] Block release() noexcept {
    if (owner_ != nullptr) keep_alive(std::move(owner_));
    return std::exchange(block_, {});
  }

 private:
  void check_elements(std::size_t size, std::size_t alignment) const;
  void copy_from_host(const void* host, std::size_t bytes, const std::optional<Stream>& stream);
  void copy_to_host(void* host, std::size_t bytes, const std::optional<Stream>& stream) const;

  static void keep_alive(std::shared_ptr<Allocator> owner) noexcept;

  Block block_;
  std::shared_ptr<Allocator> owner_;
};

}  // namespace gantry::memory
