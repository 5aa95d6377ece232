#include "collectives/multi_gpu/batches.hpp"

#include <fmt/format.h>

#include <algorithm>

#include <gantry/collectives/comm.hpp>
#include <gantry/core/error.hpp>
#include <gantry/tensor/factories.hpp>

#include "collectives/multi_gpu/checks.hpp"
#include "collectives/nccl/clique.hpp"
#include "collectives/partition.hpp"
#include "collectives/peers/reach.hpp"
#include "collectives/reduction.hpp"
#include "collectives/selection/selector.hpp"

namespace gantry {

namespace {

constexpr auto kMostInputs = static_cast<std::size_t>(kernels::kMaxNaryInputs);

// Reduces all inputs into every output; into one, if there are more inputs than a kernel takes.
// Each worker reduces one part, and only it accesses that part: outputs may be inputs.
void reduce_parts(MultiDeviceCall& call, std::span<const Stream> workers,
                  std::span<const Tensor> outs, std::span<const Tensor> inputs,
                  const NaryReduction& how) {
  const Tensor& first = inputs.front();
  std::pmr::vector<const void*> from(inputs.size(), call.memory());
  std::pmr::vector<void*> to(outs.size(), call.memory());
  call.run({outs, inputs}, workers, [&](const Stream& stream, int i, int n) {
    const Part part = partition(first.numel(), n, i);
    if (part.count == 0) return;
    const auto place = [&](const Tensor& tensor) { return element(tensor, part.begin); };
    std::ranges::transform(inputs, from.begin(), place);
    std::ranges::transform(outs, to.begin(), place);
    const auto target = kernels::Target::on(stream);
    if (to.size() == 1) {
      reduce_in_passes(target, how, to.front(), from, part.count, first.dtype());
    } else {
      kernels::nary(target, how.op, std::span<void* const>(to), from, part.count, first.dtype(),
                    how.divisor);
    }
  });
}

// Reduces inputs of at most 16 bits in f32, chunk by chunk. `out` may be one of the inputs.
void reduce_widened(const Tensor& out, std::span<const Tensor> inputs, const NaryReduction& how) {
  constexpr std::int64_t kRows = kernels::kMaxNaryInputs;
  constexpr std::int64_t kMostElements = (std::int64_t{64} << 20) / (kRows * 4);
  const auto target = kernels::Target::on(Stream::current(out.device()));
  const auto chunk_of = [](const Tensor& tensor, std::int64_t begin, std::int64_t count) {
    return tensor.view({tensor.numel()}).narrow(0, begin, count);
  };
  const std::int64_t most = std::min(kMostElements, out.numel());
  // Row 0 also holds the partial result.
  const Tensor wide = empty({kRows, most}, {.dtype = DType::f32, .device = out.device()});
  for (std::int64_t begin = 0; begin < out.numel(); begin += most) {
    const std::int64_t count = std::min(most, out.numel() - begin);
    const Tensor sum = wide.select(0, 0).narrow(0, 0, count);
    std::vector<const void*> rows;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      Tensor row = wide.select(0, static_cast<std::int64_t>(rows.size())).narrow(0, 0, count);
      row.copy_(chunk_of(inputs[i], begin, count));
      rows.push_back(row.data());
      const bool is_last = i + 1 == inputs.size();
      if (!is_last && rows.size() < static_cast<std::size_t>(kRows)) continue;
      kernels::nary(target, how.op, sum.data(), rows, count, DType::f32, is_last ? how.divisor : 1);
      rows = {sum.data()};
    }
    chunk_of(out, begin, count).copy_(sum);
  }
}

// True if a pass after the first one would read an input that is overwritten by then.
bool is_late_input(const Tensor& out, std::span<const Tensor> inputs) {
  const std::size_t first = std::min(inputs.size(), kMostInputs);
  return std::ranges::any_of(inputs.subspan(first),
                             [&](const Tensor& input) { return input.data() == out.data(); });
}

// Reduces all tensors in place, so that each holds the result. They are contiguous, and are the
// call's operands.
void reduce_into_all(MultiDeviceCall& call, std::span<const Tensor> tensors,
                     const NaryReduction& how) {
  const Tensor& first = tensors.front();
  if (first.numel() == 0) return;
  if (tensors.size() > kMostInputs || !call.is_mesh()) {
    reduce_into(call, first, tensors, how);
    for (const Tensor& tensor : tensors.subspan(1)) tensor.copy_(first);
    return;
  }
  const bool has_helpers = !call.helpers(first.nbytes()).empty();
  reduce_parts(call, has_helpers ? call.streams() : std::span<const Stream>{}, tensors, tensors,
               how);
}

// Returns part i of n of the concatenated runs.
ReduceBatch slice(const ReduceBatch& batch, int i, int n, std::pmr::memory_resource* memory) {
  const std::size_t each = batch.inputs.size() / batch.runs.size();
  const auto width = static_cast<std::int64_t>(element_size(batch.dtype));
  ReduceBatch result(batch.dtype, memory);
  for_each_range(
      batch.runs.size(), [&](std::size_t r) { return batch.runs[r].count; },
      partition(batch.elements(), n, i),
      [&](std::size_t r, std::int64_t begin, std::int64_t count) {
        const std::int64_t skipped = begin * width;
        result.runs.push_back({static_cast<std::byte*>(batch.runs[r].out) + skipped, count});
        for (std::size_t k = r * each; k < (r + 1) * each; ++k) {
          result.inputs.push_back(static_cast<const std::byte*>(batch.inputs[k]) + skipped);
        }
      });
  return result;
}

}  // namespace

