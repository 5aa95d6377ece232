#include <fmt/format.h>

#include <gantry/collectives/comm.hpp>
#include <gantry/core/error.hpp>

#include "collectives/ignored_choice.hpp"
#include "collectives/multi_gpu/checks.hpp"
#include "collectives/multi_gpu/chunk_copies.hpp"
#include "collectives/multi_gpu/device_reduce.hpp"
#include "collectives/multi_gpu/multicast.hpp"
#include "collectives/multi_gpu/named_call.hpp"
#include "collectives/multi_gpu/tuning.hpp"
#include "collectives/nccl/clique.hpp"
#include "collectives/peers/reach.hpp"
#include "collectives/reduction_passes.hpp"
#include "kernels/peers/multicast.hpp"
#include "streams/batched_copy.hpp"

namespace gantry::comm {

namespace {

// Checks one output per input, with its device and dtype. Does not check the outputs' shapes.
void require_pairs(std::string_view op, std::span<const Tensor> outputs,
                   std::span<const Tensor> inputs) {
  require_device_tensors(op, inputs, "input");
  require_device_tensors(op, outputs, "output");
  require_alike(op, inputs, "input");
  require_writable(op, outputs);
  require_apart(op, outputs, inputs);
  if (outputs.size() != inputs.size()) {
    throw InvalidArgument(fmt::format("{}: expected one output per input ({}), but got {}", op,
                                      inputs.size(), outputs.size()));
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (outputs[i].dtype() != inputs[i].dtype()) {
      throw DTypeError(fmt::format("{}: expected outputs of dtype {}, but output {} has {}", op,
                                   name(inputs[i].dtype()), i, name(outputs[i].dtype())),
                       outputs[i].device().str());
    }
    if (outputs[i].device() == inputs[i].device()) continue;
    throw DeviceMismatchError(
        fmt::format("{}: expected output {} on its input's device {}, but got {}", op, i,
                    inputs[i].device().str(), outputs[i].device().str()),
        outputs[i].device().str());
  }
}

// Throws ShapeError unless every output has the shape that the inputs imply.
void require_outputs(std::string_view op, std::span<const Tensor> outputs, const Shape& expected) {
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].sizes() == expected) continue;
    throw ShapeError(fmt::format("{}: expected outputs of shape {}, but output {} has {}", op,
                                 expected.str(), i, outputs[i].sizes().str()),
                     outputs[i].device().str());
  }
}

// Throws ShapeError unless `parts` divides the inputs' number of rows.
void require_rows(std::string_view op, const Tensor& input, std::int64_t parts) {
  if (input.dim() > 0 && input.size(0) % parts == 0) return;
  const std::string expected =
      parts == 1 ? "rows" : fmt::format("rows that divide into {} blocks", parts);
  throw ShapeError(
      fmt::format("{}: expected {}, but got inputs of shape {}", op, expected, input.sizes().str()),
      input.device().str());
}

// Returns the parts as rows of a joined tensor with `dims` dimensions: unchanged if they are
// concatenated along dim 0, as one row each if they are stacked.
std::vector<Tensor> as_rows(std::span<const Tensor> parts, int dims) {
  std::vector<Tensor> rows(parts.begin(), parts.end());
  if (parts.front().dim() + 1 != dims) return rows;
  for (Tensor& part : rows) part = part.unsqueeze(0);
  return rows;
}

// True if every device can copy between any input and any output without conversion.
bool are_plain(std::span<const Tensor> outputs, std::span<const Tensor> inputs) {
  for (const Tensor& output : outputs) {
    for (const Tensor& input : inputs) {
      if (!is_plain(input, output, input.device())) return false;
      if (!is_plain(input, output, output.device())) return false;
    }
  }
  return true;
}

std::byte* row(const Tensor& tensor, std::int64_t index) {
  return static_cast<std::byte*>(tensor.data()) +
         static_cast<std::size_t>(index * tensor.stride(0)) * tensor.element_size();
}

