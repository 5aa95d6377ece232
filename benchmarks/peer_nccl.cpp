// Measures NCCL as gantry-bench measures gantry, with the same options, columns, checks and JSON:
// one rank per GPU, started by mpirun. The libnccl that the loader finds is measured, so
// LD_LIBRARY_PATH chooses another one.
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <mpi.h>
#include <nccl.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gantry/core/error.hpp>

#include "collectives/nccl/library.hpp"
#include "collectives/selection/selector.hpp"
#include "tools/bench/options.hpp"
#include "tools/bench/pattern.hpp"
#include "tools/bench/rank_slice.hpp"
#include "tools/bench/results.hpp"

#define GANTRY_NCCL_CHECK(call, doing) ::gantry::check_nccl((call), #call, (doing))

namespace gantry::bench {
namespace {

constexpr int kWrong = 1;
constexpr int kOwnError = 2;

void check_cuda(cudaError_t status, const char* doing) {
  if (status == cudaSuccess) return;
  throw Error(fmt::format("Failed {}: {}", doing, cudaGetErrorString(status)));
}

// The ranks that mpirun started.
class World {
 public:
  World() {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
    MPI_Comm host = MPI_COMM_NULL;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
    MPI_Comm_rank(host, &local_rank_);
    MPI_Comm_free(&host);
  }
  int rank() const { return rank_; }
  int size() const { return size_; }
  int local_rank() const { return local_rank_; }

  void barrier() const { MPI_Barrier(MPI_COMM_WORLD); }
  bool all(bool mine) const {
    const int value = mine ? 1 : 0;
    int result = 0;
    MPI_Allreduce(&value, &result, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    return result == 1;
  }
  std::int64_t total(std::int64_t mine) const {
    std::int64_t result = 0;
    MPI_Allreduce(&mine, &result, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
    return result;
  }
  std::vector<double> maximum(const std::vector<double>& mine) const {
    std::vector<double> result(mine.size());
    MPI_Allreduce(mine.data(), result.data(), static_cast<int>(mine.size()), MPI_DOUBLE, MPI_MAX,
                  MPI_COMM_WORLD);
    return result;
  }
  ncclUniqueId share(ncclUniqueId id) const {
    MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, MPI_COMM_WORLD);
    return id;
  }

 private:
  int rank_ = 0;
  int size_ = 1;
  int local_rank_ = 0;
};

// The functions that a libnccl of 2.27 or later has for symmetric memory; the one at hand may be
// older.
struct WindowCalls {
  ncclResult_t (*allocate)(void** memory, std::size_t bytes) = nullptr;
  ncclResult_t (*free)(void* memory) = nullptr;
  ncclResult_t (*add)(ncclComm_t comm, void* memory, std::size_t bytes, void** window,
                      int flags) = nullptr;
  ncclResult_t (*remove)(ncclComm_t comm, void* window) = nullptr;

