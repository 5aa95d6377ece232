// CUPTI: its records of activities, and its functions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/files/loaded_library.hpp"

namespace gantry::profiling {

// Note [CUPTI without its header]
// CUPTI comes with the toolkit's tools, which many machines with a driver lack, so it is loaded at
// the first trace. New versions of CUPTI add members only at the end of its records. The structures
// below are the common beginning in CUDA 12 and 13.
enum Kind : std::uint32_t {
  kCopy = 1,
  kFill = 2,
  kDriverCall = 4,
  kRuntimeCall = 5,
  kKernel = 10,
  kPeerCopy = 22
};

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
  std::uint32_t correlation;  // not of a copy between devices
};
static_assert(offsetof(MoveRecord, bytes) == 8 && offsetof(MoveRecord, correlation) == 44);
struct PeerCopyRecord {
  std::uint32_t move[11];  // as a MoveRecord until the stream
  std::uint32_t ends[4];
  std::uint32_t correlation;
};
static_assert(offsetof(PeerCopyRecord, correlation) == 60);
// A call of CUDA's runtime or driver.
struct CallRecord {
  std::uint32_t kind;
  std::uint32_t function;
  std::uint64_t start;
  std::uint64_t end;
  std::uint32_t process;
  std::uint32_t thread;
  std::uint32_t correlation;
};
static_assert(offsetof(CallRecord, thread) == 28 && offsetof(CallRecord, correlation) == 32);

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

// Functions that older versions of CUPTI lack. Without them a trace has no arrows.
struct CuptiCalls {
  int (*set_thread_id_type)(std::uint32_t) = nullptr;
  int (*enable_runtime)(std::uint32_t function, std::uint8_t enable) = nullptr;
  int (*enable_driver)(std::uint32_t function, std::uint8_t enable) = nullptr;
  [[nodiscard]] bool has_all() const {
    return set_thread_id_type != nullptr && enable_runtime != nullptr && enable_driver != nullptr;
  }
};

// The library, which is loaded by the first call.
[[nodiscard]] const LoadedLibrary<Cupti>& cupti();
[[nodiscard]] const CuptiCalls& cupti_calls();

}  // namespace gantry::profiling
