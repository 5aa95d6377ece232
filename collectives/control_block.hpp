#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gantry/collectives/reduce_op.hpp>
#include <gantry/core/dtype.hpp>
#include <gantry/core/error.hpp>

#include "collectives/bootstrap.hpp"
#include "collectives/peer_process.hpp"

namespace gantry {

// Kinds of collective operation.
enum class CollectiveKind : std::uint8_t {
  all_reduce,
  broadcast,
  all_gather,
  reduce_scatter,
  barrier,
};

// What a rank says it is doing; all ranks must say the same. No padding: compared as bytes.
struct Descriptor {
  std::int64_t sequence = 0;
  std::int64_t count = 0;  // elements, as the operation counts them
  std::int32_t root = 0;
  CollectiveKind kind = CollectiveKind::barrier;
  ReduceOp op = ReduceOp::sum;
  DType dtype = DType::u8;
  std::uint8_t reproducible = 1;

  // "all_reduce sum f32[4096]".
  std::string str() const;
  friend bool operator==(const Descriptor&, const Descriptor&) = default;
};

// Ranks made different calls. Every rank throws it at the same fence, so the group stays usable.
class CollectiveMismatch : public InvalidArgument {
 public:
  using InvalidArgument::InvalidArgument;
};

// Shared memory of all ranks of one machine: who has entered what, and who is still there.
//
// A fence counts one step of one operation. A rank announces it when its device work up to the step
// is enqueued and its event recorded; await() returns when all ranks announced it.
class ControlBlock {
 public:
  // Collective over `bootstrap`. Throws: PeerLostError, TimeoutError, Error.
  ControlBlock(Bootstrap& bootstrap, int rank, int size, std::chrono::milliseconds timeout);
  ~ControlBlock();
  ControlBlock(const ControlBlock&) = delete;
  ControlBlock& operator=(const ControlBlock&) = delete;

  // Says what the operation that is about to begin is; announced by its first fence.
  void describe(const Descriptor& descriptor);
  // Announces this rank's next fence and returns its number.
  std::uint64_t announce();
  // Blocks the host until every rank announced `fence`.
  // Throws: PeerLostError if a rank died, left or aborted; TimeoutError naming who did not come.
  void await(std::uint64_t fence);
  // Throws PeerLostError if the group is unusable; costs one load.
  void require_intact() const;
  // True once a rank was lost or aborted.
  bool broken() const noexcept;
  // Compares all ranks' descriptors of operation `sequence` after its first fence.
  // Throws: CollectiveMismatch naming rank 0 and the first rank that differs.
  void verify(std::int64_t sequence) const;
  // Throws PeerLostError if a rank died, aborted, or left before `fence`; one system call a rank.
  void check_peers(std::uint64_t fence) const;
  // The last fence that this rank announced.
  std::uint64_t last_fence() const { return fence_; }

  // Makes pending and later calls of every rank throw PeerLostError that blames this rank.
  void abort() noexcept;
  // Says that this rank enters nothing more, then waits up to `patience` until all others said so
  // too or are dead.
  void finish(std::chrono::milliseconds patience) noexcept;

 private:
  struct Slot;
  struct Layout;

  [[noreturn]] void lose(int rank, const char* how) const;

  Bootstrap& bootstrap_;
  int rank_;
  int size_;
  std::chrono::milliseconds timeout_;
  Layout* shared_ = nullptr;
  std::size_t bytes_ = 0;
  std::uint64_t fence_ = 0;
  std::vector<PeerProcess> processes_;
};

}  // namespace gantry