  // The loaded libnccl's, if it has them.
  static std::optional<WindowCalls> find() {
    WindowCalls calls;
    const auto load = [](auto& function, const char* name) {
      function =
          reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(RTLD_DEFAULT, name));
      return function != nullptr;
    };
    if (!load(calls.allocate, "ncclMemAlloc") || !load(calls.free, "ncclMemFree") ||
        !load(calls.add, "ncclCommWindowRegister") ||
        !load(calls.remove, "ncclCommWindowDeregister")) {
      return std::nullopt;
    }
    return calls;
  }
};

constexpr int kSymmetricWindow = 1;  // NCCL_WIN_COLL_SYMMETRIC
constexpr std::size_t kWindowAlignment = 2 << 20;

// Device memory of the same size on every rank; a symmetric window if it was given window calls.
class Buffer {
 public:
  Buffer(ncclComm_t comm, std::size_t bytes, const std::optional<WindowCalls>& windows)
      : comm_(comm), windows_(windows) {
    bytes = (bytes + kWindowAlignment - 1) / kWindowAlignment * kWindowAlignment;
    if (!windows_) {
      check_cuda(cudaMalloc(&data_, bytes), "allocating a buffer");
      return;
    }
    GANTRY_NCCL_CHECK(windows_->allocate(&data_, bytes), "allocating a buffer");
    GANTRY_NCCL_CHECK(windows_->add(comm_, data_, bytes, &window_, kSymmetricWindow),
                      "registering a window");
  }
  ~Buffer() {
    if (std::uncaught_exceptions() > 0) return;  // the process ends, and peers would be waited for
    if (!windows_) {
      (void)cudaFree(data_);
      return;
    }
    if (window_ != nullptr) (void)windows_->remove(comm_, window_);
    (void)windows_->free(data_);
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  void* data() const { return data_; }
  // False if NCCL has no symmetric memory on this machine.
  bool has_window() const { return window_ != nullptr; }

 private:
  ncclComm_t comm_;
  std::optional<WindowCalls> windows_;
  void* data_ = nullptr;
  void* window_ = nullptr;
};

// Calls that were captured into a graph.
class Graph {
 public:
  template <class Submit>
  Graph(cudaStream_t stream, Submit submit) {
    check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capturing");
    submit();
    cudaGraph_t graph = nullptr;
    check_cuda(cudaStreamEndCapture(stream, &graph), "capturing");
    const cudaError_t status = cudaGraphInstantiate(&executable_, graph, 0);
    (void)cudaGraphDestroy(graph);
    check_cuda(status, "making a graph");
  }
  ~Graph() { (void)cudaGraphExecDestroy(executable_); }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  void launch(cudaStream_t stream) const {
    check_cuda(cudaGraphLaunch(executable_, stream), "launching a graph");
  }

 private:
  cudaGraphExec_t executable_ = nullptr;
};

// One NCCL communicator of all ranks, and a stream for it.
class Nccl {
 public:
  explicit Nccl(const World& world) : world_(world) {
    int devices = 0;
    check_cuda(cudaGetDeviceCount(&devices), "counting devices");
    // A process may have been shown its own device only; NCCL refuses what two ranks share.
    const int device = world.local_rank() % std::max(1, devices);
    check_cuda(cudaSetDevice(device), "choosing a device");
    check_cuda(cudaGetDeviceProperties(&properties_, device), "asking for properties");
    int least = 0;
    int greatest = 0;
    check_cuda(cudaDeviceGetStreamPriorityRange(&least, &greatest), "asking for priorities");
    check_cuda(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, greatest),
               "making a stream");
    ncclUniqueId id{};
    if (world.rank() == 0) GANTRY_NCCL_CHECK(ncclGetUniqueId(&id), "making an NCCL id");
    GANTRY_NCCL_CHECK(ncclCommInitRank(&comm_, world.size(), world.share(id), world.rank()),
                      "starting NCCL");
  }
  ~Nccl() {
    (void)(std::uncaught_exceptions() > 0 ? ncclCommAbort(comm_) : ncclCommDestroy(comm_));
    (void)cudaStreamDestroy(stream_);
  }
  Nccl(const Nccl&) = delete;
  Nccl& operator=(const Nccl&) = delete;

  ncclComm_t comm() const { return comm_; }
  cudaStream_t stream() const { return stream_; }
  std::string device_name() const { return properties_.name; }
  void wait() const { check_cuda(cudaStreamSynchronize(stream_), "waiting for a stream"); }

  // Enqueues one call; `in` and `out` are large enough for every rank's part.
  void submit(const Case& what, void* in, void* out) const;

 private:
  // Grouped messages of one part each; a peer is passed over where a function says so.
  template <class Sends, class Receives>
  void exchange(const Case& what, const void* in, void* out, Sends sends, Receives receives) const;

