#include "ipc/exporter.hpp"

#include <fmt/format.h>

#include <algorithm>

#include <gantry/core/error.hpp>

#include "core/assert.hpp"
#include "ipc/lifetime.hpp"
#include "memory/oom/memory_pressure.hpp"

namespace gantry::memory {

IpcExporter& IpcExporter::instance() {
  static auto& exporter = *new IpcExporter();
  return exporter;
}

IpcExporter::IpcExporter() {
  MemoryPressureCallbacks::instance().add(
      [](int, Waiting) noexcept { return instance().sweep() > 0; });
  export_tracker = this;
}

IpcExporter::Entry IpcExporter::add(ExportableAllocator& allocator, const Block& block) {
  const auto entry_of = [this](std::uint32_t slot) {
    const Export& known = exports_[slot];
    return Entry{.slot = slot,
                 .generation = known.generation,
                 .extent_id = known.extent.extent_id,
                 .extent_bytes = known.extent.bytes,
                 .offset = known.extent.offset,
                 .segment = known.extent.segment};
  };
  BlockExtent extent = allocator.pin(block);
  std::unique_lock lock(mutex_);
  const auto fail = [&](auto error) {
    lock.unlock();
    allocator.unpin(block);
    throw error;
  };
  const Key key{block.allocator, block.handle};
  if (const auto found = by_block_.find(key); found != by_block_.end()) {
    const Entry entry = entry_of(found->second);
    lock.unlock();
    allocator.unpin(block);
    return entry;
  }
  try {
    if (free_slots_.empty()) {
      if (exports_.size() == kIpcSlots) {
        fail(NotSupported(fmt::format(
            "export_ipc: expected at most {} exported blocks, but got one more", kIpcSlots)));
      }
      // Room for every slot, because remove() must not fail.
      if (free_slots_.capacity() <= exports_.size()) free_slots_.reserve(2 * exports_.size() + 16);
      exports_.emplace_back();
      free_slots_.push_back(static_cast<std::uint32_t>(exports_.size() - 1));
    }
    const std::uint32_t slot = free_slots_.back();
    by_block_.emplace(key, slot);
    free_slots_.pop_back();
    Export& added = exports_[slot];
    GANTRY_ASSERT(!added.in_use && added.local_references == 0, "an export takes a slot in use");
    added.allocator = &allocator;
    added.block = block;
    added.extent = std::move(extent);
    ++added.generation;
    added.in_use = true;
    open_slot(slots_[slot], added.generation);
    return entry_of(slot);
  } catch (const std::bad_alloc&) {
    fail(std::bad_alloc());
  }
  __builtin_unreachable();
}

bool IpcExporter::is_referenced(std::uint32_t slot) const {
  GANTRY_ASSERT(exports_[slot].in_use, "references are counted to a slot without a block");
  if (exports_[slot].local_references > 0) return true;
  return std::ranges::any_of(
      consumers_, [slot](const auto& consumer) { return consumer->references[slot].load() > 0; });
}

bool IpcExporter::close_unless_referenced(std::uint32_t slot) {
  return close_slot(slots_[slot], exports_[slot].generation,
                    [this, slot] { return is_referenced(slot); });
}

IpcExporter::Export IpcExporter::remove(std::uint32_t slot) {
  Export removed = std::exchange(exports_[slot], {});
  GANTRY_ASSERT(removed.in_use, "a slot without a block is removed");
  GANTRY_ASSERT(removed.local_references == 0, "an export is removed that this process uses");
  exports_[slot].generation = removed.generation;
  [[maybe_unused]] const std::size_t blocks =
      by_block_.erase({removed.block.allocator, removed.block.handle});
  GANTRY_ASSERT(blocks == 1, "an export is removed that belongs to no block");
  [[maybe_unused]] const bool was_in_limbo = limbo_.erase(slot) == 1;
  GANTRY_ASSERT(was_in_limbo == removed.in_limbo, "a slot and the list of limbo disagree");
  GANTRY_ASSERT(free_slots_.size() < free_slots_.capacity(), "a removed slot has no room");
  free_slots_.push_back(slot);
  return removed;
}

bool IpcExporter::defer_free(Block& block) noexcept {
  Export removed;
  {
    const std::lock_guard lock(mutex_);
    const auto found = by_block_.find({block.allocator, block.handle});
    if (found == by_block_.end()) return false;
    const std::uint32_t slot = found->second;
    if (exports_[slot].in_limbo) return true;  // freed twice: the second free is ignored
    remove_ended_consumers();
    if (!close_unless_referenced(slot)) {
      exports_[slot].in_limbo = true;
      limbo_.emplace(slot, block.bytes);
      return true;
    }
    removed = remove(slot);
  }
  removed.allocator->unpin(removed.block);
  return false;
}

std::size_t IpcExporter::sweep() noexcept {
  const std::lock_guard sweeping(sweep_mutex_);
  std::vector<Export> removed;
  {
    const std::lock_guard lock(mutex_);
    remove_ended_consumers();
    if (limbo_.empty()) return 0;
    std::vector<std::uint32_t> slots;
    for (const auto& [slot, bytes] : limbo_) slots.push_back(slot);
    for (const std::uint32_t slot : slots) {
      if (close_unless_referenced(slot)) removed.push_back(remove(slot));
    }
  }
  std::size_t bytes = 0;
  for (Export& one : removed) {
    bytes += one.block.bytes;
    one.allocator->unpin(one.block);
    one.allocator->free_from_limbo(one.block);
  }
  return bytes;
}

void IpcExporter::sweep_slot(std::uint32_t slot) noexcept {
  const std::lock_guard sweeping(sweep_mutex_);
  Export removed;
  {
    const std::lock_guard lock(mutex_);
    if (!limbo_.contains(slot) || !close_unless_referenced(slot)) return;
    removed = remove(slot);
  }
  removed.allocator->unpin(removed.block);
  removed.allocator->free_from_limbo(removed.block);
}

const IpcExporter::Export* IpcExporter::find(std::uint32_t slot, std::uint64_t generation) const {
  if (slot >= exports_.size()) return nullptr;
  const Export& one = exports_[slot];
  return one.in_use && one.generation == generation ? &one : nullptr;
}

std::optional<Block> IpcExporter::add_local_reference(std::uint32_t slot,
                                                      std::uint64_t generation) {
  const std::lock_guard lock(mutex_);
  const Export* known = find(slot, generation);
  if (known == nullptr) return std::nullopt;
  ++exports_[slot].local_references;
  return known->block;
}

void IpcExporter::release_local_reference(std::uint32_t slot) noexcept {
  {
    const std::lock_guard lock(mutex_);
    GANTRY_ASSERT(slot < exports_.size() && exports_[slot].local_references > 0,
                  "a reference of this process is released that it does not hold");
    --exports_[slot].local_references;
  }
  sweep_slot(slot);
}

std::shared_ptr<IpcConsumer> IpcExporter::add_consumer(UniqueFd& socket,
                                                       const ProcessStamp& process) {
  auto consumer = std::make_shared<IpcConsumer>(process);
  const std::lock_guard lock(mutex_);
  consumers_.push_back(consumer);
  consumer->socket = std::move(socket);
  return consumer;
}

void IpcExporter::disconnect(IpcConsumer& consumer) noexcept {
  {
    const std::lock_guard lock(mutex_);
    GANTRY_ASSERT(!consumer.is_disconnected, "an importer is disconnected twice");
    consumer.is_disconnected = true;
    consumer.socket.reset();
  }
  sweep();
}

bool IpcExporter::holds_references(const IpcConsumer& consumer) const {
  // Only slots that were ever used: reading another one would allocate its page.
  for (std::size_t slot = 0; slot < exports_.size(); ++slot) {
    if (consumer.references[slot].load() > 0) return true;
  }
  return false;
}

// Note [When a consumer has ended]
// The kernel closes the sockets of a killed process before the driver has stopped its device work.
// The process itself ends only after that. The references of an importer therefore count until its
// process ends. An importer closes its table together with its connection, so after a disconnection
// it can add no reference. If it has none, it is removed at once.
void IpcExporter::remove_ended_consumers() {
  std::erase_if(consumers_, [this](const auto& consumer) {
    return (consumer->is_disconnected && !holds_references(*consumer)) || consumer->has_ended();
  });
}

std::vector<std::shared_ptr<IpcConsumer>> IpcExporter::consumers() const {
  const std::lock_guard lock(mutex_);
  return consumers_;
}

std::optional<std::vector<Chunk>> IpcExporter::chunks(std::uint32_t slot,
                                                      std::uint64_t generation) const {
  const std::lock_guard lock(mutex_);
  const Export* known = find(slot, generation);
  if (known == nullptr) return std::nullopt;
  return known->extent.chunks;
}

void IpcExporter::add_to(IpcStats& stats, int device) const {
  const std::lock_guard lock(mutex_);
  for (std::size_t slot = 0; slot < exports_.size(); ++slot) {
    const Export& one = exports_[slot];
    if (!one.in_use || one.block.device.index != device) continue;
    ++stats.exports;
    if (!one.in_limbo) continue;
    ++stats.limbo_blocks;
    stats.limbo_bytes += one.block.bytes;
    if (one.local_references > 0) stats.limbo_by_consumer[this_process().pid] += one.block.bytes;
    for (const auto& consumer : consumers_) {
      if (consumer->references[slot].load() > 0) {
        stats.limbo_by_consumer[consumer->process().pid] += one.block.bytes;
      }
    }
  }
}

void IpcExporter::verify() const noexcept {
  const std::lock_guard lock(mutex_);
  [[maybe_unused]] std::size_t in_limbo = 0;
  for (std::uint32_t slot = 0; slot < exports_.size(); ++slot) {
    const Export& one = exports_[slot];
    [[maybe_unused]] const SlotState seen = SlotState::of(slots_[slot].load());
    GANTRY_ASSERT(seen.generation == one.generation, "importers see another generation of a slot");
    GANTRY_ASSERT(seen.is_open == one.in_use,
                  "the slot of an export is closed, or an unused slot is open");
    if (!one.in_use) {
      GANTRY_ASSERT(one.local_references == 0, "this process uses a slot without a block");
      continue;
    }
    GANTRY_ASSERT(seen.in_limbo == one.in_limbo, "importers do not see that a block was freed");
    const auto known = by_block_.find({one.block.allocator, one.block.handle});
    GANTRY_ASSERT(known != by_block_.end() && known->second == slot,
                  "the block of an export has another slot");
    if (!one.in_limbo) continue;
    ++in_limbo;
    const auto freed = limbo_.find(slot);
    GANTRY_ASSERT(freed != limbo_.end() && freed->second == one.block.bytes,
                  "a block in limbo is not in the list of limbo");
  }
  GANTRY_ASSERT(limbo_.size() == in_limbo, "the list of limbo has a block that is not there");
  std::vector<bool> is_free(exports_.size());
  for (const std::uint32_t slot : free_slots_) {
    GANTRY_ASSERT(!exports_[slot].in_use, "a slot in use is free");
    GANTRY_ASSERT(!is_free[slot], "a slot is free twice");
    is_free[slot] = true;
  }
  GANTRY_ASSERT(by_block_.size() + free_slots_.size() == exports_.size(), "a slot is lost");
}

std::map<int, std::size_t> IpcExporter::limbo_by_consumer(int device) const {
  IpcStats stats;
  add_to(stats, device);
  return stats.limbo_by_consumer;
}

}  // namespace gantry::memory
