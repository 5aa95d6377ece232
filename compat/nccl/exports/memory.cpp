// Exported: memory, windows and one-sided signals.
#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include <gantry/core/error.hpp>
#include <gantry/device/guard.hpp>
#include <gantry/streams/stream_guard.hpp>
#include <gantry/tensor/factories.hpp>

#include "compat/nccl/group.hpp"
#include "compat/nccl/memory.hpp"
#include "compat/nccl/outcome.hpp"
#include "compat/nccl/program_order.hpp"
#include "compat/nccl/rank.hpp"
#include "compat/nccl/types/data_type.hpp"

namespace gantry::nccl_api {

namespace {

// The ranks of the windows of this process, for functions without a communicator.
struct OpenWindows {
  std::mutex mutex;
  std::map<ncclWindow_t, std::weak_ptr<Rank>> ranks;

  static OpenWindows& all() {
    static auto* const windows = new OpenWindows;
    return *windows;
  }
};

// Opens memory of the program on every rank, where all ranks' memory can be opened. Collectives on
// it are staged: registered memory needs one offset on all ranks, and NCCL's programs have any.
void open_window(const std::shared_ptr<Rank>& rank, void* data, std::size_t bytes,
                 ncclWindow_t* place) {
  const DeviceGuard guard(rank->device);
  const Communicator group = rank->group();
  const auto count = static_cast<std::int64_t>(bytes);
  const std::optional<Tensor> whole = allocation_of(data, bytes);
  OpenMemory memory{.bytes = from_blob(data, {count}, {.dtype = DType::u8, .device = rank->device}),
                    .window = {}};
  std::string place_in_memory;
  if (whole) {
    const auto offset = static_cast<std::byte*>(data) - static_cast<std::byte*>(whole->data());
    place_in_memory = std::to_string(whole->nbytes()) + " " + std::to_string(offset);
  }
  const std::vector<std::string> places = group.all_gather_bytes(place_in_memory);
  const bool is_equal = std::ranges::all_of(
      places, [&](const std::string& one) { return !one.empty() && one == places.front(); });
  if (is_equal && group.transport() == "p2p") {
    memory.bytes = whole->narrow(
        0, static_cast<std::byte*>(data) - static_cast<std::byte*>(whole->data()), count);
    memory.window = group.window(memory.bytes);
    if (!rank->has_signals()) {
      rank->set_signals(group.window(zeros({1}, {.dtype = DType::u8, .device = rank->device})));
    }
  }
  *place = rank->add_window(std::move(memory));
  OpenWindows& all = OpenWindows::all();
  const std::lock_guard lock(all.mutex);
  all.ranks[*place] = rank;
}

// NCCL has one signal for each pair of ranks, and no flags yet.
void check_signal(int signal, int context, unsigned int flags) {
  if (signal != 0 || context != 0 || flags != 0) {
    throw InvalidArgument("expected signal 0 of context 0 without flags, but got signal " +
                          std::to_string(signal) + " of context " + std::to_string(context) +
                          " with flags " + std::to_string(flags));
  }
}

void* peer_pointer(ncclWindow_t window, std::size_t offset, int peer) {
  std::shared_ptr<Rank> rank;
  {
    OpenWindows& all = OpenWindows::all();
    const std::lock_guard lock(all.mutex);
    if (const auto found = all.ranks.find(window); found != all.ranks.end()) {
      rank = found->second.lock();
    }
  }
  if (!rank) throw InvalidArgument("expected an open window");
  const OpenMemory memory = rank->find_window(window);
  if (!memory.window.defined()) throw NotSupported("ranks cannot reach the memory of this window");
  if (peer < 0 || peer >= rank->size) {
    throw InvalidArgument("expected a rank from 0 to " + std::to_string(rank->size - 1) +
                          ", but got " + std::to_string(peer));
  }
  return static_cast<std::byte*>(memory.window.peer_pointers()[static_cast<std::size_t>(peer)]) +
         offset;
}

}  // namespace

GANTRY_NCCL_API ncclResult_t ncclMemAlloc(void** place, std::size_t bytes) {
  GANTRY_NCCL_TALLY("ncclMemAlloc");
  return guarded(tally, [&] {
    if (place == nullptr) throw InvalidArgument("expected a place for the address, but got null");
    *place = allocate(bytes);
    tally.add_bytes(bytes);
    return ncclSuccess;
  });
}

GANTRY_NCCL_API ncclResult_t ncclMemFree(void* data) {
  GANTRY_NCCL_TALLY("ncclMemFree");
  return guarded(tally, [&] {
    deallocate(data);
    return ncclSuccess;
  });
}

// NCCL registers without the other ranks, which opening memory to them needs. Operations on the
// memory are therefore staged.
GANTRY_NCCL_API ncclResult_t ncclCommRegister(const ncclComm_t comm, void* data, std::size_t bytes,
                                              void** handle) {
  GANTRY_NCCL_TALLY("ncclCommRegister");
  return guarded(tally, [&] {
    (void)rank_of(comm);
    if (handle == nullptr || (data == nullptr && bytes > 0)) {
      throw InvalidArgument("expected memory and a place for its handle, but got null");
    }
    *handle = data;
    return ncclSuccess;
  });
}

GANTRY_NCCL_API ncclResult_t ncclCommDeregister(const ncclComm_t comm, void* /*handle*/) {
  GANTRY_NCCL_TALLY("ncclCommDeregister");
  return guarded(tally, [&] {
    (void)rank_of(comm);
    return ncclSuccess;
  });
}

GANTRY_NCCL_API ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void* data, std::size_t bytes,
                                                    ncclWindow_t* window, int /*flags*/) {
  GANTRY_NCCL_TALLY("ncclCommWindowRegister");
  return collected(tally, [&] {
    if (window == nullptr) throw InvalidArgument("expected a place for the window, but got null");
    const std::shared_ptr<Rank> rank = rank_of(comm);
    CallGroup::mine().submit_host_call([=] { open_window(rank, data, bytes, window); });
    return ncclSuccess;
  });
}

