// Copies and fills. Those without a stream run on the default stream and block the host.
#include <cstddef>
#include <cstdint>

#include <gantry/extend/driver.hpp>

#include "compat/cudart/next.hpp"
#include "compat/cudart/streams.hpp"

namespace gantry::cudart_api {

namespace {

void expect_kind(cudaMemcpyKind kind) {
  expect(kind >= cudaMemcpyHostToHost && kind <= cudaMemcpyDefault, cudaErrorInvalidMemcpyDirection,
         "expected a cudaMemcpyKind");
}

// Addresses tell the direction, as they do on GPUs with unified addresses.
void copy_async(void* dst, const void* src, std::size_t bytes, cudaMemcpyKind kind,
                cudaStream_t stream) {
  expect_kind(kind);
  submit(stream, [&](NativeStream native) { driver().copy(dst, src, bytes, native); });
}

// Waits for earlier work of the default stream of another device that owns `data`.
void await_owner(const void* data) {
  const PointerInfo info = driver().pointer_info(data);
  if (info.kind != PointerKind::device || info.device == driver().current_device()) return;
  await_blocking_streams(info.device);
  driver().synchronize_stream({info.device, nullptr});
}

void copy(cudaStream_t stream, void* dst, const void* src, std::size_t bytes, cudaMemcpyKind kind) {
  await_owner(dst);
  await_owner(src);
  copy_async(dst, src, bytes, kind, stream);
  synchronize(stream);
}

void copy_rows_async(void* dst, std::size_t dst_pitch, const void* src, std::size_t src_pitch,
                     std::size_t width, std::size_t height, cudaMemcpyKind kind,
                     cudaStream_t stream) {
  expect_kind(kind);
  expect(width <= dst_pitch && width <= src_pitch, cudaErrorInvalidPitchValue,
         "a row is wider than its pitch");
  submit(stream, [&](NativeStream native) {
    for (std::size_t row = 0; row < height; ++row) {
      driver().copy(static_cast<std::byte*>(dst) + row * dst_pitch,
                    static_cast<const std::byte*>(src) + row * src_pitch, width, native);
    }
  });
}

void copy_rows(cudaStream_t stream, void* dst, std::size_t dst_pitch, const void* src,
               std::size_t src_pitch, std::size_t width, std::size_t height, cudaMemcpyKind kind) {
  await_owner(dst);
  await_owner(src);
  copy_rows_async(dst, dst_pitch, src, src_pitch, width, height, kind, stream);
  synchronize(stream);
}

void copy_peer_async(void* dst, int dst_device, const void* src, int src_device, std::size_t bytes,
                     cudaStream_t stream) {
  submit(stream, [&](NativeStream native) {
    driver().copy_peer(dst, dst_device, src, src_device, bytes, native);
  });
}

void copy_peer(void* dst, int dst_device, const void* src, int src_device, std::size_t bytes) {
  await_owner(dst);
  await_owner(src);
  copy_peer_async(dst, dst_device, src, src_device, bytes, nullptr);
  synchronize(nullptr);
}

void fill_async(void* data, int value, std::size_t bytes, cudaStream_t stream) {
  submit(stream, [&](NativeStream native) {
    driver().fill(data, static_cast<std::uint8_t>(value), bytes, native);
  });
}

void fill(cudaStream_t stream, void* data, int value, std::size_t bytes) {
  fill_async(data, value, bytes, stream);
  synchronize(stream);
}

void fill_rows_async(void* data, std::size_t pitch, int value, std::size_t width,
                     std::size_t height, cudaStream_t stream) {
  expect(width <= pitch, cudaErrorInvalidPitchValue, "a row is wider than its pitch");
  submit(stream, [&](NativeStream native) {
    for (std::size_t row = 0; row < height; ++row) {
      driver().fill(static_cast<std::byte*>(data) + row * pitch, static_cast<std::uint8_t>(value),
                    width, native);
    }
  });
}

void fill_rows(cudaStream_t stream, void* data, std::size_t pitch, int value, std::size_t width,
               std::size_t height) {
  fill_rows_async(data, pitch, value, width, height, stream);
  synchronize(stream);
}

}  // namespace

GANTRY_CUDART_STREAM_CALL(cudaMemcpyAsync,
                          (void* dst, const void* src, std::size_t bytes, cudaMemcpyKind kind,
                           cudaStream_t stream),
                          (dst, src, bytes, kind, stream), copy_async)
GANTRY_CUDART_DEFAULT_STREAM_CALL(cudaMemcpy,
                                  (void* dst, const void* src, std::size_t bytes,
                                   cudaMemcpyKind kind),
                                  (dst, src, bytes, kind), copy)
GANTRY_CUDART_STREAM_CALL(cudaMemcpy2DAsync,
                          (void* dst, std::size_t dst_pitch, const void* src, std::size_t src_pitch,
                           std::size_t width, std::size_t height, cudaMemcpyKind kind,
                           cudaStream_t stream),
                          (dst, dst_pitch, src, src_pitch, width, height, kind, stream),
                          copy_rows_async)
GANTRY_CUDART_DEFAULT_STREAM_CALL(cudaMemcpy2D,
                                  (void* dst, std::size_t dst_pitch, const void* src,
                                   std::size_t src_pitch, std::size_t width, std::size_t height,
                                   cudaMemcpyKind kind),
                                  (dst, dst_pitch, src, src_pitch, width, height, kind), copy_rows)
GANTRY_CUDART_CALL(cudaMemcpyPeer,
                   (void* dst, int dst_device, const void* src, int src_device, std::size_t bytes),
                   (dst, dst_device, src, src_device, bytes), copy_peer)
GANTRY_CUDART_CALL(cudaMemcpyPeerAsync,
                   (void* dst, int dst_device, const void* src, int src_device, std::size_t bytes,
                    cudaStream_t stream),
                   (dst, dst_device, src, src_device, bytes, stream), copy_peer_async)
GANTRY_CUDART_STREAM_CALL(cudaMemsetAsync,
                          (void* data, int value, std::size_t bytes, cudaStream_t stream),
                          (data, value, bytes, stream), fill_async)
GANTRY_CUDART_DEFAULT_STREAM_CALL(cudaMemset, (void* data, int value, std::size_t bytes),
                                  (data, value, bytes), fill)
GANTRY_CUDART_STREAM_CALL(cudaMemset2DAsync,
                          (void* data, std::size_t pitch, int value, std::size_t width,
                           std::size_t height, cudaStream_t stream),
                          (data, pitch, value, width, height, stream), fill_rows_async)
GANTRY_CUDART_DEFAULT_STREAM_CALL(cudaMemset2D,
                                  (void* data, std::size_t pitch, int value, std::size_t width,
                                   std::size_t height),
                                  (data, pitch, value, width, height), fill_rows)

}  // namespace gantry::cudart_api
