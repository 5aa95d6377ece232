#include <cuda_profiler_api.h>
#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <string>

#include "core/files/loaded_library.hpp"
#include "core/trace_log.hpp"
#include "device/cuda/cuda_check.hpp"
#include "device/drivers/profiling.hpp"

namespace gantry {
namespace {

// Note [CUPTI without its header]
// CUPTI comes with the toolkit's tools, which many machines with a driver lack, so it is loaded at
// the first trace. New versions of CUPTI add members only at the end of its records. The structures
// below are the common beginning in CUDA 12 and 13.
enum Kind : std::uint32_t { kCopy = 1, kFill = 2, kKernel = 10, kPeerCopy = 22 };

struct Record {
  std::uint32_t kind;
};
struct KernelRecord {
  std::uint32_t kind;
  std::uint8_t caches[2];
  std::uint16_t registers;
  std::uint32_t partitioned[2];
  std::uint64_t start;
  std::uint64_t end;
  std::uint64_t completed;
  std::uint32_t device;
  std::uint32_t context;
  std::uint32_t stream;
  std::int32_t grid[3];
  std::int32_t block[3];
  std::int32_t shared_bytes[2];
  std::uint32_t local_bytes[2];
  std::uint32_t correlation;
  std::int64_t grid_id;
  const char* name;
};
static_assert(offsetof(KernelRecord, start) == 16 && offsetof(KernelRecord, stream) == 48 &&
              offsetof(KernelRecord, name) == 104);
// Of copies, copies between devices, and fills.
struct MoveRecord {
  std::uint32_t kind;
  std::uint8_t copy_kind;  // of a fill: its value
  std::uint8_t others[3];
  std::uint64_t bytes;
  std::uint64_t start;
  std::uint64_t end;
  std::uint32_t device;
  std::uint32_t context;
  std::uint32_t stream;
};
static_assert(offsetof(MoveRecord, bytes) == 8 && offsetof(MoveRecord, stream) == 40);

using BufferRequest = void (*)(std::uint8_t** buffer, std::size_t* bytes, std::size_t* most);
using BufferDone = void (*)(void* context, std::uint32_t stream, std::uint8_t* buffer,
                            std::size_t bytes, std::size_t used);

struct Cupti : LibraryFunctions {
  using LibraryFunctions::LibraryFunctions;
  int (*register_callbacks)(BufferRequest, BufferDone) = bind("cuptiActivityRegisterCallbacks");
  int (*enable)(std::uint32_t) = bind("cuptiActivityEnable");
  int (*disable)(std::uint32_t) = bind("cuptiActivityDisable");
  int (*flush)(std::uint32_t) = bind("cuptiActivityFlushAll");
  int (*next_record)(std::uint8_t*, std::size_t, Record**) = bind("cuptiActivityGetNextRecord");
  int (*dropped)(void*, std::uint32_t, std::size_t*) = bind("cuptiActivityGetNumDroppedRecords");
  int (*timestamp)(std::uint64_t*) = bind("cuptiGetTimestamp");
};

const LoadedLibrary<Cupti>& cupti() {
  static const auto& loaded = *new LoadedLibrary<Cupti>(
      SharedLibrary({"libcupti.so." GANTRY_CUDA_MAJOR,
                     GANTRY_CUPTI_FOLDER "/libcupti.so." GANTRY_CUDA_MAJOR, "libcupti.so"},
                    "install CUPTI, or add its folder to LD_LIBRARY_PATH"));
  return loaded;
}

// From CUPTI's clock to now_ns().
std::int64_t clock_offset = 0;
constexpr std::uint32_t kKinds[] = {kCopy, kFill, kKernel, kPeerCopy};

const char* name_of_move(const MoveRecord& record) {
  if (record.kind == kFill) return "memset";
  if (record.kind == kPeerCopy) return "memcpy peer to peer";
  switch (record.copy_kind) {
    case 1:
      return "memcpy host to device";
    case 2:
      return "memcpy device to host";
    case 8:
      return "memcpy device to device";
    default:
      return "memcpy";
  }
}

trace::TraceEvent event_of(std::string name, std::uint32_t device, std::uint32_t stream,
                           std::uint64_t start, std::uint64_t end) {
  return {.name = std::move(name),
          .category = "kernel",
          .track = {.device = static_cast<int>(device), .number = stream},
          .begin_ns = static_cast<std::int64_t>(start) + clock_offset,
          .duration_ns = static_cast<std::int64_t>(end - start)};
}

void add(const Record& record) {
  if (record.kind == kKernel) {
    const auto& kernel = reinterpret_cast<const KernelRecord&>(record);
    auto event = event_of(kernel.name != nullptr ? kernel.name : "kernel", kernel.device,
                          kernel.stream, kernel.start, kernel.end);
    event.arguments = {
        {"grid", fmt::format("{} {} {}", kernel.grid[0], kernel.grid[1], kernel.grid[2])},
        {"block", fmt::format("{} {} {}", kernel.block[0], kernel.block[1], kernel.block[2])},
        {"registers", kernel.registers}};
    trace::TraceLog::instance().add(std::move(event));
  } else if (record.kind == kCopy || record.kind == kFill || record.kind == kPeerCopy) {
    const auto& move = reinterpret_cast<const MoveRecord&>(record);
    auto event = event_of(name_of_move(move), move.device, move.stream, move.start, move.end);
    event.arguments = {{"bytes", move.bytes}};
    trace::TraceLog::instance().add(std::move(event));
  }
}

void give_buffer(std::uint8_t** buffer, std::size_t* bytes, std::size_t* most) {
  constexpr std::size_t kBytes = std::size_t{1} << 20;
  *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(8, kBytes));
  *bytes = *buffer != nullptr ? kBytes : 0;
  *most = 0;  // as many as fit
}

void take_buffer(void* context, std::uint32_t stream, std::uint8_t* buffer, std::size_t /*bytes*/,
                 std::size_t used) {
  const Cupti& functions = cupti().functions();
  try {
    Record* record = nullptr;
    while (functions.next_record(buffer, used, &record) == 0) add(*record);
  } catch (...) {  // without host memory the rest of the buffer is lost
    trace::TraceLog::instance().count_dropped(1);
  }
  std::size_t dropped = 0;
  if (functions.dropped(context, stream, &dropped) == 0) {
    trace::TraceLog::instance().count_dropped(dropped);
  }
  std::free(buffer);
}

}  // namespace

