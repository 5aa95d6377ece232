// The blocks that this process has exported, and the processes that use them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include <gantry/ipc/ipc.hpp>

#include "ipc/table.hpp"
#include "memory/arenas/exportable.hpp"

namespace gantry::memory {

/// One process that imports from this one.
struct IpcConsumer {
  explicit IpcConsumer(const ProcessStamp& process) : watch(process) {}

  UniqueFd socket;  ///< used by the service's thread; none after the disconnect
  ProcessWatch watch;
  ReferenceTable references;
  bool is_disconnected = false;  ///< guarded by the exporter's lock

  [[nodiscard]] const ProcessStamp& process() const { return watch.stamp(); }
  /// True if the process has ended completely, with all its work on devices. A closed connection
  /// does not imply that: see Note [When a consumer has ended].
  [[nodiscard]] bool has_ended() const { return watch.has_ended(); }
};

/// The registry of exported blocks. See Note [Lifetime of shared blocks].
///
/// Thread safety: every member may be called from any thread, except by free_from_limbo() of an
/// allocator. No allocator is called under the lock that exports and frees take.
class IpcExporter final : public ExportTracker {
 public:
  [[nodiscard]] static IpcExporter& instance();

  /// The place of an exported block.
  struct Entry {
    std::uint32_t slot = 0;
    std::uint64_t generation = 0;
    std::uint64_t extent_id = 0;
    std::uint64_t extent_bytes = 0;
    std::uint64_t offset = 0;
    std::optional<NativeMemoryHandle> segment;
  };
  /// Registers a live block, or returns its entry if it is registered. Throws: NotSupported above
  /// the limit of exports, std::bad_alloc, and what ExportableAllocator::pin throws.
  [[nodiscard]] Entry add(ExportableAllocator& allocator, const Block& block);
  [[nodiscard]] bool defer_free(Block& block) noexcept override;
  [[nodiscard]] std::map<int, std::size_t> limbo_by_consumer(int device) const override;
  /// Frees the blocks in limbo that no process references; returns their bytes. Calls the driver
  /// only through free_from_limbo().
  std::size_t sweep() noexcept;
  /// As sweep(), for the block of one slot that lost a reference.
  void sweep_slot(std::uint32_t slot) noexcept;

  /// Adds a reference of this process itself; none if the block was freed.
  [[nodiscard]] std::optional<Block> add_local_reference(std::uint32_t slot,
                                                         std::uint64_t generation);
  void release_local_reference(std::uint32_t slot) noexcept;

  /// Registers an importer, whose references count from now on. Takes `socket` unless it throws.
  /// Throws: Error, std::bad_alloc.
  [[nodiscard]] std::shared_ptr<IpcConsumer> add_consumer(UniqueFd& socket,
                                                          const ProcessStamp& process);
  /// Closes the connection of an importer that closed its end or broke the protocol. An importer
  /// with references stays registered until its process ends.
  void disconnect(IpcConsumer& consumer) noexcept;
  [[nodiscard]] std::vector<std::shared_ptr<IpcConsumer>> consumers() const;
  /// Returns the chunks of an exported block; none if it was freed. They stay valid while a
  /// reference to the slot is known to exist.
  [[nodiscard]] std::optional<std::vector<Chunk>> chunks(std::uint32_t slot,
                                                         std::uint64_t generation) const;
  [[nodiscard]] const SlotTable& slots() const { return slots_; }

  /// Adds the exports of `device` to `stats`.
  void add_to(IpcStats& stats, int device) const;
  /// Asserts that exports, blocks, limbo, free slots and the table that importers see agree.
  void verify() const noexcept;

 private:
  struct Export {
    ExportableAllocator* allocator = nullptr;
    Block block;
    BlockExtent extent;
    std::uint64_t generation = 0;  ///< of the slot, also while it is unused
    std::uint32_t local_references = 0;
    bool in_use = false;
    bool in_limbo = false;
  };
  using Key = std::pair<Allocator*, void*>;

  IpcExporter();
  [[nodiscard]] bool is_referenced(std::uint32_t slot) const;
  [[nodiscard]] bool close_unless_referenced(std::uint32_t slot);
  [[nodiscard]] Export remove(std::uint32_t slot);
  [[nodiscard]] bool holds_references(const IpcConsumer& consumer) const;
  void remove_ended_consumers();
  [[nodiscard]] const Export* find(std::uint32_t slot, std::uint64_t generation) const;

  /// Held while blocks in limbo are freed. A sweep therefore returns after the frees of a sweep
  /// that another thread began. Locked before `mutex_`.
  std::mutex sweep_mutex_;
  mutable std::mutex mutex_;
  SlotTable slots_;
  std::vector<Export> exports_;  ///< by slot
  std::vector<std::uint32_t> free_slots_;
  std::map<Key, std::uint32_t> by_block_;
  std::map<std::uint32_t, std::size_t> limbo_;  ///< bytes of the blocks in limbo, by slot
  std::vector<std::shared_ptr<IpcConsumer>> consumers_;
};

/// The connections without a handshake that the service keeps; further ones end the oldest.
inline constexpr int kMostIpcGuests = 32;

/// Starts the thread that serves this process's exports to importers, unless it runs. Returns the
/// nonce in its socket's name. Thread safety: any thread. Throws: Error without a socket,
/// std::system_error without a thread.
[[nodiscard]] std::uint64_t start_ipc_service();

}  // namespace gantry::memory
