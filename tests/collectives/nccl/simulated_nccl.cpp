// NCCL between simulated devices, of one process or several.
//
// Its operations run in stream order, and wait for the other ranks until ncclCommAbort() ends them,
// as NCCL's do. Reductions have the order of ranks. Variables make it fail:
//
//   SIMULATED_NCCL_FAILS=init       ncclCommInitRank() fails
//   SIMULATED_NCCL_REPORTS=losses   ncclCommGetAsyncError() finds a dead rank, without its name
//
// simulated_nccl_bytes() counts the bytes that this process has sent.
#include <nccl.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include <gantry/core/float16.hpp>
#include <gantry/device/device.hpp>
#include <gantry/extend/driver.hpp>

#include "tests/collectives/nccl/simulated_nccl_mail.hpp"

using simulated_nccl::Fifo;
using simulated_nccl::Mail;
using simulated_nccl::Mailbox;

namespace {

std::atomic<unsigned long long> sent_bytes{0};

bool is_set(const char* name, const char* value) {
  const char* const text = std::getenv(name);
  return text != nullptr && std::string(text) == value;
}

}  // namespace

// Enqueued work shares it with the handle.
struct ncclComm {
  ncclComm(const std::string& path, int rank, int size)
      : mail(path, rank), rank(rank), size(size), device(gantry::current_device().index) {}

  Mailbox mail;
  const int rank;
  const int size;
  const int device;
  std::atomic<bool> aborted{false};
  // Operations run one after the other, also on several streams.
  std::atomic<std::uint64_t> enqueued{0};
  std::atomic<std::uint64_t> finished{0};
  std::shared_ptr<ncclComm> self;
};

namespace {

// A message of an operation, in the order of its calls.
struct Transfer {
  bool sends = false;
  int peer = 0;
  std::byte* bytes = nullptr;
  std::size_t count = 0;
  std::size_t moved = 0;
};

using Reduce = void (*)(void* into, const void* from, std::size_t count, ncclRedOp_t op);
using Divide = void (*)(void* into, std::size_t count, int by);

// One kernel: transfers side by side, then a reduction of what has arrived.
struct Operation {
  std::shared_ptr<ncclComm> comm;
  std::uint64_t number = 0;
  std::vector<Transfer> transfers;
  Reduce reduce = nullptr;  // of `arrived`, one array for each rank, into `out`
  Divide divide = nullptr;
  ncclRedOp_t op = ncclSum;
  std::vector<std::vector<std::byte>> arrived;
  const void* own = nullptr;
  void* out = nullptr;
  std::size_t count = 0;
  std::size_t bytes = 0;

  bool step() {
    bool moved = false;
    // Only the first unfinished transfer of each direction with a peer: FIFOs keep the order.
    bool is_taken[2][Mail::kMostRanks] = {};
    for (Transfer& one : transfers) {
      bool& taken = is_taken[one.sends ? 1 : 0][one.peer];
      if (one.moved == one.count || std::exchange(taken, true)) continue;
      Fifo& fifo = one.sends ? comm->mail->fifos[comm->rank][one.peer]
                             : comm->mail->fifos[one.peer][comm->rank];
      const std::size_t part = one.sends ? fifo.put(one.bytes + one.moved, one.count - one.moved)
                                         : fifo.take(one.bytes + one.moved, one.count - one.moved);
      one.moved += part;
      moved = moved || part > 0;
      if (one.sends) sent_bytes += part;
    }
    return moved;
  }
  bool is_done() const {
    for (const Transfer& one : transfers) {
      if (one.moved != one.count) return false;
    }
    return true;
  }
  void finish() {
    if (reduce == nullptr || out == nullptr) return;
    std::vector<std::byte> result(bytes);
    for (int rank = 0; rank < comm->size; ++rank) {
      const void* const from =
          rank == comm->rank ? own : arrived[static_cast<std::size_t>(rank)].data();
      if (rank == 0) {
        std::memcpy(result.data(), from, bytes);
      } else {
        reduce(result.data(), from, count, op);
      }
    }
    if (op == ncclAvg) divide(result.data(), count, comm->size);
    std::memcpy(out, result.data(), bytes);
  }