void switch_cuda_profilers(bool record) {
  if (record) {
    GANTRY_CUDA_CHECK(cudaProfilerStart(), "starting the profiler");
  } else {
    GANTRY_CUDA_CHECK(cudaProfilerStop(), "stopping the profiler");
  }
}

std::string start_device_activity() {
  if (!cupti().problem().empty()) return cupti().problem();
  const Cupti& functions = cupti().functions();
  std::uint64_t now = 0;
  if (const int status = functions.register_callbacks(give_buffer, take_buffer); status != 0) {
    return fmt::format("failed to register with CUPTI: error {}", status);
  }
  if (const int status = functions.timestamp(&now); status != 0) {
    return fmt::format("failed to read CUPTI's clock: error {}", status);
  }
  clock_offset = trace::now_ns() - static_cast<std::int64_t>(now);
  for (const std::uint32_t kind : kKinds) {
    if (const int status = functions.enable(kind); status != 0) {
      stop_device_activity();
      return fmt::format(
          "failed to enable CUPTI's activity {}: error {}; another profiler may use "
          "CUPTI",
          kind, status);
    }
  }
  return {};
}

void stop_device_activity() noexcept {
  if (!cupti().problem().empty()) return;
  const Cupti& functions = cupti().functions();
  for (const std::uint32_t kind : kKinds) static_cast<void>(functions.disable(kind));
  constexpr std::uint32_t kForced = 1;  // also buffers that are not full
  static_cast<void>(functions.flush(kForced));
}

}  // namespace gantry