void reduce_into(MultiDeviceCall& call, const Tensor& out, std::span<const Tensor> inputs,
                 const NaryReduction& how) {
  if (out.numel() == 0) return;
  if (!fits_passes(out.dtype(), inputs.size())) return reduce_widened(out, inputs, how);
  if (is_late_input(out, inputs)) {
    const Tensor result = out.new_empty(out.sizes());
    reduce_into(call, result, inputs, how);
    out.copy_(result);
    return;
  }
  if (!call.is_direct()) {
    std::vector<Tensor> reachable;
    for (const Tensor& input : inputs) {
      reachable.push_back(reaches(out.device(), input) ? input : input.to(out.device()));
    }
    MultiDeviceCall direct(out.device(), {reachable});
    return reduce_into(direct, out, reachable, how);
  }
  const bool is_open = out.storage().is_peer_accessible();
  reduce_parts(call, is_open ? call.helpers(out.nbytes()) : std::span<const Stream>{},
               std::span(&out, 1), inputs, how);
}

std::int64_t ReduceBatch::elements() const {
  std::int64_t sum = 0;
  for (const kernels::NaryItem& run : runs) sum += run.count;
  return sum;
}

void reduce_batches(MultiDeviceCall& call, std::span<const ReduceBatch> batches,
                    std::span<const Tensor> outputs, const NaryReduction& how) {
  std::size_t bytes = 0;
  for (const ReduceBatch& batch : batches) {
    bytes += static_cast<std::size_t>(batch.elements()) * element_size(batch.dtype);
  }
  if (bytes == 0) return;
  const std::span<const Stream> helpers = call.helpers(bytes);
  call.run({outputs}, helpers, [&](const Stream& stream, int i, int n) {
    const auto reduce = [&](const ReduceBatch& batch) {
      reduce_items_in_passes(kernels::Target::on(stream), how, batch.runs, batch.inputs,
                             batch.dtype);
    };
    for (const ReduceBatch& batch : batches) {
      if (batch.runs.empty()) continue;
      if (helpers.empty()) {
        reduce(batch);
      } else {
        reduce(slice(batch, i, n, call.memory()));
      }
    }
  });
}

