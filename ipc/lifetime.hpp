// The words that exporters and importers share, and their accesses to them.
#pragma once

#include <cstdint>

namespace gantry::memory {

/// Note [Lifetime of shared blocks]
/// An exporter has a table with one slot per exported block. A slot holds the block's generation
/// and two flags: open (it can be imported) and limbo (it was freed). Each importer has a table for
/// each exporter, with its number of references to each slot. Both tables are shared memory;
/// importers map the exporter's table read-only. A process that dies leaves only its own counts
/// behind. The exporter drops an importer's table together with the importer.
///
/// Acquire: increment the count, then read the slot. If the slot is not open in the expected
/// generation, decrement again.
/// Free: close the slot, then add up the counts. If there are references, open the slot again, in
/// limbo.
/// All accesses are sequentially consistent. Of a concurrent acquire and free, at least one
/// therefore sees the other.
/// Release: decrement, then read the slot. If it is in limbo, send a request to the exporter, which
/// checks that slot again. A lost request delays the free only until the next sweep.
/// The functions below have the only accesses to a slot that is in use. Their words are
/// std::atomic, or a model's, which tries each order of the accesses.

/// A slot of an exporter's table, stored as one word.
struct SlotState {
  std::uint64_t generation = 0;
  bool is_open = false;
  bool in_limbo = false;

  [[nodiscard]] std::uint64_t word() const {
    return generation << 2 | (is_open ? 1u : 0u) | (in_limbo ? 2u : 0u);
  }
  [[nodiscard]] static SlotState of(std::uint64_t word) {
    return {word >> 2, (word & 1) != 0, (word & 2) != 0};
  }
};

/// Opens the slot of a block that is exported from now on. The exporter's.
template <class SlotWord>
void open_slot(SlotWord& slot, std::uint64_t generation) {
  slot.store(SlotState{generation, true, false}.word());
}

/// Closes the slot of a freed block and returns true, if `is_referenced()` finds no reference. Else
/// the slot is open and in limbo. The exporter's.
template <class SlotWord, class IsReferenced>
[[nodiscard]] bool close_slot(SlotWord& slot, std::uint64_t generation,
                              const IsReferenced& is_referenced) {
  // Limbo first: from now on an importer that releases its last reference sends a request.
  slot.store(SlotState{generation, true, true}.word());
  if (is_referenced()) return false;
  slot.store(SlotState{generation, false, true}.word());
  if (!is_referenced()) return true;
  slot.store(SlotState{generation, true, true}.word());
  return false;
}

/// Releases a reference of an importer. Calls `request()` if the exporter waits for the last one.
template <class SlotWord, class CountWord, class Request>
void release_reference(const SlotWord& slot, CountWord& count, const Request& request) {
  if (count.fetch_sub(1) != 1) return;
  if (SlotState::of(slot.load()).in_limbo) request();
}

/// Acquires a reference for an importer. False if the slot holds the block of `generation` no more;
/// `request` is as for release_reference().
template <class SlotWord, class CountWord, class Request>
[[nodiscard]] bool acquire_reference(const SlotWord& slot, CountWord& count,
                                     std::uint64_t generation, const Request& request) {
  count.fetch_add(1);
  const SlotState state = SlotState::of(slot.load());
  if (state.is_open && state.generation == generation) return true;
  release_reference(slot, count, request);
  return false;
}

}  // namespace gantry::memory
