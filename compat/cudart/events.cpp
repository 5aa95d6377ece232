// Events of this process and of others.
#include <cstring>

#include <gantry/extend/driver.hpp>

#include "compat/cudart/handles.hpp"
#include "compat/cudart/next.hpp"
#include "compat/cudart/streams.hpp"

namespace gantry::cudart_api {

namespace {

struct EventFacts {};

Handles<EventFacts>& events() {
  static auto* const all = new Handles<EventFacts>;
  return *all;
}

NativeEvent native_event(cudaEvent_t event) {
  expect(events().find(event).has_value(), cudaErrorInvalidResourceHandle,
         "there is no such event");
  return event;
}

void add(cudaEvent_t* place, NativeEvent made) {
  events().add(made, {});
  *place = static_cast<cudaEvent_t>(made);
}

void create(cudaEvent_t* place, unsigned flags) {
  expect_place(place);
  constexpr unsigned kKnown =
      cudaEventBlockingSync | cudaEventDisableTiming | cudaEventInterprocess;
  expect((flags & ~kKnown) == 0, cudaErrorInvalidValue, "expected flags of cudaEventCreate");
  add(place, driver().create_event(driver().current_device(),
                                   {.timing = (flags & cudaEventDisableTiming) == 0,
                                    .blocking = (flags & cudaEventBlockingSync) != 0,
                                    .interprocess = (flags & cudaEventInterprocess) != 0}));
}

void create_plain(cudaEvent_t* place) { create(place, cudaEventDefault); }

void destroy(cudaEvent_t event) {
  expect(events().take(event).has_value(), cudaErrorInvalidResourceHandle,
         "there is no such event");
  driver().destroy_event(event);
}

void record(cudaEvent_t event, cudaStream_t stream) {
  const NativeEvent recorded = native_event(event);
  submit(stream, [recorded](NativeStream native) { driver().record_event(recorded, native); });
}

void record_with_flags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
  if (flags == cudaEventRecordDefault) return record(event, stream);
  expect(flags == cudaEventRecordExternal && driver().is_capturing(native_stream(stream)),
         cudaErrorInvalidValue,
         "expected cudaEventRecordDefault, or cudaEventRecordExternal in a capture");
  driver().record_external_event(native_event(event), native_stream(stream));
}

cudaError_t query(cudaEvent_t event) {
  return driver().query_event(native_event(event)) ? cudaSuccess : cudaErrorNotReady;
}

void synchronize(cudaEvent_t event) { driver().synchronize_event(native_event(event)); }

void measure(float* place, cudaEvent_t begin, cudaEvent_t end) {
  expect_place(place);
  *place = driver().elapsed_ms(native_event(begin), native_event(end));
}

void export_event(cudaIpcEventHandle_t* place, cudaEvent_t event) {
  expect_place(place);
  const NativeEventHandle handle = driver().export_event(native_event(event));
  static_assert(sizeof(handle.bytes) == sizeof(*place));
  std::memcpy(place, handle.bytes.data(), sizeof(*place));
}

void open_event(cudaEvent_t* place, cudaIpcEventHandle_t exported) {
  expect_place(place);
  NativeEventHandle handle;
  std::memcpy(handle.bytes.data(), &exported, sizeof(exported));
  add(place, driver().open_event(driver().current_device(), handle));
}

}  // namespace

GANTRY_CUDART_CALL(cudaEventCreate, (cudaEvent_t * place), (place), create_plain)
GANTRY_CUDART_CALL(cudaEventCreateWithFlags, (cudaEvent_t * place, unsigned flags), (place, flags),
                   create)
GANTRY_CUDART_CALL(cudaEventDestroy, (cudaEvent_t event), (event), destroy)
GANTRY_CUDART_STREAM_CALL(cudaEventRecord, (cudaEvent_t event, cudaStream_t stream),
                          (event, stream), record)
GANTRY_CUDART_STREAM_CALL(cudaEventRecordWithFlags,
                          (cudaEvent_t event, cudaStream_t stream, unsigned flags),
                          (event, stream, flags), record_with_flags)
GANTRY_CUDART_CALL(cudaEventQuery, (cudaEvent_t event), (event), query)
GANTRY_CUDART_CALL(cudaEventSynchronize, (cudaEvent_t event), (event), synchronize)
GANTRY_CUDART_CALL(cudaEventElapsedTime, (float* place, cudaEvent_t begin, cudaEvent_t end),
                   (place, begin, end), measure)
GANTRY_CUDART_CALL(cudaIpcGetEventHandle, (cudaIpcEventHandle_t * place, cudaEvent_t event),
                   (place, event), export_event)
GANTRY_CUDART_CALL(cudaIpcOpenEventHandle, (cudaEvent_t * place, cudaIpcEventHandle_t exported),
                   (place, exported), open_event)

}  // namespace gantry::cudart_api
