#include <fmt/format.h>

#include <algorithm>

#include <gantry/collectives/comm.hpp>
#include <gantry/core/error.hpp>
#include <gantry/streams/stream.hpp>

#include "collectives/ignored_choice.hpp"
#include "collectives/multi_gpu/checks.hpp"
#include "collectives/multi_gpu/multicast.hpp"
#include "collectives/multi_gpu/named_call.hpp"
#include "collectives/multi_gpu/output_cache.hpp"
#include "collectives/nccl/clique.hpp"
#include "collectives/peers/reach.hpp"

namespace gantry::comm {

namespace {

// Copies `tensor` to every tensor of `out`: device tensors of its shape that are not `tensor`.
void fill_from(const Tensor& tensor, std::vector<Tensor> out, CachedOutputs* cached) {
  if (out.empty() || tensor.numel() == 0) return;
  const bool casts = std::any_of(out.begin(), out.end(), [&](const Tensor& receiver) {
    return receiver.dtype() != tensor.dtype();
  });
  if (tensor.is_cpu() && casts) {
    for (Tensor& receiver : out) receiver.copy_(tensor);
    return;
  }
  if (tensor.is_cpu()) {
    // Copy from the host once, then between devices.
    out.front().copy_(tensor);
    const Tensor first = out.front();
    out.erase(out.begin());
    fill_from(first, std::move(out), cached);
    return;
  }
  const Tensor source = tensor.contiguous();
  std::vector<Device> devices{source.device()};
  bool dense = true;
  bool reach = true;
  for (const Tensor& receiver : out) {
    devices.push_back(receiver.device());
    dense = dense && receiver.is_contiguous() && receiver.dtype() == source.dtype();
    reach = reach && reaches(source.device(), receiver);
  }
  // The multicast is as fast as NCCL's ring between peers.
  const bool nccl = wants_nccl("comm::broadcast", devices, source.nbytes(), /*same_bits=*/!reach);
  if (nccl && !dense) warn_without_nccl("comm::broadcast", "NCCL neither casts nor strides");
  if (nccl && dense) {
    std::vector<Tensor> ring{source};
    ring.insert(ring.end(), out.begin(), out.end());
    nccl_broadcast(ring, 0);
  } else {
    broadcast_into(source, out, cached);
  }
}

}  // namespace

std::vector<Tensor> broadcast(const Tensor& tensor, const std::vector<Device>& devices) {
  const NamedCall named("broadcast");
  require_defined("broadcast", tensor, "argument 'tensor'");
  const std::vector<Device> resolved = checked_devices("broadcast", devices);
  CachedOutputs cached(Stream::current(tensor.is_cpu() ? resolved.front() : tensor.device()));
  std::vector<Tensor> result;
  std::vector<Tensor> receivers;
  result.reserve(resolved.size());
  receivers.reserve(resolved.size());
  for (const Device device : resolved) {
    if (device == tensor.device()) {
      result.push_back(tensor);
      continue;
    }
    receivers.push_back(cached.make(tensor.sizes(), tensor.dtype(), Stream::current(device)));
    result.push_back(receivers.back());
  }
  fill_from(tensor, std::move(receivers), &cached);
  return result;
}

template <class T>
void broadcast(const Tensor& tensor, std::span<std::type_identity_t<T>> out, CastOptions options) {
  const NamedCall named("broadcast");
  require_defined("broadcast", tensor, "argument 'tensor'");
  require_device_tensors("broadcast", out, "output");
  require_writable("broadcast", out);
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (out[i].sizes() != tensor.sizes()) {
      throw ShapeError(fmt::format(
          "broadcast: Expected all output tensors to have same shape as the source tensor {}, but "
          "output tensor at index {} has shape {}",
          tensor.sizes().str(), i, out[i].sizes().str()));
    }
    if (!options.allow_cast && out[i].dtype() != tensor.dtype()) {
      throw DTypeError(fmt::format(
          "broadcast: expected output tensors of the source's dtype {}, but output tensor at index "
          "{} has dtype {}",
          name(tensor.dtype()), i, name(out[i].dtype())));
    }
  }
  std::vector<Tensor> receivers;
  for (const Tensor& tensor_out : out) {
    if (tensor_out.data() != tensor.data() || tensor_out.strides() != tensor.strides()) {
      receivers.push_back(tensor_out);
    }
  }
  fill_from(tensor, std::move(receivers), nullptr);
}

template void broadcast<Tensor>(const Tensor&, std::span<Tensor>, CastOptions);

}  // namespace gantry::comm
