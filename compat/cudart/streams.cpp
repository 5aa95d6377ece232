#include "compat/cudart/streams.hpp"

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "compat/cudart/handles.hpp"
#include "compat/cudart/next.hpp"

namespace gantry::cudart_api {

namespace {

struct StreamFacts {
  int device = 0;
  unsigned flags = cudaStreamDefault;
  int priority = 0;
};

Handles<StreamFacts>& streams() {
  static auto* const all = new Handles<StreamFacts>;
  return *all;
}

bool is_blocking(const StreamFacts& facts) { return (facts.flags & cudaStreamNonBlocking) == 0; }

// Calls `visit` for each blocking stream of the device, none of which is destroyed meanwhile.
template <class Visit>
void for_each_blocking(int device, Visit visit) {
  streams().for_each([&](const void* handle, const StreamFacts& facts) {
    if (facts.device == device && is_blocking(facts)) {
      visit(NativeStream{device, const_cast<void*>(handle)});
    }
  });
}

// An event of a device, for as long as an order is made.
class OrderEvent {
 public:
  explicit OrderEvent(int device) : event_(driver().create_event(device, {})) {}
  ~OrderEvent() { driver().destroy_event(event_); }
  OrderEvent(const OrderEvent&) = delete;
  OrderEvent& operator=(const OrderEvent&) = delete;
  void record(NativeStream stream) const { driver().record_event(event_, stream); }
  void await(NativeStream stream) const { driver().wait_event(stream, event_); }

 private:
  NativeEvent event_;
};

// The work of one thread on its default stream of one device, up to an event.
struct PerThreadWork {
  explicit PerThreadWork(int device) : device(device), event(driver().create_event(device, {})) {}

  const int device;
  const NativeEvent event;
  std::atomic<bool> has_ended{false};  // the thread: it submits no more
};

// The work of all threads on their default streams. One handle names them all, so no thread can
// name another one's stream.
class PerThreadWorks {
 public:
  static PerThreadWorks& instance() {
    static auto* const all = new PerThreadWorks;
    return *all;
  }
  // Behind a submission of the calling thread.
  void note(int device) {
    static thread_local OfThread own;
    PerThreadWork* work = own.find(device);
    if (work == nullptr) {
      auto made = std::make_shared<PerThreadWork>(device);
      const std::lock_guard lock(mutex_);
      works_.push_back(made);
      work = made.get();
      own.works.push_back(std::move(made));
    }
    driver().record_event(work->event, {device, cudaStreamPerThread});
  }
  // Calls `visit(event)` for what is not complete on the device.
  template <class Visit>
  void for_each(int device, Visit visit) {
    const std::lock_guard lock(mutex_);
    std::erase_if(works_, [&](const std::shared_ptr<PerThreadWork>& work) {
      if (work->device != device) return false;
      const bool has_ended = work->has_ended.load(std::memory_order_acquire);
      if (!driver().event_reached(work->event)) {
        visit(work->event);
        return false;
      }
      if (has_ended) driver().destroy_event(work->event);
      return has_ended;
    });
  }

 private:
  struct OfThread {
    ~OfThread() {
      for (const auto& work : works) work->has_ended.store(true, std::memory_order_release);
    }
    [[nodiscard]] PerThreadWork* find(int device) const {
      const auto found = std::ranges::find(works, device, &PerThreadWork::device);
      return found == works.end() ? nullptr : found->get();
    }

    std::vector<std::shared_ptr<PerThreadWork>> works;
  };