// Runs `submit(d)`, which submits work to the current stream of inputs[d]'s device, for every d.
// All streams are ordered before and after. So every link transfers in both directions at once.
template <class Submit>
void run_together(std::span<const Tensor> outputs, std::span<const Tensor> inputs, Submit submit) {
  const std::vector<Stream> streams = current_streams(inputs);
  try {
    order_all(streams);
    for (std::size_t d = 0; d < inputs.size(); ++d) submit(d);
    order_all(streams);
  } catch (...) {
    keep_after_failure(outputs, streams);
    keep_after_failure(inputs, streams);
    throw;
  }
}

std::vector<Tensor> dense_copies(std::span<const Tensor> tensors) {
  std::vector<Tensor> dense;
  for (const Tensor& tensor : tensors) dense.push_back(tensor.contiguous());
  return dense;
}

// Returns contiguous tensors to write to: the outputs themselves, or temporaries for strided ones.
std::vector<Tensor> dense_targets(std::span<const Tensor> outputs) {
  std::vector<Tensor> targets;
  for (const Tensor& output : outputs) {
    targets.push_back(output.is_contiguous() ? output : output.new_empty(output.sizes()));
  }
  return targets;
}

}  // namespace

void all_reduce(std::span<Tensor> tensors, ReduceOp op) {
  const NamedCall named("all_reduce");
  require_device_tensors("all_reduce", tensors, "input");
  require_alike("all_reduce", tensors, "input");
  require_writable("all_reduce", tensors);
  require_separate("all_reduce", tensors);
  const DType dtype = tensors.front().dtype();
  const Reduction how = reduction_for(op, dtype, static_cast<int>(tensors.size()), "all_reduce");
  const std::vector<Tensor> dense = dense_copies(tensors);
  // Floating min and max differ too: NCCL does not specify NaN and -0.
  const bool same_bits = !is_floating_point(dtype) && nccl_supports(op, dtype);
  bool nccl = wants_nccl("comm::all_reduce", devices_of(dense), dense.front().nbytes(), same_bits);
  if (nccl && !nccl_supports(op, dtype)) {
    warn_without_nccl("comm::all_reduce", "NCCL does not know the operation for the dtype");
    nccl = false;
  }
  if (nccl) {
    nccl_all_reduce(dense, op);
  } else {
    reduce_into_all(dense, how);
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!tensors[i].is_contiguous()) tensors[i].copy_(dense[i]);
  }
}

void all_gather(std::span<Tensor> outputs, std::span<const Tensor> parts) {
  const NamedCall named("all_gather");
  require_pairs("all_gather", outputs, parts);
  const std::vector<Tensor> inputs = as_rows(parts, outputs.front().dim());
  require_rows("all_gather", inputs.front(), 1);
  const std::int64_t rows = inputs.front().size(0);
  Shape joined = inputs.front().sizes();
  joined[0] *= static_cast<std::int64_t>(inputs.size());
  require_outputs("all_gather", outputs, joined);
  if (inputs.front().numel() == 0) return;
  warn_without_nccl("comm::all_gather", kOwnCopies);
  if (are_plain(outputs, inputs) && outputs.size() <= kernels::kMaxMulticastCopies) {
    std::vector<std::ptrdiff_t> shifts;
    for (const Tensor& output : outputs.subspan(1)) {
      shifts.push_back(static_cast<std::byte*>(output.data()) -
                       static_cast<std::byte*>(outputs.front().data()));
    }
    run_together(outputs, inputs, [&](std::size_t d) {
      const Stream stream = Stream::current(inputs[d].device());
      const std::size_t bytes = inputs[d].nbytes();
      const auto place = static_cast<std::int64_t>(d) * rows;
      if (bytes * outputs.size() < comm_tuning().send_by_engines_bytes) {
        const CopyRegion run{inputs[d].data(), row(outputs.front(), place), bytes};
        kernels::multicast(kernels::Target::on(stream), std::span(&run, 1), shifts);
        return;
      }
      std::vector<CopyRegion> runs;
      for (std::size_t step = 0; step < outputs.size(); ++step) {
        // Senders start with different receivers.
        runs.push_back({inputs[d].data(), row(outputs[(d + step) % outputs.size()], place), bytes});
      }
      copy_batch(stream, runs);
    });
    return;
  }
  for (std::size_t step = 0; step < inputs.size(); ++step) {
    for (std::size_t d = 0; d < outputs.size(); ++d) {
      // Every round pairs each sender with a different receiver.
      const std::size_t source = (d + step) % inputs.size();
      outputs[d].narrow(0, static_cast<std::int64_t>(source) * rows, rows).copy_(inputs[source]);
    }
  }
}

