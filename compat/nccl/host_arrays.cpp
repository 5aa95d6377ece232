#include "compat/nccl/host_arrays.hpp"

#include <gantry/streams/stream.hpp>
#include <gantry/streams/stream_guard.hpp>
#include <gantry/tensor/factories.hpp>

namespace gantry::nccl_api {

namespace {

bool is_of_host(const Tensor& array) { return array.defined() && array.device().is_cpu(); }

}  // namespace

bool HostArrays::has_any(const Arrays& arrays) {
  return is_of_host(arrays.send) || is_of_host(arrays.recv);
}

HostArrays::HostArrays(Operation& call, Arrays& arrays, Device device) {
  const StreamGuard guard(Stream::external(call.stream, device));
  const bool is_in_place = arrays.send.defined() && arrays.send.is_same(arrays.recv);
  const auto made = [&](const Tensor& host) {
    return empty({host.numel()}, {.dtype = host.dtype(), .device = device});
  };
  if (is_of_host(arrays.send)) {
    send_ = {.host = arrays.send, .device = made(arrays.send)};
    arrays.send = send_.device;
    call.send = arrays.send.data();
  }
  if (is_of_host(arrays.recv)) {
    recv_ = {.host = arrays.recv, .device = is_in_place ? send_.device : made(arrays.recv)};
    arrays.recv = recv_.device;
    call.recv = arrays.recv.data();
  }
}

void HostArrays::copy_in() const {
  if (send_.host.defined()) send_.device.copy_(send_.host, {.non_blocking = true});
}

void HostArrays::copy_out() const {
  if (recv_.host.defined()) recv_.host.copy_(recv_.device, {.non_blocking = true});
}

}  // namespace gantry::nccl_api
