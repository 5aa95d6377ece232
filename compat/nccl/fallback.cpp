#include "compat/nccl/fallback.hpp"

#include <algorithm>
#include <cstdio>
#include <map>
#include <mutex>

#include <gantry/core/log.hpp>
#include <gantry/device/guard.hpp>

#include "compat/nccl/their_library.hpp"

namespace gantry::nccl_api {

namespace {

void check(ncclResult_t result, const char* function, ncclComm_t comm) {
  if (result == ncclSuccess) return;
  const TheirLibrary& library = TheirLibrary::get();
  const char* const detail = library.get_last_error(comm);
  throw TheirFailure(result, std::string(function) +
                                 " of NCCL: " + library.get_error_string(result) +
                                 (detail != nullptr && *detail != '\0' ? ": " : "") +
                                 (detail != nullptr ? detail : ""));
}

// Decisions about communicators, and how often each was made.
struct Decisions {
  std::mutex mutex;
  std::map<std::string, int> counts;

  static Decisions& all() {
    static auto* const decisions = new Decisions;
    return *decisions;
  }
  // Returns true for the first of its kind.
  bool add(const std::string& decision) {
    const std::lock_guard lock(mutex);
    return counts[decision]++ == 0;
  }
};

void note_taken(const Communicator& group) {
  const bool has_far_ranks = group.local_size() < group.size();
  Decisions::all().add(
      "handed to NCCL " + TheirLibrary::get().version_text() +
      (has_far_ranks ? ": ranks on several machines" : ": GPUs without access to each other"));
}

void note_kept(int rank, const std::string& why) {
  const std::string text = "kept by gantry: rank " + std::to_string(rank) + ": " + why;
  if (Decisions::all().add(text)) logging::warn("GANTRY_NCCL_FALLBACK: communicator " + text);
}

// The words of a rank to the others: a version, and rank 0's id; or why it has no library.
struct Offer {
  static Offer mine(bool has_id) {
    const TheirLibrary& library = TheirLibrary::get();
    Offer offer{.problem = library.problem()};
    if (!offer.problem.empty()) return offer;
    offer.version = library.version_text();
    if (has_id) check(library.get_unique_id(&offer.id), "ncclGetUniqueId", nullptr);
    return offer;
  }
  [[nodiscard]] std::string bytes() const {
    if (!problem.empty()) return "-" + problem;
    return "+" + std::string(id.internal, sizeof id.internal) + version;
  }
  static Offer of(const std::string& bytes) {
    Offer offer;
    if (bytes.size() < 1 + sizeof offer.id.internal || bytes[0] != '+') {
      offer.problem = bytes.substr(std::min<std::size_t>(bytes.size(), 1));
      return offer;
    }
    bytes.copy(offer.id.internal, sizeof offer.id.internal, 1);
    offer.version = bytes.substr(1 + sizeof offer.id.internal);
    return offer;
  }

  std::string problem = {};
  std::string version = {};
  ncclUniqueId id{};
};

bool is_wanted(const Communicator& group) { return has_fallback() && group.transport() == "host"; }

}  // namespace

bool has_fallback() noexcept { return TheirLibrary::is_named(); }

ncclComm_t hand_over(const Communicator& group) {
  if (!is_wanted(group)) return nullptr;
  Offer mine;
  try {
    mine = Offer::mine(group.rank() == 0);
  } catch (const TheirFailure& error) {  // the other ranks wait for the offer
    mine.problem = error.what();
  }
  const std::vector<std::string> all = group.all_gather_bytes(mine.bytes());
  const Offer first = Offer::of(all.front());
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const Offer offer = Offer::of(all[rank]);
    const bool is_equal = offer.version == first.version;
    if (offer.problem.empty() && is_equal) continue;
    note_kept(static_cast<int>(rank),
              offer.problem.empty()
                  ? "it has NCCL " + offer.version + ", and rank 0 has " + first.version
                  : offer.problem);
    return nullptr;
  }
  const DeviceGuard guard(group.device());
  ncclComm_t made = nullptr;
  check(TheirLibrary::get().comm_init_rank(&made, group.size(), first.id, group.rank()),
        "ncclCommInitRank", nullptr);
  note_taken(group);
  return made;
}