GANTRY_NCCL_API ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window) {
  GANTRY_NCCL_TALLY("ncclCommWindowDeregister");
  return guarded(tally, [&] {
    if (window == nullptr) return ncclSuccess;
    const std::shared_ptr<Rank> rank = rank_of(comm);
    {
      OpenWindows& all = OpenWindows::all();
      const std::lock_guard lock(all.mutex);
      all.ranks.erase(window);
    }
    (void)rank->take_window(window);
    return ncclSuccess;
  });
}

GANTRY_NCCL_API ncclResult_t ncclWinGetUserPtr(ncclComm_t comm, ncclWindow_t window, void** place) {
  GANTRY_NCCL_TALLY("ncclWinGetUserPtr");
  return guarded(tally, [&] {
    if (place == nullptr) throw InvalidArgument("expected a place for the address, but got null");
    *place = rank_of(comm)->find_window(window).bytes.data();
    return ncclSuccess;
  });
}

GANTRY_NCCL_API ncclResult_t ncclGetPeerDevicePointer(ncclWindow_t window, std::size_t offset,
                                                      int peer, void** place) {
  GANTRY_NCCL_TALLY("ncclGetPeerDevicePointer");
  return guarded(tally, [&] {
    if (place == nullptr) throw InvalidArgument("expected a place for the address, but got null");
    *place = peer_pointer(window, offset, peer);
    return ncclSuccess;
  });
}

// All ranks that reach a window's memory are one team.
GANTRY_NCCL_API ncclResult_t ncclGetLsaDevicePointer(ncclWindow_t window, std::size_t offset,
                                                     int peer, void** place) {
  GANTRY_NCCL_TALLY("ncclGetLsaDevicePointer");
  return guarded(tally, [&] {
    if (place == nullptr) throw InvalidArgument("expected a place for the address, but got null");
    *place = peer_pointer(window, offset, peer);
    return ncclSuccess;
  });
}

GANTRY_NCCL_API ncclResult_t ncclPutSignal(const void* data, std::size_t count, ncclDataType_t type,
                                           int peer, ncclWindow_t window, std::size_t offset,
                                           int signal, int context, unsigned int flags,
                                           ncclComm_t comm, cudaStream_t stream) {
  GANTRY_NCCL_TALLY("ncclPutSignal");
  return guarded(tally, [&] {
    const std::shared_ptr<Rank> rank = rank_of(comm);
    check_signal(signal, context, flags);
    const OpenMemory memory = rank->find_window(window);
    if (!memory.window.defined())
      throw NotSupported("ranks cannot reach the memory of this window");
    const auto bytes = static_cast<std::int64_t>(count * element_bytes(type));
    if (offset > memory.bytes.nbytes() ||
        static_cast<std::size_t>(bytes) > memory.bytes.nbytes() - offset) {
      throw InvalidArgument("expected a place within the window, but got offset " +
                            std::to_string(offset) + " for " + std::to_string(bytes) + " bytes");
    }
    order_later_work(stream, rank->device);
    const Stream on = Stream::external(stream, rank->device);
    const StreamGuard guard(on);
    if (bytes > 0) {
      const TensorOptions options{.dtype = DType::u8, .device = rank->device};
      memory.window.peer(peer)
          .narrow(0, static_cast<std::int64_t>(offset), bytes)
          .copy_(from_blob(const_cast<void*>(data), {bytes}, options));
    }
    rank->signals().put_signal(peer, on, rank->next_signal_to(peer));
    tally.add_bytes(static_cast<std::size_t>(bytes));
    return ncclSuccess;
  });
}

GANTRY_NCCL_API ncclResult_t ncclSignal(int peer, int signal, int context, unsigned int flags,
                                        ncclComm_t comm, cudaStream_t stream) {
  GANTRY_NCCL_TALLY("ncclSignal");
  return guarded(tally, [&] {
    const std::shared_ptr<Rank> rank = rank_of(comm);
    check_signal(signal, context, flags);
    order_later_work(stream, rank->device);
    rank->signals().put_signal(peer, Stream::external(stream, rank->device),
                               rank->next_signal_to(peer));
    return ncclSuccess;
  });
}

GANTRY_NCCL_API ncclResult_t ncclWaitSignal(int count, ncclWaitSignalDesc_t* signals,
                                            ncclComm_t comm, cudaStream_t stream) {
  GANTRY_NCCL_TALLY("ncclWaitSignal");
  return guarded(tally, [&] {
    if (count > 0 && signals == nullptr) throw InvalidArgument("expected signals, but got null");
    const std::shared_ptr<Rank> rank = rank_of(comm);
    const Stream on = Stream::external(stream, rank->device);
    const Window pads = rank->signals();
    for (int i = 0; i < count; ++i) check_signal(signals[i].sigIdx, signals[i].ctx, 0);
    order_later_work(stream, rank->device);
    for (int i = 0; i < count; ++i) {
      for (int k = 0; k < signals[i].opCnt; ++k) {
        pads.wait_signal(signals[i].peer, on, rank->next_signal_from(signals[i].peer));
      }
    }
    return ncclSuccess;
  });
}

}  // namespace gantry::nccl_api