  void run() {
    while (!comm->aborted && comm->finished != number) pause();
    while (!comm->aborted && !is_done()) {
      if (!step()) pause();
    }
    if (!comm->aborted) finish();
    comm->finished = number + 1;
  }
  static void pause() { std::this_thread::sleep_for(std::chrono::microseconds(50)); }
};

template <class T>
T combine(T a, T b, ncclRedOp_t op) {
  if (op == ncclMin) return b < a ? b : a;
  if (op == ncclMax) return a < b ? b : a;
  if constexpr (std::is_integral_v<T>) {
    using Wide = std::uint64_t;
    const Wide x = static_cast<Wide>(a);
    const Wide y = static_cast<Wide>(b);
    return static_cast<T>(op == ncclProd ? x * y : x + y);
  } else {
    return op == ncclProd ? a * b : a + b;
  }
}

template <class T, class Math = T>
void reduce(void* into, const void* from, std::size_t count, ncclRedOp_t op) {
  for (std::size_t i = 0; i < count; ++i) {
    T a, b;
    std::memcpy(&a, static_cast<std::byte*>(into) + i * sizeof(T), sizeof(T));
    std::memcpy(&b, static_cast<const std::byte*>(from) + i * sizeof(T), sizeof(T));
    a = static_cast<T>(combine<Math>(static_cast<Math>(a), static_cast<Math>(b), op));
    std::memcpy(static_cast<std::byte*>(into) + i * sizeof(T), &a, sizeof(T));
  }
}

template <class T, class Math = T>
void divide(void* into, std::size_t count, int by) {
  for (std::size_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, static_cast<std::byte*>(into) + i * sizeof(T), sizeof(T));
    value = static_cast<T>(static_cast<Math>(value) / static_cast<Math>(by));
    std::memcpy(static_cast<std::byte*>(into) + i * sizeof(T), &value, sizeof(T));
  }
}

struct Type {
  std::size_t bytes;
  Reduce reduce;
  Divide divide;
};

Type type_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
      return {1, reduce<std::int8_t>, divide<std::int8_t>};
    case ncclUint8:
      return {1, reduce<std::uint8_t>, divide<std::uint8_t>};
    case ncclInt32:
      return {4, reduce<std::int32_t>, divide<std::int32_t>};
    case ncclUint32:
      return {4, reduce<std::uint32_t>, divide<std::uint32_t>};
    case ncclInt64:
      return {8, reduce<std::int64_t>, divide<std::int64_t>};
    case ncclUint64:
      return {8, reduce<std::uint64_t>, divide<std::uint64_t>};
    case ncclFloat16:
      return {2, reduce<gantry::float16, float>, divide<gantry::float16, float>};
    case ncclBfloat16:
      return {2, reduce<gantry::bfloat16, float>, divide<gantry::bfloat16, float>};
    case ncclFloat32:
      return {4, reduce<float>, divide<float>};
    case ncclFloat64:
      return {8, reduce<double>, divide<double>};
    default:
      return {0, nullptr, nullptr};
  }
}

void run_on_stream(void* data) {
  const std::unique_ptr<Operation> operation(static_cast<Operation*>(data));
  operation->run();
}

ncclResult_t enqueue(std::unique_ptr<Operation> operation, cudaStream_t stream) {
  operation->number = operation->comm->enqueued++;
  const gantry::NativeStream on{operation->comm->device, stream};
  gantry::driver().launch_host_function(on, run_on_stream, operation.release());
  return ncclSuccess;
}

std::unique_ptr<Operation> make_operation(ncclComm_t comm) {
  auto operation = std::make_unique<Operation>();
  operation->comm = comm->self;
  return operation;
}

void add(Operation& operation, bool sends, int peer, const void* bytes, std::size_t count) {
  if (count == 0) return;
  operation.transfers.push_back(
      {sends, peer, static_cast<std::byte*>(const_cast<void*>(bytes)), count});
}

// The open group of this thread.
struct OpenGroup {
  int depth = 0;
  std::unique_ptr<Operation> operation;
  cudaStream_t stream = nullptr;
};
// Among the variables that exist from a thread's start: ThreadSanitizer takes the end of one that
// the dynamic linker allocates for a race with the next thread.
[[gnu::tls_model("initial-exec")]] thread_local OpenGroup open_group;

ncclResult_t message(bool sends, const void* bytes, std::size_t count, ncclDataType_t type,
                     int peer, ncclComm_t comm, cudaStream_t stream) {
  const bool is_alone = open_group.depth == 0;
  if (is_alone || open_group.operation == nullptr) open_group.operation = make_operation(comm);
  open_group.stream = stream;
  add(*open_group.operation, sends, peer, bytes, count * type_of(type).bytes);
  return is_alone ? enqueue(std::move(open_group.operation), stream) : ncclSuccess;
}

// Every rank's `count` elements, reduced to `out` on the ranks that `receives` names.
ncclResult_t reduction(const void* in, void* out, std::size_t count, ncclDataType_t dtype,
                       ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  const Type type = type_of(dtype);
  if (type.reduce == nullptr) return ncclInvalidArgument;
  auto operation = make_operation(comm);
  operation->reduce = type.reduce;
  operation->divide = type.divide;
  operation->op = op;
  operation->count = count;
  operation->bytes = count * type.bytes;
  operation->own = in;
  operation->arrived.resize(static_cast<std::size_t>(comm->size));
  const bool receives = root < 0 || root == comm->rank;
  operation->out = receives ? out : nullptr;
  for (int peer = 0; peer < comm->size; ++peer) {
    if (peer == comm->rank) continue;
    if (root < 0 || root == peer) add(*operation, true, peer, in, operation->bytes);
    if (!receives) continue;
    auto& place = operation->arrived[static_cast<std::size_t>(peer)];
    place.resize(operation->bytes);
    add(*operation, false, peer, place.data(), place.size());
  }
  return enqueue(std::move(operation), stream);
}

}  // namespace

