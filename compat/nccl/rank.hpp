// One rank of a group, as a program of NCCL holds it.
#pragma once

#include <exception>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include <gantry/collectives/communicator.hpp>
#include <gantry/collectives/window.hpp>
#include <gantry/device/device.hpp>

#include "compat/nccl/outcome.hpp"
#include "compat/nccl/types/api.hpp"
#include "compat/nccl/types/arithmetic.hpp"

namespace gantry::nccl_api {

// An operator that ncclRedOpCreatePreMulSum() made: a sum of inputs times a factor.
struct PreMulSum {
  ncclDataType_t type;
  Factor factor;
};

// Memory that ncclCommWindowRegister() opened on every rank.
struct OpenMemory {
  Tensor bytes;   // the program's part of the memory
  Window window;  // undefined if a rank's memory cannot be opened: the ranks keep to staging
};

// One rank of a group: the state behind an ncclComm_t.
// Thread safety: any thread.
class Rank : public std::enable_shared_from_this<Rank> {
 public:
  Rank(Device device, int rank, int size) : device(device), rank(rank), size(size) {}

  // The group. Waits until it is made. Throws: the error that its making had; PeerLostError after
  // revoke() and leave().
  [[nodiscard]] Communicator group() const;
  // True if operations of the group block the host for other ranks. Waits and throws as group().
  [[nodiscard]] bool blocks_host() const;
  // True until a rank that is made in the background is made, or has failed.
  [[nodiscard]] bool is_being_made() const;
  // The error of the group, if there is one. Does not wait for its making.
  [[nodiscard]] std::exception_ptr failure() const noexcept;
  // NCCL's communicator, if the group was handed over; else null. Waits and throws as group().
  [[nodiscard]] ncclComm_t theirs() const;
  // Takes the group that was made for this rank, which leaves it at once if leave() was called. All
  // ranks meet where it may be handed over.
  void set_group(Communicator group);
  // As set_group(), with NCCL's communicator.
  void set_group(Communicator group, ncclComm_t theirs);
  // Makes the group in a thread of its own.
  void make_in_background(std::function<Communicator()> make);
  // Breaks the group on every rank.
  void abort() noexcept;
  // Gives the group up, in a thread of its own: ranks of one thread leave one after the other. The
  // process waits for it at its exit.
  void leave() noexcept;

  // Returns the number of a new operator.
  ncclRedOp_t add_operator(const PreMulSum& op);
  // Throws: InvalidArgument for a number that names none.
  void remove_operator(ncclRedOp_t op);
  // Nothing for a built-in one. Throws: InvalidArgument for a number that names none.
  [[nodiscard]] std::optional<PreMulSum> find_operator(ncclRedOp_t op) const;

  ncclWindow_t add_window(OpenMemory memory);
  // Throws: InvalidArgument for a window that this rank does not have.
  OpenMemory take_window(ncclWindow_t window);
  [[nodiscard]] OpenMemory find_window(ncclWindow_t window) const;
  // The pads of ncclSignal(), which the first window brings. Throws: InvalidArgument before it.
  void set_signals(Window signals);
  [[nodiscard]] bool has_signals() const;
  [[nodiscard]] Window signals() const;
  // The channels of the next signal to `peer`, and of the next one from it. They take turns, since
  // a signal of NCCL's does not wait until the previous ones are awaited. Throws: InvalidArgument
  // for a rank that there is not.
  int next_signal_to(int peer);
  int next_signal_from(int peer);

  const Device device;
  const int rank;
  const int size;

 private:
  int next_channel(std::vector<int>& turns, int peer);

  mutable std::mutex mutex_;  // guards what follows
  Communicator group_;
  ncclComm_t theirs_ = nullptr;      // see Note [Communicators handed over]
  std::shared_future<void> making_;  // of group_, in the background
  bool has_left_ = false;
  bool blocks_host_ = false;
  std::vector<std::optional<PreMulSum>> operators_;
  std::map<ncclWindow_t, OpenMemory> windows_;
  Window signals_;
  std::vector<int> signals_to_;
  std::vector<int> signals_from_;
};

// The rank of a handle. `function` stands in the errors of handles that have ended.
// Throws: InvalidArgument for null, for an address that is no handle, and for an ended handle.
std::shared_ptr<Rank> rank_of(ncclComm_t handle);
// Makes a handle.
ncclComm_t make_handle(std::shared_ptr<Rank> rank);
// Ends a handle by `function`. Returns its rank. Throws: as rank_of().
std::shared_ptr<Rank> end_handle(ncclComm_t handle, const char* function);

}  // namespace gantry::nccl_api
