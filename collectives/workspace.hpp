#pragma once

#include <cstddef>
#include <vector>

#include <gantry/device/driver.hpp>

#include "collectives/bootstrap.hpp"

namespace gantry {

// Device memory of one size on every rank, each open on every other rank, and events likewise.
//
// Two staging slots take turns, so that a rank may fill one while peers still read the other; each
// has a result area for algorithms of two steps.
class Workspace {
 public:
  static constexpr std::size_t kSlotBytes = std::size_t{8} << 20;
  static constexpr std::size_t kResultBytes = std::size_t{4} << 20;
  static constexpr int kSlots = 2;
  static constexpr int kEvents = 2;

  // Collective over `bootstrap`. Throws: OutOfMemoryError, CudaError, PeerLostError.
  Workspace(Bootstrap& bootstrap, int rank, int size, int device);
  ~Workspace();
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  // Addresses that this rank's device can use.
  void* staging(int rank, int slot) const;
  void* result(int rank, int slot) const;
  // Events alternate between fences.
  NativeEvent event(int rank, int index) const;

 private:
  void release() noexcept;

  int rank_;
  int device_;
  std::vector<void*> memory_;
  std::vector<std::vector<NativeEvent>> events_;
};

}  // namespace gantry
