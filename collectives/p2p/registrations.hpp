#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include <gantry/device/device.hpp>
#include <gantry/streams/stream.hpp>
#include <gantry/tensor/storage.hpp>

#include "collectives/bootstrap/bootstrap.hpp"

namespace gantry {

// Memory of every rank that all ranks have open, in the order in which it was registered. Ranks
// register and give up together, so that a registration's number means the same everywhere.
class Registrations {
 public:
  // `opens` is false where ranks cannot reach each other's memory: it is kept, and no more.
  Registrations(int rank, Device device, bool opens = true);
  ~Registrations();
  Registrations(const Registrations&) = delete;
  Registrations& operator=(const Registrations&) = delete;

  // Opens `storage` of each rank on all others and keeps it alive. Collective; blocks the host.
  // Throws, on every rank: InvalidArgument for memory of different sizes, or that a rank could not
  // share; what kept this rank from it. Errors begin with `op`.
  void add(Bootstrap& bootstrap, const Storage& storage, std::string_view op = "register_memory");
  // Gives up what add() opened. Not collective by itself. Throws: InvalidArgument if there is none.
  void remove(const Storage& storage);

  // Keeps the other ranks' memory open until the work of `stream` so far is done.
  void record_stream(const Stream& stream) const;

  // The window offset of `bytes` at `data`, see flight::pack_window_offset(); 0 if not registered.
  std::uint64_t find(const void* data, std::int64_t bytes) const;
  // Writes where each rank has the `bytes` at `data` open, at that rank's addresses. False, and
  // nothing written, if they are not registered.
  bool find_at_peers(const void* data, std::int64_t bytes, std::span<std::byte*> places) const;
  bool empty() const;
  // The address of a window offset in the memory of `rank`, on this rank's device.
  std::byte* address(std::uint64_t window_offset, int rank) const;

 private:
  struct Entry;

  // The entry that has all of the bytes; its number, from 1, or 0.
  std::size_t number_of(const void* data, std::int64_t bytes) const;

  int rank_;
  Device device_;
  bool opens_;
  std::vector<std::unique_ptr<Entry>> entries_;  // by number, from 1; null: given up
};

}  // namespace gantry