  const World& world_;
  cudaDeviceProp properties_{};
  cudaStream_t stream_ = nullptr;
  ncclComm_t comm_ = nullptr;
};

template <class Sends, class Receives>
void Nccl::exchange(const Case& what, const void* in, void* out, Sends sends,
                    Receives receives) const {
  const std::size_t bytes = static_cast<std::size_t>(what.count) * element_size(what.dtype);
  GANTRY_NCCL_CHECK(ncclGroupStart(), "opening a group");
  for (int peer = 0; peer < world_.size(); ++peer) {
    if (const int part = sends(peer); part >= 0) {
      GANTRY_NCCL_CHECK(ncclSend(static_cast<const char*>(in) + bytes * part, bytes, ncclUint8,
                                 peer, comm_, stream_),
                        "sending");
    }
    if (const int part = receives(peer); part >= 0) {
      GANTRY_NCCL_CHECK(
          ncclRecv(static_cast<char*>(out) + bytes * part, bytes, ncclUint8, peer, comm_, stream_),
          "receiving");
    }
  }
  GANTRY_NCCL_CHECK(ncclGroupEnd(), "closing a group");
}

void Nccl::submit(const Case& what, void* in, void* out) const {
  const auto count = static_cast<std::size_t>(what.count);
  const std::size_t bytes = count * element_size(what.dtype);
  const bool root = world_.rank() == what.root;
  const auto to_all = [](int peer) { return peer; };
  const auto none = [](int) { return -1; };
  const auto first_to_root = [&](int peer) { return peer == what.root ? 0 : -1; };
  switch (what.kind) {
    case CollectiveKind::barrier:
      // NCCL has none; a reduction of one number is the shortest call that waits for all.
      GANTRY_NCCL_CHECK(ncclAllReduce(out, out, 1, ncclInt32, ncclSum, comm_, stream_), "waiting");
      return;
    case CollectiveKind::all_reduce:
      GANTRY_NCCL_CHECK(ncclAllReduce(out, out, count, nccl_dtype(what.dtype),
                                      nccl_op(what.op, what.dtype), comm_, stream_),
                        "reducing over all ranks");
      return;
    case CollectiveKind::reduce:
      GANTRY_NCCL_CHECK(ncclReduce(out, out, count, nccl_dtype(what.dtype),
                                   nccl_op(what.op, what.dtype), what.root, comm_, stream_),
                        "reducing to one rank");
      return;
    case CollectiveKind::broadcast:
      GANTRY_NCCL_CHECK(ncclBroadcast(out, out, bytes, ncclUint8, what.root, comm_, stream_),
                        "broadcasting");
      return;
    case CollectiveKind::all_gather:
      GANTRY_NCCL_CHECK(ncclAllGather(in, out, bytes, ncclUint8, comm_, stream_),
                        "gathering from all ranks");
      return;
    case CollectiveKind::reduce_scatter:
      GANTRY_NCCL_CHECK(ncclReduceScatter(in, out, count, nccl_dtype(what.dtype),
                                          nccl_op(what.op, what.dtype), comm_, stream_),
                        "reducing and scattering");
      return;
    case CollectiveKind::gather:
      return root ? exchange(what, in, out, first_to_root, to_all)
                  : exchange(what, in, out, first_to_root, none);
    case CollectiveKind::scatter:
      return root ? exchange(what, in, out, to_all, first_to_root)
                  : exchange(what, in, out, none, first_to_root);
    case CollectiveKind::all_to_all:
      return exchange(what, in, out, to_all, to_all);
    case CollectiveKind::send:
    case CollectiveKind::recv:
      const Pair pair = pair_of(world_.rank(), world_.size());
      const auto to_peer = [&](int peer) { return peer == pair.peer ? 0 : -1; };
      return pair.sends ? exchange(what, in, out, to_peer, none)
                        : exchange(what, in, out, none, to_peer);
  }
  __builtin_unreachable();
}

void fill(const Case& what, const World& world, void* in, void* out) {
  const Parts parts = parts_of(what, world.rank(), world.size());
  const std::size_t part_bytes = static_cast<std::size_t>(what.count) * element_size(what.dtype);
  const bool in_place = is_in_place(what.kind);
  const int source_parts = in_place ? parts.output : parts.input;
  if (parts.output > 0) {
    check_cuda(cudaMemset(out, 1, part_bytes * parts.output), "filling a buffer");
  }
  std::vector<std::byte> host(part_bytes * static_cast<std::size_t>(source_parts));
  write_pattern(source_pattern(world.rank(), what.dtype), what.dtype, 0, source_parts * what.count,
                host.data());
  check_cuda(cudaMemcpy(in_place ? out : in, host.data(), host.size(), cudaMemcpyHostToDevice),
             "filling a buffer");
  check_cuda(cudaDeviceSynchronize(), "filling a buffer");
}

std::int64_t count_wrong(const Case& what, const World& world, const void* out) {
  const Parts parts = parts_of(what, world.rank(), world.size());
  std::vector<std::byte> host(static_cast<std::size_t>(parts.output * what.count) *
                              element_size(what.dtype));
  check_cuda(cudaMemcpy(host.data(), out, host.size(), cudaMemcpyDeviceToHost), "reading a buffer");
  // NCCL's order of a sum depends on the size and on the algorithm that it takes.
  const std::int64_t mine = count_wrong_output(what, world.rank(), world.size(), host.data(),
                                               order_tolerance(world.size(), what.dtype, what.op));
  return world.total(mine);
}

// Why NCCL cannot run `what` on its elements, or an empty text.
std::string missing(const Case& what) {
  if (!reduces(what.kind)) return {};
  if (!nccl_supports(what.op, what.dtype) ||
      (what.op == ReduceOp::avg && !is_floating_point(what.dtype))) {
    return fmt::format("NCCL has no {} of {}", name(what.op), name(what.dtype));
  }
  return {};
}

Row run_case(const Case& what, const Nccl& nccl, const World& world, const Options& options,
             const std::string& variant, void* in, void* out) {
  Row row = row_of(what, variant, "nccl");
  row.note = missing(what);
  if (!row.note.empty()) return row;
  const auto submit = [&] { nccl.submit(what, in, out); };
  fill(what, world, in, out);
  submit();
  nccl.wait();
  if (options.check && what.kind != CollectiveKind::barrier) {
    row.wrong = count_wrong(what, world, out);
    if (*row.wrong != 0) return row;
  }
  std::optional<Graph> graph;
  if (what.graph_calls > 0) {
    graph.emplace(nccl.stream(), [&] {
      for (int i = 0; i < what.graph_calls; ++i) submit();
    });
  }
  TimedCalls timed;
  timed.begin = [&] { world.barrier(); };
  timed.wait = [&] { nccl.wait(); };
  timed.maximum = [&](const std::vector<double>& mine) { return world.maximum(mine); };
  if (graph) {
    timed.calls_at_once = what.graph_calls;
    timed.launch = [&] { graph->launch(nccl.stream()); };
  } else {
    timed.launch = submit;
  }
  row.set_timing(measure(timed, options.repetitions), bus_factor(what.kind, world.size()));
  return row;
}

// All sizes of one operation with one kind of memory.
template <class Add>
void run_operation(CollectiveKind kind, const Nccl& nccl, const World& world,
                   const Options& options, const std::string& variant, Add add) {
  const std::vector<Case> cases = cases_of(options, kind, world.size());
  std::int64_t greatest = 0;
  for (const Case& what : cases) greatest = std::max(greatest, what.bytes);
  std::optional<WindowCalls> windows;
  if (variant == "symmetric") windows = WindowCalls::find();
  const std::size_t bytes = std::max<std::size_t>(1, static_cast<std::size_t>(greatest));
  const Buffer in(nccl.comm(), bytes, windows);
  const Buffer out(nccl.comm(), bytes, windows);
  const bool usable = variant == "default" || (in.has_window() && out.has_window());
  if (!world.all(usable)) {
    Row row = row_of(cases.front(), variant, "nccl");
    row.note = "this NCCL has no symmetric windows here";
    add(std::move(row));
    return;
  }
  check_cuda(cudaMemset(out.data(), 0, bytes), "filling a buffer");
  for (Case what : cases) {
    for (const bool graph : {false, true}) {
      if (graph ? options.graph_calls == 0 : !options.eager) continue;
      what.graph_calls = graph ? options.graph_calls : 0;
      add(run_case(what, nccl, world, options, variant, in.data(), out.data()));
    }
  }
  world.barrier();  // before a rank's memory goes
}

std::string nccl_version() {
  int code = 0;
  GANTRY_NCCL_CHECK(ncclGetVersion(&code), "asking for NCCL's version");
  return fmt::format("{}.{}.{}", code / 10000, code / 100 % 100, code % 100);
}

int run(const Options& options, const std::vector<std::string>& variants) {
  const World world;
  if (options.root >= world.size()) {
    throw InvalidArgument(
        fmt::format("--root: expected a rank below {}, but got {}", world.size(), options.root));
  }
  std::vector<Report> others;
  for (const std::string& path : options.compare) others.push_back(read_report(path));
  const Nccl nccl(world);
  Report report{.library = "NCCL " + nccl_version(),
                .device = nccl.device_name(),
                .ranks = world.size(),
                .launched_by = "mpi",
                .rows = {}};
  const Table table(options, world.rank() == 0);
  table.print(head_text(report));
  for (const std::string& variant : variants) {
    for (const CollectiveKind kind : options.operations) {
      run_operation(kind, nccl, world, options, variant, [&](Row row) {
        table.print(row_text(row));
        report.rows.push_back(std::move(row));
      });
    }
  }
  table.print(tail_text(report));
  if (world.rank() == 0) write_results(options, report, others);
  return wrong_elements(report) == 0 ? 0 : kWrong;
}

// Takes --variant LIST from the arguments; the rest is as gantry-bench has it.
std::vector<std::string> take_variants(std::vector<std::string>& arguments) {
  constexpr std::string_view kOption = "--variant=";
  std::vector<std::string> variants;
  for (auto at = arguments.begin(); at != arguments.end();) {
    if (!at->starts_with(kOption)) {
      ++at;
      continue;
    }
    const std::string value = at->substr(kOption.size());
    if (value != "default" && value != "symmetric") {
      throw InvalidArgument(
          fmt::format("--variant: expected default or symmetric, but got '{}'", value));
    }
    variants.push_back(value);
    at = arguments.erase(at);
  }
  if (variants.empty()) variants = {"default", "symmetric"};
  return variants;
}

Options read_options(std::vector<std::string> arguments, std::vector<std::string>& variants) {
  variants = take_variants(arguments);
  Options options = parse_options(arguments);
  if (!options.forms.empty() || options.blocks || options.devices > 1) {
    throw InvalidArgument("expected neither --comm nor --blocks nor several --gpus");
  }
  return options;
}

}  // namespace
}  // namespace gantry::bench

int main(int argc, char** argv) {
  using namespace gantry::bench;
  Options options;
  std::vector<std::string> variants;
  try {
    options = read_options({argv + 1, argv + argc}, variants);
  } catch (const std::exception& error) {
    fmt::print(stderr, "peer_nccl: {}\n", error.what());
    return kOwnError;
  }
  if (!options.text.empty()) {
    fmt::print(
        "As gantry-bench, started by mpirun with one process per GPU, and\n"
        "  --variant=default    plain device memory\n"
        "  --variant=symmetric  symmetric windows (both are measured if neither is given)\n\n"
        "{}",
        options.text);
    return 0;
  }
  gantry::prepare_nccl_environment();
  MPI_Init(&argc, &argv);
  try {
    const int code = run(options, variants);
    MPI_Finalize();
    return code;
  } catch (const std::exception& error) {
    // The other ranks wait for this one.
    fmt::print(stderr, "peer_nccl: {}\n", error.what());
    MPI_Abort(MPI_COMM_WORLD, kOwnError);
    return kOwnError;
  }
}
