#include "tests/trace/cupti_stand_in.hpp"

#include <cupti.h>
#include <pthread.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace {

constexpr std::uint64_t kEpoch = 1'000'000'000;  // CUPTI has a clock of its own

struct State {
  CUpti_BuffersCallbackRequestFunc request = nullptr;
  CUpti_BuffersCallbackCompleteFunc complete = nullptr;
  std::set<std::uint32_t> kinds;
  std::set<std::pair<bool, CUpti_CallbackId>> functions;  // is of the driver, number
  CUpti_ActivityThreadIdType ids = CUPTI_ACTIVITY_THREAD_ID_TYPE_DEFAULT;
  std::uint32_t calls = 0;
  std::vector<std::vector<std::uint8_t>> records;
} state;

std::uint64_t now() {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                        std::chrono::steady_clock::now().time_since_epoch())
                                        .count()) -
         kEpoch;
}

template <class Record>
void keep(const Record& record) {
  std::vector<std::uint8_t> bytes(sizeof record);
  std::memcpy(bytes.data(), &record, sizeof record);
  state.records.push_back(std::move(bytes));
}

template <class Record>
void keep_work(Record record, CUpti_ActivityKind kind, std::uint64_t submitted) {
  record.kind = kind;
  record.start = submitted + 1000;
  record.end = submitted + 2000;
  record.deviceId = 0;
  record.streamId = 7;
  record.correlationId = state.calls;
  if (state.kinds.contains(kind)) keep(record);
}

void keep_call(bool is_driver, CUpti_CallbackId function, std::uint64_t at) {
  if (!state.functions.contains({is_driver, function})) return;
  CUpti_ActivityAPI record{};
  record.kind = is_driver ? CUPTI_ACTIVITY_KIND_DRIVER : CUPTI_ACTIVITY_KIND_RUNTIME;
  record.cbid = function;
  record.start = at;
  record.end = at + 500;
  record.threadId = state.ids == CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM
                        ? static_cast<std::uint32_t>(::gettid())
                        : static_cast<std::uint32_t>(::pthread_self());
  record.correlationId = state.calls;
  keep(record);
}

}  // namespace

void cupti_stand_in_call(StandInCall call) {
  const std::uint64_t at = now();
  ++state.calls;
  switch (call) {
    case StandInCall::launch: {
      CUpti_ActivityKernel9 kernel{};
      kernel.name = "a_kernel";
      keep_work(kernel, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, at);
      keep_call(false, CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000, at);
      break;
    }
    case StandInCall::driver_launch: {
      CUpti_ActivityKernel9 kernel{};
      kernel.name = "compiled";
      keep_call(true, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel, at);
      keep_work(kernel, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, at);
      break;
    }
    case StandInCall::copy: {
      CUpti_ActivityMemcpy5 copy{};
      copy.copyKind = CUPTI_ACTIVITY_MEMCPY_KIND_HTOD;
      keep_call(false, CUPTI_RUNTIME_TRACE_CBID_cudaMemcpyAsync_v3020, at);
      keep_work(copy, CUPTI_ACTIVITY_KIND_MEMCPY, at);
      break;
    }
    case StandInCall::fill:
      keep_call(false, CUPTI_RUNTIME_TRACE_CBID_cudaMemsetAsync_v3020, at);
      keep_work(CUpti_ActivityMemset4{}, CUPTI_ACTIVITY_KIND_MEMSET, at);
      break;
    case StandInCall::peer_copy:
      keep_call(false, CUPTI_RUNTIME_TRACE_CBID_cudaMemcpyPeerAsync_v4000, at);
      keep_work(CUpti_ActivityMemcpyPtoP4{}, CUPTI_ACTIVITY_KIND_MEMCPY2, at);
      break;
    case StandInCall::other:
      keep_call(false, CUPTI_RUNTIME_TRACE_CBID_cudaEventQuery_v3020, at);
      break;
  }
}

bool cupti_stand_in_records(std::uint32_t kind) { return state.kinds.contains(kind); }
int cupti_stand_in_functions() { return static_cast<int>(state.functions.size()); }

CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc request,
                                           CUpti_BuffersCallbackCompleteFunc complete) {
  state.request = request;
  state.complete = complete;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind) {
  state.kinds.insert(kind);
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityDisable(CUpti_ActivityKind kind) {
  state.kinds.erase(kind);
  return CUPTI_SUCCESS;
}
CUptiResult cuptiSetThreadIdType(CUpti_ActivityThreadIdType type) {
  state.ids = type;
  return CUPTI_SUCCESS;
}
static void enable(bool is_driver, CUpti_CallbackId function, std::uint8_t on) {
  if (on != 0) {
    state.functions.insert({is_driver, function});
  } else {
    state.functions.erase({is_driver, function});
  }
}
CUptiResult cuptiActivityEnableRuntimeApi(CUpti_CallbackId function, std::uint8_t on) {
  enable(false, function, on);
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityEnableDriverApi(CUpti_CallbackId function, std::uint8_t on) {
  enable(true, function, on);
  return CUPTI_SUCCESS;
}
CUptiResult cuptiGetTimestamp(std::uint64_t* timestamp) {
  *timestamp = now();
  return CUPTI_SUCCESS;
}
// One record a buffer.
CUptiResult cuptiActivityFlushAll(std::uint32_t) {
  for (const std::vector<std::uint8_t>& record : state.records) {
    std::uint8_t* buffer = nullptr;
    std::size_t bytes = 0;
    std::size_t most = 0;
    state.request(&buffer, &bytes, &most);
    std::memcpy(buffer, record.data(), record.size());
    state.complete(nullptr, 0, buffer, bytes, record.size());
  }
  state.records.clear();
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityGetNextRecord(std::uint8_t* buffer, std::size_t, CUpti_Activity** record) {
  if (*record != nullptr) {
    *record = nullptr;
    return CUPTI_ERROR_MAX_LIMIT_REACHED;
  }
  *record = reinterpret_cast<CUpti_Activity*>(buffer);
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext, std::uint32_t, std::size_t* dropped) {
  *dropped = 0;
  return CUPTI_SUCCESS;
}
