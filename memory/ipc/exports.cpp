#include "memory/ipc/exports.hpp"

#include <fmt/format.h>

#include <algorithm>

#include <gantry/core/error.hpp>

namespace gantry::memory {

IpcExports& IpcExports::instance() {
  static auto& exports = *new IpcExports();
  return exports;
}

IpcExports::Entry IpcExports::add(ExportSource& source, const Block& block) {
  const auto entry_of = [this](std::uint32_t slot) {
    const Export& known = exports_[slot];
    return Entry{.slot = slot,
                 .generation = known.generation,
                 .extent_id = known.extent.extent_id,
                 .extent_bytes = known.extent.bytes,
                 .offset = known.extent.offset,
                 .segment = known.extent.segment};
  };
  BlockExtent extent = source.pin(block);
  std::unique_lock lock(mutex_);
  const auto fail = [&](auto error) {
    lock.unlock();
    source.unpin(block);
    throw error;
  };
  const Key key{block.allocator, block.handle};
  if (const auto found = by_block_.find(key); found != by_block_.end()) {
    const Entry entry = entry_of(found->second);
    lock.unlock();
    source.unpin(block);
    return entry;
  }
  try {
    if (free_slots_.empty()) {
      if (exports_.size() == kIpcSlots) {
        fail(NotSupported(fmt::format(
            "export_ipc: at most {} exported blocks at a time were expected, but got one more",
            kIpcSlots)));
      }
      // Room for its later return, which must not fail.
      if (free_slots_.capacity() <= exports_.size()) free_slots_.reserve(2 * exports_.size() + 16);
      exports_.emplace_back();
      free_slots_.push_back(static_cast<std::uint32_t>(exports_.size() - 1));
    }
    const std::uint32_t slot = free_slots_.back();
    by_block_.emplace(key, slot);
    free_slots_.pop_back();
    Export& made = exports_[slot];
    made.source = &source;
    made.block = block;
    made.extent = std::move(extent);
    ++made.generation;
    made.in_use = true;
    slots_[slot].store(SlotState{made.generation, true, false}.word());
    return entry_of(slot);
  } catch (const std::bad_alloc&) {
    fail(std::bad_alloc());
  }
  __builtin_unreachable();
}

bool IpcExports::is_referenced(std::uint32_t slot) const {
  if (exports_[slot].references_here > 0) return true;
  return std::ranges::any_of(
      consumers_, [slot](const auto& consumer) { return consumer->references[slot].load() > 0; });
}

// Closes the slot of a freed block if nobody holds a reference; else it is in limbo and open.
bool IpcExports::close_unless_referenced(std::uint32_t slot) {
  const std::uint64_t generation = exports_[slot].generation;
  // Limbo first: who gives back the last reference from now on tells us.
  slots_[slot].store(SlotState{generation, true, true}.word());
  if (is_referenced(slot)) return false;
  slots_[slot].store(SlotState{generation, false, true}.word());
  if (!is_referenced(slot)) return true;
  slots_[slot].store(SlotState{generation, true, true}.word());
  return false;
}

IpcExports::Export IpcExports::retire(std::uint32_t slot) {
  Export& gone = exports_[slot];
  Export result = std::exchange(gone, {});
  gone.generation = result.generation;
  by_block_.erase({result.block.allocator, result.block.handle});
  limbo_.erase(slot);
  free_slots_.push_back(slot);
  return result;
}

bool IpcExports::defer_free(Block& block) noexcept {
  Export gone;
  {
    const std::lock_guard lock(mutex_);
    const auto found = by_block_.find({block.allocator, block.handle});
    if (found == by_block_.end()) return false;
    const std::uint32_t slot = found->second;
    if (exports_[slot].in_limbo) return true;  // freed twice; the second one is ignored
    drop_dead_consumers();
    if (!close_unless_referenced(slot)) {
      exports_[slot].in_limbo = true;
      limbo_.emplace(slot, block.bytes);
      return true;
    }
    gone = retire(slot);
  }
  gone.source->unpin(gone.block);
  return false;
}

std::size_t IpcExports::sweep() noexcept {
  const std::lock_guard reclaiming(reclaiming_);
  std::vector<Export> gone;
  {
    const std::lock_guard lock(mutex_);
    drop_dead_consumers();
    if (limbo_.empty()) return 0;
    std::vector<std::uint32_t> slots;
    for (const auto& [slot, bytes] : limbo_) slots.push_back(slot);
    for (const std::uint32_t slot : slots) {
      if (close_unless_referenced(slot)) gone.push_back(retire(slot));
    }
  }
  std::size_t bytes = 0;
  for (Export& one : gone) {
    bytes += one.block.bytes;
    one.source->unpin(one.block);
    one.source->reclaim(one.block);
  }
  return bytes;
}

void IpcExports::sweep_slot(std::uint32_t slot) noexcept {
  const std::lock_guard reclaiming(reclaiming_);
  Export gone;
  {
    const std::lock_guard lock(mutex_);
    if (!limbo_.contains(slot) || !close_unless_referenced(slot)) return;
    gone = retire(slot);
  }
  gone.source->unpin(gone.block);
  gone.source->reclaim(gone.block);
}

const IpcExports::Export* IpcExports::find(std::uint32_t slot, std::uint64_t generation) const {
  if (slot >= exports_.size()) return nullptr;
  const Export& one = exports_[slot];
  return one.in_use && one.generation == generation ? &one : nullptr;
}

std::optional<Block> IpcExports::open_here(std::uint32_t slot, std::uint64_t generation) {
  const std::lock_guard lock(mutex_);
  const Export* known = find(slot, generation);
  if (known == nullptr) return std::nullopt;
  ++exports_[slot].references_here;
  return known->block;
}

void IpcExports::close_here(std::uint32_t slot) noexcept {
  {
    const std::lock_guard lock(mutex_);
    --exports_[slot].references_here;
  }
  sweep_slot(slot);
}

std::shared_ptr<IpcConsumer> IpcExports::add_consumer(UniqueFd& socket,
                                                      const ProcessStamp& process) {
  auto consumer = std::make_shared<IpcConsumer>(process);
  const std::lock_guard lock(mutex_);
  consumers_.push_back(consumer);
  consumer->socket = std::move(socket);
  return consumer;
}

void IpcExports::hang_up(IpcConsumer& consumer) noexcept {
  {
    const std::lock_guard lock(mutex_);
    consumer.hung_up = true;
    consumer.socket.reset();
  }
  sweep();
}

bool IpcExports::holds_references(const IpcConsumer& consumer) const {
  // Only slots that were ever used: a look at another one would take memory for its page.
  for (std::size_t slot = 0; slot < exports_.size(); ++slot) {
    if (consumer.references[slot].load() > 0) return true;
  }
  return false;
}

// Note [When a consumer is gone]
// A killed process closes its sockets before the driver has stopped its work on the devices. Its
// process ends only after that, so the references are held until then. An importer that hung up
// without a reference can take none any more: it closes its table with its connection.
void IpcExports::drop_dead_consumers() {
  std::erase_if(consumers_, [this](const auto& consumer) {
    return (consumer->hung_up && !holds_references(*consumer)) || consumer->is_gone();
  });
}

std::vector<std::shared_ptr<IpcConsumer>> IpcExports::consumers() const {
  const std::lock_guard lock(mutex_);
  return consumers_;
}

std::optional<std::vector<ChunkSpan>> IpcExports::chunks(std::uint32_t slot,
                                                         std::uint64_t generation) const {
  const std::lock_guard lock(mutex_);
  const Export* known = find(slot, generation);
  if (known == nullptr) return std::nullopt;
  return known->extent.chunks;
}

void IpcExports::count(int device, IpcStats& stats) const {
  const std::lock_guard lock(mutex_);
  for (std::size_t slot = 0; slot < exports_.size(); ++slot) {
    const Export& one = exports_[slot];
    if (!one.in_use || one.block.device.index != device) continue;
    ++stats.exports;
    if (!one.in_limbo) continue;
    ++stats.limbo_blocks;
    stats.limbo_bytes += one.block.bytes;
    if (one.references_here > 0) stats.limbo_by_consumer[this_process().pid] += one.block.bytes;
    for (const auto& consumer : consumers_) {
      if (consumer->references[slot].load() > 0) {
        stats.limbo_by_consumer[consumer->process().pid] += one.block.bytes;
      }
    }
  }
}

bool ipc_defer_free(Block& block) noexcept { return IpcExports::instance().defer_free(block); }

std::size_t ipc_sweep() noexcept { return IpcExports::instance().sweep(); }

}  // namespace gantry::memory