void reduce_scatter(std::span<Tensor> shares, std::span<const Tensor> inputs, ReduceOp op) {
  const NamedCall named("reduce_scatter");
  require_pairs("reduce_scatter", shares, inputs);
  std::vector<Tensor> outputs = as_rows(shares, inputs.front().dim());
  const auto parts = static_cast<std::int64_t>(inputs.size());
  require_rows("reduce_scatter", inputs.front(), parts);
  Shape share = inputs.front().sizes();
  share[0] /= parts;
  require_outputs("reduce_scatter", outputs, share);
  const Reduction how =
      reduction_for(op, inputs.front().dtype(), static_cast<int>(inputs.size()), "reduce_scatter");
  if (outputs.front().numel() == 0) return;
  warn_without_nccl("comm::reduce_scatter", kOwnCopies);
  const std::vector<Tensor> dense = dense_copies(inputs);
  const std::vector<Tensor> results = dense_targets(outputs);
  const std::int64_t rows = outputs.front().size(0);
  const auto slices_for = [&](std::size_t d) {
    std::vector<Tensor> slices;
    for (const Tensor& input : dense) {
      slices.push_back(input.narrow(0, static_cast<std::int64_t>(d) * rows, rows));
    }
    return slices;
  };
  if (are_plain(results, dense) && fits_passes(dense.front().dtype(), dense.size())) {
    run_together(results, dense, [&](std::size_t d) {
      std::vector<const void*> from;
      for (const Tensor& slice : slices_for(d)) from.push_back(slice.data());
      reduce_in_passes(kernels::Target::on(Stream::current(results[d].device())), how,
                       results[d].data(), from, results[d].numel(), results[d].dtype());
    });
  } else {
    for (std::size_t d = 0; d < results.size(); ++d) reduce_into(results[d], slices_for(d), how);
  }
  for (std::size_t d = 0; d < outputs.size(); ++d) {
    if (!outputs[d].is_contiguous()) outputs[d].copy_(results[d]);
  }
}

void all_to_all(std::span<Tensor> outputs, std::span<const Tensor> inputs) {
  const NamedCall named("all_to_all");
  require_pairs("all_to_all", outputs, inputs);
  const auto count = static_cast<std::int64_t>(inputs.size());
  require_rows("all_to_all", inputs.front(), count);
  require_outputs("all_to_all", outputs, inputs.front().sizes());
  const std::int64_t rows = inputs.front().size(0) / count;
  if (inputs.front().numel() == 0) return;
  warn_without_nccl("comm::all_to_all", kOwnCopies);
  if (are_plain(outputs, inputs)) {
    const std::size_t bytes = inputs.front().nbytes() / static_cast<std::size_t>(count);
    run_together(outputs, inputs, [&](std::size_t d) {
      std::vector<CopyRegion> runs;
      for (std::int64_t step = 0; step < count; ++step) {
        // Senders start with different receivers.
        const std::int64_t j = (static_cast<std::int64_t>(d) + step) % count;
        runs.push_back(
            {row(inputs[d], j * rows),
             row(outputs[static_cast<std::size_t>(j)], static_cast<std::int64_t>(d) * rows),
             bytes});
      }
      copy_by_size(Stream::current(inputs[d].device()), runs, comm_tuning().send_by_engines_bytes);
    });
    return;
  }
  for (std::int64_t step = 0; step < count; ++step) {
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t j = (i + step) % count;
      outputs[static_cast<std::size_t>(j)]
          .narrow(0, i * rows, rows)
          .copy_(inputs[static_cast<std::size_t>(i)].narrow(0, j * rows, rows));
    }
  }
}

}  // namespace gantry::comm
