// Exported: the making and the end of communicators, and questions about them.
#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/device/guard.hpp>

#include "compat/nccl/fallback.hpp"
#include "compat/nccl/group.hpp"
#include "compat/nccl/meeting_place.hpp"
#include "compat/nccl/outcome.hpp"
#include "compat/nccl/rank.hpp"

namespace gantry::nccl_api {

namespace {

template <class T>
void require_place(const T* place) {
  if (place == nullptr) throw InvalidArgument("expected a place for the result, but got null");
}

// True if the call waits until the group is made, as the program's settings say.
bool is_blocking(const ncclConfig_t* config) {
  if (config == nullptr) return true;
  if (config->magic != kConfigMagic || config->size < sizeof(ncclConfig_t)) {
    throw InvalidArgument("expected settings of NCCL_CONFIG_INITIALIZER, but got others");
  }
  return config->blocking != 0;
}

// Makes the group of a new rank by `make`, and writes its handle to `place`: now, when the open
// group ends, or in the background.
ncclResult_t make_rank(ncclComm_t* place, bool is_blocking, std::shared_ptr<Rank> rank,
                       std::function<Communicator()> make) {
  report_at_exit();
  *place = nullptr;
  auto in_place = [rank, make = std::move(make)] {
    const DeviceGuard guard(rank->device);
    return make();
  };
  if (!is_blocking) {
    rank->make_in_background(std::move(in_place));
    *place = make_handle(std::move(rank));
    return ncclInProgress;
  }
  CallGroup::mine().submit_host_call([place, rank, in_place = std::move(in_place)] {
    rank->set_group(in_place());
    *place = make_handle(rank);
  });
  return ncclSuccess;
}

ncclResult_t connect(ncclComm_t* place, bool is_blocking, int size, int rank,
                     const ncclUniqueId& id, Device device) {
  require_place(place);
  if (size < 1 || rank < 0 || rank >= size) {
    throw InvalidArgument("expected a rank below the number of ranks, but got rank " +
                          std::to_string(rank) + " of " + std::to_string(size));
  }
  const MeetingPlace meeting = MeetingPlace::parse(id);
  return make_rank(place, is_blocking, std::make_shared<Rank>(device, rank, size), [=] {
    ConnectOptions options{.address = meeting.address,
                           .rank = rank,
                           .size = size,
                           .token = meeting.token,
                           .device = device,
                           .serves = false};
    if (rank == 0) options.server = meeting.take_server();
    try {
      return Communicator::connect(options);
    } catch (...) {
      // The other ranks read there who is absent.
      if (options.server) meeting.keep_server(options.server);
      throw;
    }
  });
}

}  // namespace

GANTRY_NCCL_API ncclResult_t ncclGetVersion(int* version) {
  GANTRY_NCCL_TALLY("ncclGetVersion");
  return guarded(tally, [&] {
    require_place(version);
    *version = kVersion;
    return ncclSuccess;
  });
}

GANTRY_NCCL_API ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  GANTRY_NCCL_TALLY("ncclGetUniqueId");
  return guarded(tally, [&] {
    require_place(id);
    *id = MeetingPlace::open().id();
    return ncclSuccess;
  });
}

GANTRY_NCCL_API ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id,
                                                    int rank, ncclConfig_t* config) {
  GANTRY_NCCL_TALLY("ncclCommInitRankConfig");
  return collected(
      tally, [&] { return connect(comm, is_blocking(config), size, rank, id, current_device()); });
}

GANTRY_NCCL_API ncclResult_t ncclCommInitRank(ncclComm_t* comm, int size, ncclUniqueId id,
                                              int rank) {
  GANTRY_NCCL_TALLY("ncclCommInitRank");
  return collected(tally, [&] { return connect(comm, true, size, rank, id, current_device()); });
}

GANTRY_NCCL_API ncclResult_t ncclCommInitRankScalable(ncclComm_t* comm, int size, int rank,
                                                      int ids_count, ncclUniqueId* ids,
                                                      ncclConfig_t* config) {
  GANTRY_NCCL_TALLY("ncclCommInitRankScalable");
  return collected(tally, [&] {
    if (ids_count < 1 || ids == nullptr) throw InvalidArgument("expected an id, but got none");
    // One place is enough.
    return connect(comm, is_blocking(config), size, rank, ids[0], current_device());
  });
}

