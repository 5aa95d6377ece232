#pragma once

#include <nccl.h>

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>

#include <gantry/streams/stream.hpp>

#include "collectives/transport.hpp"

namespace gantry {

// Note [Ending NCCL]
// A kernel of NCCL that waits for a rank that is gone waits for ever, and with it its stream and
// every host thread that synchronizes. Only ncclCommAbort ends it: its first step is a flag that
// kernels see, its last frees memory, which may wait for whatever else the device does, and for
// graphs that hold NCCL's kernels. So a thread of its own calls it, and who asks for it, like the
// watchdog, waits for nothing.
//
// NCCL must not free what another thread enqueues into, so enqueueing holds a lock. But that thread
// may be stuck itself, where the queue of launches is full behind the kernel that waits. After a
// timeout the abort goes on without the lock: the flag lets a launch of NCCL's return at once,
// while what follows waits for all kernels first, and who launches something else looks at the flag
// before and behind it. Memory that it uses is lost then. For the same reason the driver is asked
// nothing before, unless by a thread that may get stuck. Nor does starting NCCL end if a rank does
// not come, so that it, too, has a thread of its own, which is left behind then.

// One communicator of NCCL and what belongs to it.
// Thread safety: enqueue() by one thread at a time; the rest by any.
class NcclComm {
 public:
  // Told once, before kernels end, that operations up to `call` end without a result.
  using TellLost = std::function<void(std::uint64_t call)>;

  // Throws if ranks wait for each other in vain.
  using LookForLoss = std::function<void()>;

  // Collective. Throws: OutOfMemoryError; NcclError; as Bootstrap::all_gather() and
  // `look_for_loss`, which is called again and again.
  NcclComm(const Membership& membership, Bootstrap& bootstrap, TellLost tell_lost,
           const LookForLoss& look_for_loss);
  // Aborts, and waits a while until that is done.
  ~NcclComm();
  NcclComm(const NcclComm&) = delete;
  NcclComm& operator=(const NcclComm&) = delete;

  // Words of device memory, zero: one for barriers, one for who counts something.
  static constexpr int kWords = 2;
  std::uint64_t* word(int i) const;
  // Calls `submit(comm)`, which enqueues `call` on `stream`. Throws: as require_intact().
  void enqueue(std::uint64_t call, const Stream& stream,
               const std::function<void(ncclComm_t)>& submit);
  // True while something is enqueued. Asks the driver.
  bool is_waiting() const;

  // Ends what is enqueued, soon. Waits for nothing.
  void abort() noexcept;
  // Throws PeerLostError after abort(), or what made it fail.
  void require_intact() const;
  // What NCCL has found wrong by itself; empty: nothing. May outlive this object, as the next one.
  std::function<std::string()> error_finder() const;
  // Aborts, and makes require_intact() throw what it is given.
  std::function<void(std::uint64_t, std::exception_ptr)> failer() const;
  // After abort(), waits a while until that is done.
  void await_abort() noexcept;

 private:
  struct State;
  static void abort(const std::shared_ptr<State>& state) noexcept;
  static bool is_done(const std::shared_ptr<State>& state);
  static void end(const std::shared_ptr<State>& state);
  static void start(const std::shared_ptr<State>& state, const ncclUniqueId& id);

  std::shared_ptr<State> state_;  // shared with threads that may be stuck in NCCL or the driver
};

}  // namespace gantry