  std::mutex mutex_;
  std::vector<std::shared_ptr<PerThreadWork>> works_;
};

StreamFacts facts_of(cudaStream_t stream) {
  if (const auto facts = streams().find(stream)) return *facts;
  return {.device = native_stream(stream).device};  // a default stream
}

void create(cudaStream_t* place, unsigned flags, int priority) {
  expect_place(place);
  expect((flags & ~static_cast<unsigned>(cudaStreamNonBlocking)) == 0, cudaErrorInvalidValue,
         "expected cudaStreamDefault or cudaStreamNonBlocking");
  const int device = driver().current_device();
  const Driver::PriorityRange range = driver().priority_range(device);
  priority = std::clamp(priority, range.greatest, range.least);
  const NativeStream made = driver().create_stream(device, priority);
  streams().add(made.handle, {.device = device, .flags = flags, .priority = priority});
  *place = static_cast<cudaStream_t>(made.handle);
}

void create_plain(cudaStream_t* place) { create(place, cudaStreamDefault, 0); }
void create_with_flags(cudaStream_t* place, unsigned flags) { create(place, flags, 0); }

void destroy(cudaStream_t stream) {
  const auto facts = streams().take(stream);
  expect(facts.has_value(), cudaErrorInvalidResourceHandle, "there is no such stream");
  const NativeStream native{facts->device, stream};
  if (is_blocking(*facts) && !driver().is_capturing(native)) {
    const OrderEvent event(facts->device);
    event.record(native);  // its work still runs, before later work of the default stream
    event.await({facts->device, nullptr});
  }
  driver().destroy_stream(native);
}

// All work before a query of the legacy default stream counts.
cudaError_t query(cudaStream_t stream) {
  const NativeStream native = native_stream(stream);
  bool is_complete = driver().query_stream(native);
  if (is_legacy(stream)) {
    for_each_blocking(native.device, [&](NativeStream one) {
      is_complete = driver().query_stream(one) && is_complete;
    });
    PerThreadWorks::instance().for_each(native.device,
                                        [&](NativeEvent) { is_complete = false; });
  }
  return is_complete ? cudaSuccess : cudaErrorNotReady;
}

void wait_event(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
  expect(flags == cudaEventWaitDefault || flags == cudaEventWaitExternal, cudaErrorInvalidValue,
         "expected cudaEventWaitDefault or cudaEventWaitExternal");
  if (flags == cudaEventWaitExternal && driver().is_capturing(native_stream(stream))) {
    return driver().wait_external_event(native_stream(stream), event);
  }
  submit(stream, [event](NativeStream native) { driver().wait_event(native, event); });
}

void launch_host_function(cudaStream_t stream, cudaHostFn_t function, void* data) {
  submit(stream, [function, data](NativeStream native) {
    driver().launch_host_function(native, function, data);
  });
}

struct Callback {
  cudaStreamCallback_t function;
  cudaStream_t stream;
  void* data;
};

void add_callback(cudaStream_t stream, cudaStreamCallback_t function, void* data, unsigned flags) {
  expect(function != nullptr && flags == 0, cudaErrorInvalidValue,
         "expected a function and flags 0");
  auto callback = std::make_unique<Callback>(Callback{function, stream, data});
  launch_host_function(
      stream,
      [](void* taken) {
        const std::unique_ptr<Callback> own(static_cast<Callback*>(taken));
        own->function(own->stream, cudaSuccess, own->data);
      },
      callback.get());
  (void)callback.release();
}

void get_flags(cudaStream_t stream, unsigned* place) {
  expect_place(place);
  *place = facts_of(stream).flags;
}

void get_priority(cudaStream_t stream, int* place) {
  expect_place(place);
  *place = facts_of(stream).priority;
}

void get_device(cudaStream_t stream, int* place) {
  expect_place(place);
  *place = native_stream(stream).device;
}

void get_id(cudaStream_t stream, unsigned long long* place) {
  expect_place(place);
  *place = driver().stream_identity(native_stream(stream));
}

}  // namespace

bool is_legacy(cudaStream_t stream) { return stream == nullptr || stream == cudaStreamLegacy; }

NativeStream native_stream(cudaStream_t stream) {
  if (is_legacy(stream)) return {driver().current_device(), nullptr};
  if (stream == cudaStreamPerThread) return {driver().current_device(), stream};
  const auto facts = streams().find(stream);
  expect(facts.has_value(), cudaErrorInvalidResourceHandle, "there is no such stream");
  return {facts->device, stream};
}

void await_blocking_streams(int device) {
  std::optional<OrderEvent> event;
  for_each_blocking(device, [&](NativeStream one) {
    // A captured stream refuses the question, and the wait refuses a captured stream.
    if (!driver().is_capturing(one) && driver().query_stream(one)) return;
    if (!event) event.emplace(device);
    event->record(one);
    event->await({device, nullptr});
  });
  PerThreadWorks::instance().for_each(device, [&](NativeEvent earlier) {
    driver().wait_event({device, nullptr}, earlier);
  });
}

void order_later_work(cudaStream_t stream, NativeStream native) {
  if (is_legacy(stream)) return await_blocking_streams(native.device);
  if (stream != cudaStreamPerThread) {
    const auto facts = streams().find(stream);
    if (!facts || !is_blocking(*facts)) return;
  }
  if (driver().is_capturing(native)) return;
  const NativeStream legacy{native.device, nullptr};
  if (driver().query_stream(legacy)) return;
  const OrderEvent event(native.device);
  event.record(legacy);
  event.await(native);
}

void note_work(cudaStream_t stream, NativeStream native) {
  if (stream != cudaStreamPerThread || driver().is_capturing(native)) return;
  PerThreadWorks::instance().note(native.device);
}

void synchronize(cudaStream_t stream) {
  const NativeStream native = native_stream(stream);
  if (is_legacy(stream)) await_blocking_streams(native.device);
  driver().synchronize_stream(native);
}

// For work that the program submits to `stream` by other libraries. The legacy default stream is the
// one of `device`. Throws: as order_later_work().
extern "C" __attribute__((visibility("default"))) void gantry_cudart_before_work(
    cudaStream_t stream, int device) {
  if (is_simulated()) order_later_work(stream, {device, stream});
}

GANTRY_CUDART_CALL(cudaStreamCreate, (cudaStream_t * place), (place), create_plain)
GANTRY_CUDART_CALL(cudaStreamCreateWithFlags, (cudaStream_t * place, unsigned flags),
                   (place, flags), create_with_flags)
GANTRY_CUDART_CALL(cudaStreamCreateWithPriority,
                   (cudaStream_t * place, unsigned flags, int priority), (place, flags, priority),
                   create)
GANTRY_CUDART_CALL(cudaStreamDestroy, (cudaStream_t stream), (stream), destroy)
GANTRY_CUDART_STREAM_CALL(cudaStreamSynchronize, (cudaStream_t stream), (stream), synchronize)
GANTRY_CUDART_STREAM_CALL(cudaStreamQuery, (cudaStream_t stream), (stream), query)
GANTRY_CUDART_STREAM_CALL(cudaStreamWaitEvent,
                          (cudaStream_t stream, cudaEvent_t event, unsigned flags),
                          (stream, event, flags), wait_event)
GANTRY_CUDART_STREAM_CALL(cudaLaunchHostFunc,
                          (cudaStream_t stream, cudaHostFn_t function, void* data),
                          (stream, function, data), launch_host_function)
GANTRY_CUDART_STREAM_CALL(cudaStreamAddCallback,
                          (cudaStream_t stream, cudaStreamCallback_t function, void* data,
                           unsigned flags),
                          (stream, function, data, flags), add_callback)
GANTRY_CUDART_STREAM_CALL(cudaStreamGetFlags, (cudaStream_t stream, unsigned* place),
                          (stream, place), get_flags)
GANTRY_CUDART_STREAM_CALL(cudaStreamGetPriority, (cudaStream_t stream, int* place), (stream, place),
                          get_priority)
GANTRY_CUDART_STREAM_CALL(cudaStreamGetDevice, (cudaStream_t stream, int* place), (stream, place),
                          get_device)
GANTRY_CUDART_STREAM_CALL(cudaStreamGetId, (cudaStream_t stream, unsigned long long* place),
                          (stream, place), get_id)

}  // namespace gantry::cudart_api