std::vector<ncclComm_t> hand_over_all(std::span<const Communicator> groups) {
  if (!is_wanted(groups.front())) return {};
  const TheirLibrary& library = TheirLibrary::get();
  if (!library.problem().empty()) {
    note_kept(0, library.problem());
    return {};
  }
  std::vector<int> devices;
  for (const Communicator& group : groups) devices.push_back(group.device().index);
  std::vector<ncclComm_t> made(groups.size());
  check(library.comm_init_all(made.data(), static_cast<int>(groups.size()), devices.data()),
        "ncclCommInitAll", nullptr);
  for (const Communicator& group : groups) note_taken(group);
  return made;
}

namespace theirs {

void run(ncclComm_t comm, const Operation& call) {
  const TheirLibrary& library = TheirLibrary::get();
  const ncclDataType_t type = call.type;
  auto* const stream = static_cast<cudaStream_t>(call.stream);
  switch (call.kind) {
    case OperationKind::all_reduce:
      return check(
          library.all_reduce(call.send, call.recv, call.count, type, call.op, comm, stream),
          "ncclAllReduce", comm);
    case OperationKind::reduce:
      return check(
          library.reduce(call.send, call.recv, call.count, type, call.op, call.peer, comm, stream),
          "ncclReduce", comm);
    case OperationKind::broadcast:
      return check(
          library.broadcast(call.send, call.recv, call.count, type, call.peer, comm, stream),
          "ncclBroadcast", comm);
    case OperationKind::all_gather:
      return check(library.all_gather(call.send, call.recv, call.count, type, comm, stream),
                   "ncclAllGather", comm);
    case OperationKind::reduce_scatter:
      return check(
          library.reduce_scatter(call.send, call.recv, call.count, type, call.op, comm, stream),
          "ncclReduceScatter", comm);
    case OperationKind::gather:
      library.require(library.gather, "ncclGather");
      return check(library.gather(call.send, call.recv, call.count, type, call.peer, comm, stream),
                   "ncclGather", comm);
    case OperationKind::scatter:
      library.require(library.scatter, "ncclScatter");
      return check(library.scatter(call.send, call.recv, call.count, type, call.peer, comm, stream),
                   "ncclScatter", comm);
    case OperationKind::all_to_all:
      library.require(library.all_to_all, "ncclAlltoAll");
      return check(library.all_to_all(call.send, call.recv, call.count, type, comm, stream),
                   "ncclAlltoAll", comm);
    case OperationKind::send:
      return check(library.send(call.send, call.count, type, call.peer, comm, stream), "ncclSend",
                   comm);
    case OperationKind::recv:
      return check(library.recv(call.recv, call.count, type, call.peer, comm, stream), "ncclRecv",
                   comm);
  }
}

void start_group() { check(TheirLibrary::get().group_start(), "ncclGroupStart", nullptr); }
void end_group() { check(TheirLibrary::get().group_end(), "ncclGroupEnd", nullptr); }

ncclRedOp_t add_operator(ncclComm_t comm, ncclDataType_t type, void* scalar,
                         ncclScalarResidence_t residence) {
  ncclRedOp_t op = ncclNumOps;
  check(TheirLibrary::get().create_pre_mul_sum(&op, scalar, type, residence, comm),
        "ncclRedOpCreatePreMulSum", comm);
  return op;
}

void remove_operator(ncclComm_t comm, ncclRedOp_t op) {
  check(TheirLibrary::get().destroy_operator(op, comm), "ncclRedOpDestroy", comm);
}

std::exception_ptr failure(ncclComm_t comm) noexcept {
  try {
    ncclResult_t state = ncclSuccess;
    check(TheirLibrary::get().get_async_error(comm, &state), "ncclCommGetAsyncError", comm);
    if (state != ncclInProgress) check(state, "ncclCommGetAsyncError", comm);
    return nullptr;
  } catch (...) {
    return std::current_exception();
  }
}

void leave(ncclComm_t comm, bool aborts) noexcept {
  try {
    const TheirLibrary& library = TheirLibrary::get();
    if (aborts) {
      check(library.comm_abort(comm), "ncclCommAbort", comm);
    } else {
      check(library.comm_destroy(comm), "ncclCommDestroy", comm);
    }
  } catch (const std::exception& error) {
    logging::warn(std::string("failed to leave a communicator: ") + error.what());
  }
}

}  // namespace theirs

void print_fallback_report() {
  if (!has_fallback()) return;
  Decisions& decisions = Decisions::all();
  const std::lock_guard lock(decisions.mutex);
  for (const auto& [decision, count] : decisions.counts) {
    std::fprintf(stderr, "  %d communicator%s %s\n", count, count == 1 ? "" : "s",
                 decision.c_str());
  }
}

}  // namespace gantry::nccl_api