GANTRY_NCCL_API ncclResult_t ncclCommInitAll(ncclComm_t* comms, int count, const int* devices) {
  GANTRY_NCCL_TALLY("ncclCommInitAll");
  return guarded(tally, [&] {
    require_place(comms);
    if (count < 1) throw InvalidArgument("expected a device, but got none");
    report_at_exit();
    std::vector<Device> places;
    for (int i = 0; i < count; ++i) {
      places.push_back(Device::cuda(devices == nullptr ? i : devices[i]));
    }
    const DeviceGuard guard(current_device());
    std::vector<Communicator> groups = Communicator::local(places);
    std::vector<ncclComm_t> theirs = hand_over_all(groups);
    theirs.resize(groups.size());  // null: gantry's
    for (int i = 0; i < count; ++i) {
      const auto at = static_cast<std::size_t>(i);
      auto rank = std::make_shared<Rank>(places[at], i, count);
      rank->set_group(std::move(groups[at]), theirs[at]);
      comms[i] = make_handle(std::move(rank));
    }
    return ncclSuccess;
  });
}

GANTRY_NCCL_API ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* made,
                                           ncclConfig_t* config) {
  GANTRY_NCCL_TALLY("ncclCommSplit");
  return collected(tally, [&] {
    require_place(made);
    if (color < 0 && color != kNoColor) {
      throw InvalidArgument("expected a color of 0 or more, or NCCL_SPLIT_NOCOLOR, but got " +
                            std::to_string(color));
    }
    (void)is_blocking(config);
    const std::shared_ptr<Rank> parent = rank_of(comm);
    *made = nullptr;
    CallGroup::mine().submit_host_call([=] {
      const DeviceGuard guard(parent->device);
      Communicator part = parent->group().split(color, key);
      if (!part.defined()) return;
      auto rank = std::make_shared<Rank>(parent->device, part.rank(), part.size());
      rank->set_group(std::move(part));
      *made = make_handle(std::move(rank));
    });
    return ncclSuccess;
  });
}

GANTRY_NCCL_API ncclResult_t ncclCommShrink(ncclComm_t comm, int* excluded, int count,
                                            ncclComm_t* made, ncclConfig_t* config, int flags) {
  GANTRY_NCCL_TALLY("ncclCommShrink");
  return collected(tally, [&] {
    require_place(made);
    (void)is_blocking(config);
    if (count > 0 && excluded == nullptr) throw InvalidArgument("expected ranks, but got null");
    const std::shared_ptr<Rank> parent = rank_of(comm);
    const std::vector<int> failed(excluded, excluded + std::max(count, 0));
    if ((flags & kShrinkAborts) != 0) parent->abort();
    CallGroup::mine().submit_host_call([=] {
      const DeviceGuard guard(parent->device);
      Communicator rest = parent->group().shrink(failed);
      auto rank = std::make_shared<Rank>(parent->device, rest.rank(), rest.size());
      rank->set_group(std::move(rest));
      *made = make_handle(std::move(rank));
    });
    return ncclSuccess;
  });
}

GANTRY_NCCL_API ncclResult_t ncclCommGetUniqueId(ncclComm_t comm, ncclUniqueId* id) {
  GANTRY_NCCL_TALLY("ncclCommGetUniqueId");
  return guarded(tally, [&] {
    require_place(id);
    (void)rank_of(comm);
    *id = MeetingPlace::open().id();
    return ncclSuccess;
  });
}

// Ranks of the old group learn the id from the first of them that has it. New ranks bring theirs.
GANTRY_NCCL_API ncclResult_t ncclCommGrow(ncclComm_t comm, int size, const ncclUniqueId* id,
                                          int rank, ncclComm_t* made, ncclConfig_t* config) {
  GANTRY_NCCL_TALLY("ncclCommGrow");
  return collected(tally, [&] {
    const bool waits = is_blocking(config);
    require_place(made);
    if (comm == nullptr) {
      require_place(id);
      return connect(made, waits, size, rank, *id, current_device());
    }
    const std::shared_ptr<Rank> parent = rank_of(comm);
    const std::string mine = id == nullptr ? std::string() : std::string(id->internal, sizeof *id);
    CallGroup::mine().submit_host_call([=] {
      const std::vector<std::string> all = parent->group().all_gather_bytes(mine);
      const auto found = std::ranges::find(all, sizeof(ncclUniqueId), &std::string::size);
      if (found == all.end()) {
        throw InvalidArgument(
            "expected an id of ncclCommGetUniqueId on one of the ranks, but got none");
      }
      ncclUniqueId known{};
      found->copy(known.internal, found->size());
      (void)connect(made, waits, size, parent->rank, known, parent->device);
    });
    return ncclSuccess;
  });
}

