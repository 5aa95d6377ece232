#include <cuda_profiler_api.h>
#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <string>

#include "core/trace_log.hpp"
#include "device/cuda/cuda_check.hpp"
#include "device/cuda/cupti.hpp"
#include "device/drivers/profiling.hpp"

namespace gantry {
namespace {

using namespace profiling;

// From CUPTI's clock to now_ns().
std::int64_t clock_offset = 0;
constexpr std::uint32_t kKinds[] = {kCopy, kFill, kKernel, kPeerCopy};

// Note [Calls that submit]
// CUPTI gives device work and the call of CUDA that submitted it one number. The call's thread and
// time find the host event that an arrow begins at. Only the calls below are recorded: programs
// make many others. Each has a second number for programs with a default stream per thread.
constexpr std::uint32_t kRuntimeCalls[] = {
    41,  225,                      // cudaMemcpyAsync
    51,  235,                      // cudaMemsetAsync
    161,                           // cudaMemcpyPeerAsync
    211, 214, 430, 431, 505, 506,  // cudaLaunchKernel, cudaLaunchKernelExC
    311, 312,                      // cudaGraphLaunch
    482, 483, 509, 510,            // cudaMemcpyBatchAsync
};
constexpr std::uint32_t kDriverCalls[] = {307, 442, 652, 653};  // cuLaunchKernel, cuLaunchKernelEx

// Lets CUPTI record the calls. A function that this version lacks is no error.
void record_calls(bool record) noexcept {
  const CuptiCalls& calls = cupti_calls();
  if (!calls.has_all()) return;
  constexpr std::uint32_t kSystemIds = 1;
  if (record && calls.set_thread_id_type(kSystemIds) != 0) return;
  for (const std::uint32_t call : kRuntimeCalls) {
    static_cast<void>(calls.enable_runtime(call, record ? 1 : 0));
  }
  for (const std::uint32_t call : kDriverCalls) {
    static_cast<void>(calls.enable_driver(call, record ? 1 : 0));
  }
}

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
                           std::uint64_t start, std::uint64_t end, std::uint32_t call) {
  return {.name = std::move(name),
          .category = "kernel",
          .track = {.device = static_cast<int>(device), .number = stream},
          .begin_ns = static_cast<std::int64_t>(start) + clock_offset,
          .duration_ns = static_cast<std::int64_t>(end - start),
          .call = call};
}

void add(const Record& record) {
  if (record.kind == kKernel) {
    const auto& kernel = reinterpret_cast<const KernelRecord&>(record);
    auto event = event_of(kernel.name != nullptr ? kernel.name : "kernel", kernel.device,
                          kernel.stream, kernel.start, kernel.end, kernel.correlation);
    event.arguments = {
        {"grid", fmt::format("{} {} {}", kernel.grid[0], kernel.grid[1], kernel.grid[2])},
        {"block", fmt::format("{} {} {}", kernel.block[0], kernel.block[1], kernel.block[2])},
        {"registers", kernel.registers}};
    trace::TraceLog::instance().add(std::move(event));
  } else if (record.kind == kCopy || record.kind == kFill || record.kind == kPeerCopy) {
    const auto& move = reinterpret_cast<const MoveRecord&>(record);
    const std::uint32_t call = record.kind == kPeerCopy
                                   ? reinterpret_cast<const PeerCopyRecord&>(record).correlation
                                   : move.correlation;
    auto event = event_of(name_of_move(move), move.device, move.stream, move.start, move.end, call);
    event.arguments = {{"bytes", move.bytes}};
    trace::TraceLog::instance().add(std::move(event));
  } else if (record.kind == kRuntimeCall || record.kind == kDriverCall) {
    const auto& call = reinterpret_cast<const CallRecord&>(record);
    trace::TraceLog::instance().add_submission(
        call.correlation,
        {.thread = call.thread, .at_ns = static_cast<std::int64_t>(call.start) + clock_offset});
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
  record_calls(true);
  return {};
}

void stop_device_activity() noexcept {
  if (!cupti().problem().empty()) return;
  const Cupti& functions = cupti().functions();
  record_calls(false);
  for (const std::uint32_t kind : kKinds) static_cast<void>(functions.disable(kind));
  constexpr std::uint32_t kForced = 1;  // also buffers that are not full
  static_cast<void>(functions.flush(kForced));
}

}  // namespace gantry