namespace comm {

namespace {

// Sums checked inputs, the call's operands, into a contiguous tensor of the root's device, with
// conversions to its dtype.
void sum_into(MultiDeviceCall& call, std::span<const Tensor> tensors, const Tensor& out) {
  if (out.numel() == 0) return;
  const DType dtype = out.dtype();
  const auto is_plain = [&](const Tensor& tensor) {
    return tensor.dtype() == dtype && tensor.is_contiguous();
  };
  if (!std::ranges::all_of(tensors, is_plain)) {
    std::vector<Tensor> plain;
    for (const Tensor& tensor : tensors) plain.push_back(tensor.to(dtype).contiguous());
    MultiDeviceCall converted(out.device(), {plain});
    return sum_into(converted, plain, out);
  }
  // Integer sums have the same bits in any order. Between peers reduce_into() is as fast as NCCL's
  // ring.
  const bool is_known = nccl_supports(ReduceOp::sum, dtype);
  const bool same_bits = !call.is_direct() && !is_floating_point(dtype) && is_known;
  if (wants_nccl("comm::reduce_add", call.devices(), out.nbytes(), same_bits)) {
    const auto root = std::ranges::find(call.devices(), out.device()) - call.devices().begin();
    const bool has_root = root < static_cast<std::ptrdiff_t>(tensors.size());
    if (has_root && is_known) {
      return nccl_reduce(tensors, out, static_cast<int>(root), ReduceOp::sum);
    }
    warn_without_nccl("comm::reduce_add",
                      has_root ? "NCCL does not know the dtype" : "no input is on the destination");
  }
  reduce_into(call, out, tensors, {kernels::NaryOp::sum, 1});
}

// Sums checked inputs onto the call's root.
Tensor sum(MultiDeviceCall& call, std::span<const Tensor> tensors) {
  call.join_capture();
  const Tensor& first = tensors.front();
  Tensor out = empty(first.sizes(), {.dtype = first.dtype(), .device = call.root().device()});
  sum_into(call, tensors, out);
  return out;
}

void check_inputs(const std::vector<Tensor>& tensors, CastOptions options) {
  if (tensors.empty()) {
    throw InvalidArgument("reduce_add: Expected at least one input tensor, but got none");
  }
  require_defined("reduce_add", tensors, "input tensor");
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& tensor = tensors[i];
    if (!tensor.is_cuda()) {
      throw InvalidArgument(
          fmt::format("reduce_add expects all inputs to be on GPUs, but input {} is on {}", i,
                      tensor.device().str()),
          tensor.device().str());
    }
    if (tensor.sizes() != tensors.front().sizes()) {
      throw ShapeError(fmt::format("reduce_add: input {} has invalid size: got {}, but expected {}",
                                   i, tensor.sizes().str_x(), tensors.front().sizes().str_x()),
                       tensor.device().str());
    }
  }
  if (!options.allow_cast) require_alike("reduce_add", tensors, "input");
}

}  // namespace

Tensor reduce_add(const std::vector<Tensor>& tensors, std::optional<Device> destination,
                  CastOptions options) {
  const NamedCall named("reduce_add");
  check_inputs(tensors, options);
  const Device target = destination.value_or(Device::cuda()).resolved();
  const Device first = tensors.front().device();
  if (tensors.size() == 1 && first == target) return tensors.front();
  MultiDeviceCall call(target.is_cpu() ? first : target, {tensors});
  if (target.is_cpu()) return sum(call, tensors).to(target, {.non_blocking = true});
  return sum(call, tensors);
}

void reduce_add(const std::vector<Tensor>& tensors, Tensor& out, CastOptions options) {
  const NamedCall named("reduce_add");
  check_inputs(tensors, options);
  const Tensor& first = tensors.front();
  require_result("reduce_add", out, first.sizes(), first.dtype(), options.allow_cast);
  require_own_place("reduce_add", std::span(&out, 1), tensors);
  MultiDeviceCall call(out.is_cpu() ? first.device() : out.device(), {tensors});
  if (out.is_cuda() && out.is_contiguous() && out.dtype() == first.dtype()) {
    call.join_capture();
    sum_into(call, tensors, out);
  } else {
    out.copy_(sum(call, tensors), {.non_blocking = true});
  }
}

void all_reduce(std::span<Tensor> tensors, ReduceOp op) {
  const NamedCall named("all_reduce");
  require_device_tensors("all_reduce", tensors, "input");
  require_alike("all_reduce", tensors, "input");
  require_writable("all_reduce", tensors);
  require_separate("all_reduce", tensors);
  const DType dtype = tensors.front().dtype();
  const NaryReduction how =
      reduction_for(op, dtype, static_cast<int>(tensors.size()), "all_reduce");
  std::vector<Tensor> copies;
  const std::span<const Tensor> dense = contiguous_of(tensors, copies);
  MultiDeviceCall call(dense.front().device(), {dense});
  const bool is_known = nccl_supports(op, dtype);
  // Floating min and max differ too: NCCL does not specify NaN and -0.
  const bool same_bits = !is_floating_point(dtype) && is_known;
  const bool nccl =
      wants_nccl("comm::all_reduce", call.devices(), dense.front().nbytes(), same_bits);
  if (nccl && !is_known) {
    warn_without_nccl("comm::all_reduce", "NCCL does not know the operation for the dtype");
  }
  if (nccl && is_known) {
    nccl_all_reduce(dense, op);
  } else {
    reduce_into_all(call, dense, how);
  }
  for (std::size_t i = 0; i < copies.size(); ++i) {
    if (!tensors[i].is_contiguous()) tensors[i].copy_(copies[i]);
  }
}

void all_reduce(std::initializer_list<Tensor> tensors, ReduceOp op) {
  std::vector<Tensor> handles(tensors);
  all_reduce(std::span(handles), op);
}

}  // namespace comm
}  // namespace gantry
