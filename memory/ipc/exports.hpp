// The blocks that this process has exported, and who uses them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gantry/memory/ipc.hpp>

#include "memory/ipc/heap_export.hpp"
#include "memory/ipc/table.hpp"

namespace gantry::memory {

/// One process that imports from this one.
struct IpcConsumer {
  explicit IpcConsumer(const ProcessStamp& process) : watch(process) {}

  UniqueFd socket;  ///< of the service's thread; none once the importer has hung up
  ProcessWatch watch;
  ReferenceTable references;
  bool hung_up = false;  ///< guarded by the registry's lock

  [[nodiscard]] const ProcessStamp& process() const { return watch.stamp(); }
  /// True if nothing of the process runs any more, not even work of its on a device. The end of its
  /// connection does not tell: see Note [When a consumer is gone].
  [[nodiscard]] bool is_gone() const { return watch.has_ended(); }
};

/// The registry of exported blocks. See Note [Lifetime of shared blocks].
///
/// Thread safety: every member may be called from any thread, but not by a source's reclaim(); the
/// lock that exports and frees take is not held while a source is called.
class IpcExports {
 public:
  [[nodiscard]] static IpcExports& instance();

  /// Where an exported block is found.
  struct Entry {
    std::uint32_t slot = 0;
    std::uint64_t generation = 0;
    std::uint64_t extent_id = 0;
    std::uint64_t extent_bytes = 0;
    std::uint64_t offset = 0;
    std::optional<NativeMemoryHandle> segment;
  };
  /// Makes a live block known; the same entry if it is known already.
  [[nodiscard]] Entry add(ExportSource& source, const Block& block);
  /// See ipc_defer_free and ipc_sweep.
  [[nodiscard]] bool defer_free(Block& block) noexcept;
  std::size_t sweep() noexcept;
  /// Looks at one slot, because somebody gave back a reference to it.
  void sweep_slot(std::uint32_t slot) noexcept;

  /// Takes a reference for this process itself; none if the block was freed.
  [[nodiscard]] std::optional<Block> open_here(std::uint32_t slot, std::uint64_t generation);
  void close_here(std::uint32_t slot) noexcept;

  /// Registers an importer: from now on its references count. Takes `socket` unless it throws.
  /// Throws: Error, std::bad_alloc.
  [[nodiscard]] std::shared_ptr<IpcConsumer> add_consumer(UniqueFd& socket,
                                                          const ProcessStamp& process);
  /// The importer closed its connection or broke the protocol. It is forgotten, unless it holds
  /// references: then it is kept until its process ends.
  void hang_up(IpcConsumer& consumer) noexcept;
  [[nodiscard]] std::vector<std::shared_ptr<IpcConsumer>> consumers() const;
  /// The chunks of an exported block; none if it was freed. They stay valid while the caller knows
  /// of a reference to the slot.
  [[nodiscard]] std::optional<std::vector<ChunkSpan>> chunks(std::uint32_t slot,
                                                             std::uint64_t generation) const;
  [[nodiscard]] const SlotTable& slots() const { return slots_; }

  /// Adds what concerns exports of `device` to `stats`.
  void count(int device, IpcStats& stats) const;

 private:
  struct Export {
    ExportSource* source = nullptr;
    Block block;
    BlockExtent extent;
    std::uint64_t generation = 0;  ///< of the slot, also while it is not in use
    std::uint32_t references_here = 0;
    bool in_use = false;
    bool in_limbo = false;
  };
  using Key = std::pair<Allocator*, void*>;

  IpcExports() = default;
  [[nodiscard]] bool is_referenced(std::uint32_t slot) const;
  [[nodiscard]] bool close_unless_referenced(std::uint32_t slot);
  [[nodiscard]] Export retire(std::uint32_t slot);
  [[nodiscard]] bool holds_references(const IpcConsumer& consumer) const;
  void drop_dead_consumers();
  [[nodiscard]] const Export* find(std::uint32_t slot, std::uint64_t generation) const;

  /// Held while blocks in limbo go back, so that who sweeps finds them there afterwards, also those
  /// that another thread was sweeping. Taken before the other one.
  std::mutex reclaiming_;
  mutable std::mutex mutex_;
  SlotTable slots_;
  std::vector<Export> exports_;  ///< by slot
  std::vector<std::uint32_t> free_slots_;
  std::map<Key, std::uint32_t> by_block_;
  std::map<std::uint32_t, std::size_t> limbo_;  ///< slots in limbo and their bytes
  std::vector<std::shared_ptr<IpcConsumer>> consumers_;
};

}  // namespace gantry::memory
