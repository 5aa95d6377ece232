#include "tensor/copy_between.hpp"

#include <gantry/device/driver.hpp>
#include <gantry/device/peer.hpp>
#include <gantry/streams/stream.hpp>
#include <gantry/tensor/factories.hpp>

#include "kernels/copy.hpp"
#include "tensor/broadcast.hpp"
#include "tensor/target_of.hpp"

namespace gantry::detail {

namespace {

bool same_dense_shape(const Tensor& a, const Tensor& b) {
  return a.is_contiguous() && b.is_contiguous() && a.sizes() == b.sizes();
}

// `in` as a contiguous tensor of `dtype` on its own device: itself if it is one already.
Tensor packed(const Tensor& in, DType dtype) {
  if (in.dtype() == dtype && in.is_contiguous()) return in;
  Tensor result =
      empty(in.sizes(), {.dtype = dtype, .device = in.device(), .pinned = in.is_pinned()});
  kernels::copy(target_of(in), result.ref(), in.ref());
  return result;
}

}  // namespace

// Note [Host copies]
// Conversion and packing happen where the source is, so the bus carries one dense block of the
// output's element type; unpacking and broadcasting happen where the output is. A copy that must
// not block keeps the pinned memory alive through its allocator's record_stream, also if the pinned
// memory is a temporary of ours.
// CUDA copies pageable memory under a lock of the device's context, also while the copy waits for
// its stream, and that may be for what another thread has still to submit to the same device. So
// the stream is waited for before, without the lock: such copies block the host anyway.

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
// The copy runs on the source device's current stream, between two waits: it starts when the
// output's stream has finished with the old contents, and the output's stream goes on when the new
// ones are there. So both tensors may be used, freed and reused on their own streams right after
// the call, and temporaries need no record_stream: whatever side they were allocated on, that
// side's stream is ordered after their last use.

namespace {

// Lets `destination` go on when `source` has written to `out`. If that fails, the memory must not
// be reused while the copy may still run.
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
  const Device from = in.device();
  const Device to = out.device();
  const bool peers = can_access_peer(from, to);
  if (peers) enable_peer_access(from, to);

  const bool same_bytes = in.dtype() == out.dtype() && same_dense_shape(out, in);
  if (!same_bytes && peers) {
    source.wait(destination);
    kernels::copy(kernels::Target::on(source), out.ref(), broadcast_ref(in, out.sizes()));
    finish_copy(destination, source, out);
    return;
  }
  const Tensor packed_in = packed(in, out.dtype());
  const bool direct = same_dense_shape(out, packed_in);
  const Tensor dense = direct ? out : out.new_empty(packed_in.sizes());
  source.wait(destination);
  driver().copy_peer(dense.data(), to.index, packed_in.data(), from.index, packed_in.nbytes(),
                     source.native());
  finish_copy(destination, source, dense);
  if (!direct) {
    kernels::copy(kernels::Target::on(destination), out.ref(), broadcast_ref(dense, out.sizes()));
  }
}

}  // namespace gantry::detail
