#include "collectives/multi_gpu/batches.hpp"

#include <fmt/format.h>

#include <algorithm>

#include <gantry/collectives/comm.hpp>
#include <gantry/core/error.hpp>

#include "collectives/multi_gpu/checks.hpp"
#include "collectives/nccl/clique.hpp"
#include "collectives/partition.hpp"
#include "collectives/peers/reach.hpp"
#include "collectives/selection/selector.hpp"
#include "streams/batched_copy.hpp"

namespace gantry {

namespace {

std::size_t bytes_of(std::span<const CopyRegion> runs) {
  std::size_t sum = 0;
  for (const CopyRegion& run : runs) sum += run.bytes;
  return sum;
}

// Sends from one device to its receivers. Copy engines serve one receiver and few runs: each run
// takes 0.6 us of host time.
void send(const Stream& root, const MulticastBatch& batch) {
  constexpr std::size_t kFewRuns = 16;
  if (batch.shifts.empty() && batch.runs.size() <= kFewRuns) {
    copy_by_size(root, batch.runs, comm_tuning().send_by_engines_bytes);
  } else {
    kernels::multicast(kernels::Target::on(root), batch.runs, batch.shifts);
  }
}

// Reads part i of n of the concatenated runs, and writes it to all receivers; see Note [Helper
// devices].
void send_part(const Stream& helper, const MulticastBatch& batch, int i, int n,
               std::pmr::memory_resource* memory) {
  std::pmr::vector<CopyRegion> runs(memory);
  for_each_range(
      batch.runs.size(),
      [&](std::size_t r) { return static_cast<std::int64_t>(batch.runs[r].bytes); },
      partition(static_cast<std::int64_t>(batch.bytes()), n, i),
      [&](std::size_t r, std::int64_t begin, std::int64_t count) {
        runs.push_back({static_cast<const std::byte*>(batch.runs[r].from) + begin,
                        static_cast<std::byte*>(batch.runs[r].to) + begin,
                        static_cast<std::size_t>(count)});
      });
  kernels::multicast(kernels::Target::on(helper), runs, batch.shifts);
}

}  // namespace

std::size_t MulticastBatch::bytes() const { return bytes_of(runs); }

void copy_by_size(const Stream& stream, std::span<const CopyRegion> runs,
                  std::size_t by_engines_from) {
  if (bytes_of(runs) >= by_engines_from) {
    copy_batch(stream, runs);
  } else {
    kernels::multicast(kernels::Target::on(stream), runs);
  }
}

void multicast(MultiDeviceCall& call, std::span<const MulticastBatch> batches,
               MultiDeviceCall::Operands operands, CachedOutputs* cached) {
  std::size_t bytes = 0;
  for (const MulticastBatch& batch : batches) bytes += batch.bytes();
  if (bytes == 0) return;
  const std::span<const Stream> helpers = call.helpers(bytes);
  call.run(
      operands, helpers,
      [&](const Stream& stream, int i, int n) {
        for (const MulticastBatch& batch : batches) {
          if (helpers.empty()) {
            send(stream, batch);
          } else {
            send_part(stream, batch, i, n, call.memory());
          }
        }
      },
      cached);
}

namespace comm {

namespace {

// Multicasts the source, which is contiguous, to contiguous receivers that the root reaches.
void send(MultiDeviceCall& call, const Tensor& source, std::span<const Tensor> receivers,
          CachedOutputs* cached) {
  constexpr std::size_t kMost = kernels::kMaxMulticastCopies;
  std::pmr::vector<MulticastBatch> batches(call.memory());
  for (std::size_t first = 0; first < receivers.size(); first += kMost) {
    const auto batch_receivers =
        receivers.subspan(first, std::min(receivers.size() - first, kMost));
    auto* const base = static_cast<std::byte*>(batch_receivers.front().data());
    MulticastBatch& batch = batches.emplace_back(call.memory());
    batch.runs.push_back({source.data(), base, source.nbytes()});
    for (const Tensor& receiver : batch_receivers.subspan(1)) {
      batch.shifts.push_back(static_cast<std::byte*>(receiver.data()) - base);
    }
  }
  multicast(call, batches, {std::span(&source, 1), receivers}, cached);
}

// Copies `tensor` to all receivers: device tensors of its shape that are not `tensor`. The root of
// the call is the tensor's device, or the first receiver's for a tensor of the CPU.
void fill(MultiDeviceCall& call, const Tensor& tensor, std::span<const Tensor> receivers,
          CachedOutputs* cached) {
  if (receivers.empty() || tensor.numel() == 0) return;
  Tensor source = tensor;
  if (tensor.is_cpu()) {
    const bool casts = std::ranges::any_of(
        receivers, [&](const Tensor& receiver) { return receiver.dtype() != tensor.dtype(); });
    // Copy from the host once, then between devices.
    const std::size_t from_host = casts ? receivers.size() : 1;
    for (const Tensor& receiver : receivers.first(from_host)) receiver.copy_(tensor);
    if (receivers.size() == from_host) return;
    source = receivers.front();
    receivers = receivers.subspan(1);
  }
  source = source.contiguous();
  call.add(source);
  const auto is_dense = [&](const Tensor& receiver) {
    return receiver.is_contiguous() && receiver.dtype() == source.dtype();
  };
  for (const Tensor& receiver : receivers) call.add(receiver);
  // The multicast is as fast as NCCL's ring between peers.
  if (wants_nccl("comm::broadcast", call.devices(), source.nbytes(),
                 /*same_bits=*/!call.is_direct())) {
    if (std::ranges::all_of(receivers, is_dense)) {
      std::vector<Tensor> ring{source};
      ring.insert(ring.end(), receivers.begin(), receivers.end());
      return nccl_broadcast(ring, 0);
    }
    warn_without_nccl("comm::broadcast", "NCCL neither casts nor strides");
  }
  std::pmr::vector<Tensor> direct(call.memory());
  std::pmr::vector<Tensor> others(call.memory());
  direct.reserve(receivers.size());
  for (const Tensor& receiver : receivers) {
    const bool is_plain = is_dense(receiver) && !receiver.is_view_of(source) &&
                          !shares_memory(receiver, direct) &&
                          (call.is_direct() || reaches(source.device(), receiver));
    (is_plain ? direct : others).push_back(receiver);
  }
  if (others.empty()) return send(call, source, direct, cached);
  MultiDeviceCall reached(call.root());
  reached.add(source);
  for (const Tensor& receiver : direct) reached.add(receiver);
  send(reached, source, direct, cached);
  for (const Tensor& receiver : others) receiver.copy_(source);
}

}  // namespace

std::vector<Tensor> broadcast(const Tensor& tensor, const std::vector<Device>& devices) {
  const NamedCall named("broadcast");
  require_defined("broadcast", tensor, "argument 'tensor'");
  const std::vector<Device> resolved = checked_devices("broadcast", devices);
  MultiDeviceCall call(Stream::current(tensor.is_cpu() ? resolved.front() : tensor.device()));
  CachedOutputs cached(call.root());
  std::vector<Tensor> result;
  std::pmr::vector<Tensor> receivers(call.memory());
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
  fill(call, tensor, receivers, &cached);
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
  MultiDeviceCall call(Stream::current(tensor.is_cpu() ? out.front().device() : tensor.device()));
  std::pmr::vector<Tensor> receivers(call.memory());
  receivers.reserve(out.size());
  for (const Tensor& tensor_out : out) {
    if (tensor_out.data() != tensor.data() || tensor_out.strides() != tensor.strides()) {
      receivers.push_back(tensor_out);
    }
  }
  fill(call, tensor, receivers, nullptr);
}

template void broadcast<Tensor>(const Tensor&, std::span<Tensor>, CastOptions);

}  // namespace comm
}  // namespace gantry
