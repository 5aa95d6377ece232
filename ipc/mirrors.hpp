// Address ranges of other processes, at other addresses of this one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <tuple>

#include <gantry/extend/driver.hpp>
#include <gantry/extend/unique_fd.hpp>

#include "ipc/handle.hpp"
#include "ipc/socket.hpp"
#include "memory/arenas/address_range.hpp"

namespace gantry::memory {

/// Note [Mirrors]
/// An import belongs to a block: the block's free waits for its importers. Memory that collectives
/// use changes with every step of a program, and no free may wait. So the owner shares chunks, and
/// it alone knows what is shared. A process has one mirror of each address range of the owner: as
/// many addresses, with the same chunks at the same offsets. An address of the owner has the same
/// offset in all mirrors, for an array of any number of chunks.
///
/// The owner offers chunks and withdraws them, by requests to the other process's service. Nobody
/// but the owner gives out addresses of a mirror, one operation at a time. So when chunks leave the
/// owner's addresses, no operation uses them in the mirrors. Mirrors keep the memory of chunks
/// until they have unmapped them. A process that ends takes its mirrors with it. Memory of an owner
/// that has ended stays mapped as long as the Mirrors live.

/// The mirrors in which a device of this process has other processes' memory.
///
/// Thread safety: every member may be called from any thread.
class Mirrors {
 public:
  /// Mirrors for `device`, found by their number from now on. Throws: std::bad_alloc.
  [[nodiscard]] static std::shared_ptr<Mirrors> make(int device);
  /// The mirrors with this number; null once they are closed.
  [[nodiscard]] static std::shared_ptr<Mirrors> find(std::uint64_t number);
  ~Mirrors();
  Mirrors(const Mirrors&) = delete;
  Mirrors& operator=(const Mirrors&) = delete;

  [[nodiscard]] int device() const { return device_; }
  [[nodiscard]] std::uint64_t number() const { return number_; }
  /// Maps the chunks of `descriptors` as `owner` offers them. Returns the mirror's first address.
  /// Throws: Error for an offer that is malformed or overlaps an earlier one, CudaError; nothing is
  /// mapped then.
  std::byte* map(const ProcessStamp& owner, const IpcOffer& offer,
                 std::span<const UniqueFd> descriptors);
  /// Unmaps what is mapped of the withdrawn part. Throws: CudaError, std::bad_alloc.
  void unmap(const ProcessStamp& owner, const IpcOffer& withdrawal);
  /// Unmaps everything: no work uses it any more. Later offers are refused.
  void close() noexcept;
  /// Bytes that are mapped.
  [[nodiscard]] std::size_t bytes() const;

 private:
  using Key = std::tuple<std::int32_t, std::uint64_t, std::uint64_t>;  // process, range
  struct Mirror {
    std::byte* base = nullptr;
    std::size_t bytes = 0;
    RunSet mapped;
  };

  Mirrors(int device, std::uint64_t number) : device_(device), number_(number) {}
  [[nodiscard]] Mirror& mirror_of(const ProcessStamp& owner, const IpcOffer& offer);

  const int device_;
  const std::uint64_t number_;
  mutable std::mutex mutex_;
  bool is_closed_ = false;
  std::map<Key, Mirror> mirrors_;
};

/// The bytes that the mirrors of `device` have mapped. Thread safety: any thread.
[[nodiscard]] std::size_t mirrored_bytes(int device);

}  // namespace gantry::memory