extern "C" {

__attribute__((visibility("default"))) extern const char gantry_simulated_nccl_marker = 1;

__attribute__((visibility("default"))) unsigned long long simulated_nccl_bytes() {
  return sent_bytes;
}

ncclResult_t ncclGetVersion(int* version) {
  *version = 21'800;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  const std::string path = Mailbox::make();
  if (path.empty() || path.size() >= sizeof id->internal) return ncclSystemError;
  std::memset(id, 0, sizeof *id);
  std::memcpy(id->internal, path.data(), path.size());
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclRemoteError ? "simulated remote error" : "simulated error";
}
const char* ncclGetLastError(ncclComm_t) { return "no detail"; }

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int size, ncclUniqueId id, int rank) {
  if (is_set("SIMULATED_NCCL_FAILS", "init")) return ncclSystemError;
  if (size > Mail::kMostRanks) return ncclInvalidArgument;
  auto made = std::make_shared<ncclComm>(id.internal, rank, size);
  if (!made->mail) return ncclSystemError;
  ++made->mail->joined;
  while (made->mail->joined != size) Operation::pause();  // for ever, as NCCL
  made->self = made;
  *comm = made.get();
  return ncclSuccess;
}

ncclResult_t ncclCommInitAll(ncclComm_t*, int, const int*) { return ncclInvalidUsage; }

ncclResult_t ncclCommCount(ncclComm_t comm, int* count) {
  *count = comm->size;
  return ncclSuccess;
}
ncclResult_t ncclCommUserRank(ncclComm_t comm, int* rank) {
  *rank = comm->rank;
  return ncclSuccess;
}
ncclResult_t ncclCommCuDevice(ncclComm_t comm, int* device) {
  *device = comm->device;
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  comm->aborted = true;
  comm->self.reset();
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  *error = ncclSuccess;
  if (!is_set("SIMULATED_NCCL_REPORTS", "losses")) return ncclSuccess;
  for (int rank = 0; rank < comm->size; ++rank) {
    if (comm->mail.has_ended(rank)) *error = ncclRemoteError;
  }
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  ++open_group.depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (--open_group.depth > 0 || open_group.operation == nullptr) return ncclSuccess;
  return enqueue(std::move(open_group.operation), open_group.stream);
}

ncclResult_t ncclSend(const void* in, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return message(true, in, count, type, peer, comm, stream);
}
ncclResult_t ncclRecv(void* out, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return message(false, out, count, type, peer, comm, stream);
}

ncclResult_t ncclAllGather(const void* in, void* out, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  auto operation = make_operation(comm);
  const std::size_t bytes = count * type_of(type).bytes;
  auto* const all = static_cast<std::byte*>(out);
  for (int peer = 0; peer < comm->size; ++peer) {
    add(*operation, true, peer, in, bytes);
    add(*operation, false, peer, all + static_cast<std::size_t>(peer) * bytes, bytes);
  }
  return enqueue(std::move(operation), stream);
}

ncclResult_t ncclBroadcast(const void* in, void* out, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  auto operation = make_operation(comm);
  const std::size_t bytes = count * type_of(type).bytes;
  for (int peer = 0; peer < comm->size && comm->rank == root; ++peer) {
    if (peer != root || in != out) add(*operation, true, peer, in, bytes);
  }
  if (comm->rank != root || in != out) add(*operation, false, root, out, bytes);
  return enqueue(std::move(operation), stream);
}

ncclResult_t ncclAllReduce(const void* in, void* out, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return reduction(in, out, count, type, op, -1, comm, stream);
}
ncclResult_t ncclReduce(const void* in, void* out, size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  return reduction(in, out, count, type, op, root, comm, stream);
}

ncclResult_t ncclReduceScatter(const void* in, void* out, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  // Each rank's block is sent to it alone.
  const Type element = type_of(type);
  if (element.reduce == nullptr) return ncclInvalidArgument;
  auto operation = make_operation(comm);
  operation->reduce = element.reduce;
  operation->divide = element.divide;
  operation->op = op;
  operation->count = count;
  operation->bytes = count * element.bytes;
  const auto* const blocks = static_cast<const std::byte*>(in);
  const auto block = [&](int rank) {
    return blocks + static_cast<std::size_t>(rank) * operation->bytes;
  };
  operation->own = block(comm->rank);
  operation->out = out;
  operation->arrived.resize(static_cast<std::size_t>(comm->size));
  for (int peer = 0; peer < comm->size; ++peer) {
    if (peer == comm->rank) continue;
    add(*operation, true, peer, block(peer), operation->bytes);
    auto& place = operation->arrived[static_cast<std::size_t>(peer)];
    place.resize(operation->bytes);
    add(*operation, false, peer, place.data(), place.size());
  }
  return enqueue(std::move(operation), stream);
}

}  // extern "C"