GANTRY_NCCL_API ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  GANTRY_NCCL_TALLY("ncclCommFinalize");
  return guarded(tally, [&] {
    rank_of(comm)->leave();
    return ncclSuccess;
  });
}

GANTRY_NCCL_API ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  GANTRY_NCCL_TALLY("ncclCommDestroy");
  return guarded(tally, [&] {
    if (comm == nullptr) return ncclSuccess;
    end_handle(comm, "ncclCommDestroy")->leave();
    return ncclSuccess;
  });
}

GANTRY_NCCL_API ncclResult_t ncclCommAbort(ncclComm_t comm) {
  GANTRY_NCCL_TALLY("ncclCommAbort");
  return guarded(tally, [&] {
    if (comm == nullptr) return ncclSuccess;
    const std::shared_ptr<Rank> rank = end_handle(comm, "ncclCommAbort");
    rank->abort();
    rank->leave();
    return ncclSuccess;
  });
}

GANTRY_NCCL_API ncclResult_t ncclCommRevoke(ncclComm_t comm, int /*flags*/) {
  GANTRY_NCCL_TALLY("ncclCommRevoke");
  return guarded(tally, [&] {
    rank_of(comm)->abort();
    return ncclSuccess;
  });
}

GANTRY_NCCL_API ncclResult_t ncclCommSuspend(ncclComm_t comm, int /*flags*/) {
  GANTRY_NCCL_TALLY("ncclCommSuspend");
  return collected(tally, [&] {
    const std::shared_ptr<Rank> rank = rank_of(comm);
    CallGroup::mine().submit_host_call([rank] { rank->group().suspend(); });
    return ncclSuccess;
  });
}

GANTRY_NCCL_API ncclResult_t ncclCommResume(ncclComm_t comm) {
  GANTRY_NCCL_TALLY("ncclCommResume");
  return collected(tally, [&] {
    const std::shared_ptr<Rank> rank = rank_of(comm);
    CallGroup::mine().submit_host_call([rank] { rank->group().resume(); });
    return ncclSuccess;
  });
}

GANTRY_NCCL_API ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* result) {
  GANTRY_NCCL_TALLY("ncclCommGetAsyncError");
  return guarded(tally, [&] {
    require_place(result);
    const std::shared_ptr<Rank> rank = rank_of(comm);
    *result = ncclSuccess;
    if (rank->is_being_made()) {
      *result = ncclInProgress;
    } else if (const std::exception_ptr failure = rank->failure()) {
      *result = fail("ncclCommGetAsyncError", Outcome::of(failure));
    }
    return ncclSuccess;
  });
}

GANTRY_NCCL_API ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
  GANTRY_NCCL_TALLY("ncclCommCount");
  return guarded(tally, [&] {
    require_place(count);
    *count = rank_of(comm)->size;
    return ncclSuccess;
  });
}

GANTRY_NCCL_API ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
  GANTRY_NCCL_TALLY("ncclCommUserRank");
  return guarded(tally, [&] {
    require_place(rank);
    *rank = rank_of(comm)->rank;
    return ncclSuccess;
  });
}

GANTRY_NCCL_API ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int* device) {
  GANTRY_NCCL_TALLY("ncclCommCuDevice");
  return guarded(tally, [&] {
    require_place(device);
    *device = rank_of(comm)->device.index;
    return ncclSuccess;
  });
}

GANTRY_NCCL_API const char* ncclGetLastError(ncclComm_t /*comm*/) { return last_error(); }

GANTRY_NCCL_API const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "a CUDA call failed";
    case ncclSystemError:
      return "a call of the operating system failed";
    case ncclInternalError:
      return "internal error";
    case ncclInvalidArgument:
      return "invalid argument";
    case ncclInvalidUsage:
      return "invalid usage";
    case ncclRemoteError:
      return "another rank was lost or has aborted";
    case ncclInProgress:
      return "in progress";
    case ncclTimeout:
      return "another rank did not come in time";
  }
  return "unknown result";
}

GANTRY_NCCL_API void ncclResetDebugInit() {}

}  // namespace gantry::nccl_api
