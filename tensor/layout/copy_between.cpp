#include "tensor/layout/copy_between.hpp"

#include <gantry/device/peer.hpp>
#include <gantry/extend/driver.hpp>
#include <gantry/streams/stream.hpp>
#include <gantry/tensor/factories.hpp>

#include "kernels/layout/copy.hpp"
#include "tensor/layout/broadcast.hpp"
#include "tensor/target_of.hpp"

namespace gantry::detail {

namespace {

bool same_dense_shape(const Tensor& a, const Tensor& b) {
  return a.is_contiguous() && b.is_contiguous() && a.sizes() == b.sizes();
}

// `in` as a contiguous tensor of `dtype` on its own device; `in` itself if it is one already.
Tensor packed(const Tensor& in, DType dtype) {
  if (in.dtype() == dtype && in.is_contiguous()) return in;
  Tensor result =
      empty(in.sizes(), {.dtype = dtype, .device = in.device(), .pinned = in.is_pinned()});
  kernels::copy(target_of(in), result.ref(), in.ref());
  return result;
}

}  // namespace

// Note [Host copies]
// The source side converts and packs; the output side unpacks and broadcasts. The bus therefore
// carries one dense block of the output's dtype.
// A non-blocking copy keeps pinned memory alive through record_stream, including pinned
// temporaries. CUDA copies pageable memory under a lock of the device's context and holds it while
// the copy waits for its stream. That stream may wait for work that another thread has yet to
// submit to the same device: a deadlock. The host therefore synchronizes with the stream before
// such a copy. That costs nothing, because copies of pageable memory block the host anyway.

void copy_to_device(const Tensor& out, const Tensor& in, bool non_blocking) {
  const Stream stream = Stream::current(out.device());
  const Tensor host = packed(in, out.dtype());
  const bool direct = same_dense_shape(out, host);
  const Tensor dense = direct ? out : out.new_empty(host.sizes());
  if (host.is_pinned()) {
    host.record_stream(stream);
  } else {
    stream.synchronize();
  }
  driver().copy(dense.data(), host.data(), host.nbytes(), stream.native());
  if (!direct) {
    kernels::copy(kernels::Target::on(stream), out.ref(), broadcast_ref(dense, out.sizes()));
  }
  if (!non_blocking || !host.is_pinned()) stream.synchronize();
}

void copy_to_host(const Tensor& out, const Tensor& in, bool non_blocking) {
  const Stream stream = Stream::current(in.device());
  const Tensor device = packed(in, out.dtype());
  const bool direct = same_dense_shape(out, device);
  const Tensor dense = direct ? out : empty(device.sizes(), {.dtype = out.dtype(), .pinned = true});
  if (dense.is_pinned()) {
    dense.record_stream(stream);
  } else {
    stream.synchronize();
  }
  driver().copy(dense.data(), device.data(), device.nbytes(), stream.native());
  if (!direct || !non_blocking || !dense.is_pinned()) stream.synchronize();
  if (!direct) {
    kernels::copy(kernels::Target::cpu(), out.ref(), broadcast_ref(dense, out.sizes()));
  }
}

// Note [Copies between devices]
// The copy runs on the source device's current stream, between two waits. The source's stream first
// waits for the output's stream, which may still use the old contents. Afterwards the output's
// stream waits for the copy. Both tensors may therefore be used and freed on their own streams
// right after the call. Temporaries need no record_stream: the stream of the side that allocated
// them is ordered after their last use.
//
// Where the source's device can write the output, a kernel converts and rearranges on the way. It
// also moves small blocks, for which it is quicker than a copy engine: two H200 take 9.9 us for
// 4 KiB and 12.7 us for 256 KiB, a copy engine 14.4 and 14.9 us. From 512 KiB on the engine is
// quicker.

namespace {

constexpr std::size_t kKernelBytes = 256 << 10;

// Enables access of `from` to its peer, the output's device. True if its kernels can write `out`.
bool can_write(Device from, const Tensor& out) {
  if (!can_access_peer(from, out.device())) return false;
  enable_peer_access(from, out.device());
  return out.storage().is_peer_accessible();
}

// Makes `destination` wait for the copy on `source`. If that fails, record_stream keeps the memory
// of `out` from reuse while the copy may still run.
void finish_copy(const Stream& destination, const Stream& source, const Tensor& out) {
  try {
    destination.wait(source);
  } catch (...) {
    out.record_stream(source);
    throw;
  }
}

}  // namespace

void copy_across(const Tensor& out, const Tensor& in) {
  const Stream source = Stream::current(in.device());
  const Stream destination = Stream::current(out.device());
  const bool same_bytes = in.dtype() == out.dtype() && same_dense_shape(out, in);
  source.wait(destination);  // before packed(), which belongs to the destination's capture
  if (can_write(in.device(), out) && (!same_bytes || in.nbytes() <= kKernelBytes)) {
    kernels::copy(kernels::Target::on(source), out.ref(), broadcast_ref(in, out.sizes()));
    finish_copy(destination, source, out);
    return;
  }
  const Tensor packed_in = packed(in, out.dtype());
  const bool direct = same_dense_shape(out, packed_in);
  const Tensor dense = direct ? out : out.new_empty(packed_in.sizes());
  if (!direct) source.wait(destination);  // which may have used the memory of `dense` until now
  driver().copy_peer(dense.data(), out.device().index, packed_in.data(), in.device().index,
                     packed_in.nbytes(), source.native());
  finish_copy(destination, source, dense);
  if (!direct) {
    kernels::copy(kernels::Target::on(destination), out.ref(), broadcast_ref(dense, out.sizes()));
  }
}

}  // namespace gantry::detail
