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
// An NCCL kernel that waits for a dead rank never ends, and blocks its stream and every host thread
// that synchronizes. Only ncclCommAbort ends it. Its first step sets a flag that kernels read. Its
// last step frees memory, which may wait for other work of the device, and for graphs with NCCL
// kernels. So a separate thread calls it. abort() then blocks neither the program nor the watchdog.
//
// NCCL must not free a communicator that another thread enqueues into, so enqueueing holds a lock.
// But that thread may block too, if the launch queue is full behind the waiting kernel. After a
// timeout the abort continues without the lock. The flag makes a blocked NCCL launch return. Later
// steps wait for all kernels first, and threads that launch other kernels check the flag before and
// after. The communicator's device memory is leaked then. Queries of the driver before the abort
// may block, too, so only threads that may block make them. Starting NCCL blocks too if a rank does
// not join, so it has its own thread, which is abandoned in that case.

// An NCCL communicator with its threads and device memory.
// Thread safety: enqueue() by one thread at a time; the rest by any.
class NcclComm {
 public:
  // Called once, before kernels end: operations up to `call` end without a result.
  using ReportLoss = std::function<void(std::uint64_t call)>;

  // Throws if a rank is lost or late.
  using CheckPeers = std::function<void()>;

  // Collective. Throws: OutOfMemoryError; NcclError; as Bootstrap::all_gather() and
  // `check_peers`, which is polled.
  NcclComm(const Membership& membership, Bootstrap& bootstrap, ReportLoss report_loss,
           const CheckPeers& check_peers);
  // Aborts, and waits with a timeout for the end of the abort.
  ~NcclComm();
  NcclComm(const NcclComm&) = delete;
  NcclComm& operator=(const NcclComm&) = delete;

  // Zero-initialized words of device memory: one for barriers, one for counting runs.
  static constexpr int kWords = 2;
  std::uint64_t* word(int i) const;
  // Calls `submit(comm)`, which enqueues `call` on `stream`. Throws: as require_intact().
  void enqueue(std::uint64_t call, const Stream& stream,
               const std::function<void(ncclComm_t)>& submit);
  // True while work is enqueued. Queries the driver.
  bool is_waiting() const;

  // Starts to end the enqueued work. Does not block.
  void abort() noexcept;
  // Throws PeerLostError after abort(), or the error that caused it.
  void require_intact() const;
  // Returns a function that returns NCCL's asynchronous error; empty: none. It may outlive this
  // object, as may the next one.
  std::function<std::string()> error_finder() const;
  // Returns a function that aborts and makes require_intact() throw its argument.
  std::function<void(std::uint64_t, std::exception_ptr)> failer() const;
  // After abort(), waits with a timeout for its end.
  void await_abort() noexcept;

 private:
  struct State;
  static void abort(const std::shared_ptr<State>& state) noexcept;
  static bool is_done(const std::shared_ptr<State>& state);
  static void end(const std::shared_ptr<State>& state);
  static void start(const std::shared_ptr<State>& state, const ncclUniqueId& id);

  std::shared_ptr<State> state_;  // shared with threads that may be blocked in NCCL or the driver
};

}  // namespace gantry
