// all_gather, reduce_scatter, all_to_all: each device sends to all, and receives from all.
#include <fmt/format.h>

#include <algorithm>

#include <gantry/collectives/comm.hpp>
#include <gantry/core/error.hpp>

#include "collectives/multi_gpu/batches.hpp"
#include "collectives/multi_gpu/call.hpp"
#include "collectives/multi_gpu/checks.hpp"
#include "collectives/reduction.hpp"
#include "collectives/selection/selector.hpp"

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

std::byte* row(const Tensor& tensor, std::int64_t index) {
  return element(tensor, index * tensor.stride(0));
}

// True if every device can copy between any input and any output, the call's operands.
bool is_direct(const MultiDeviceCall& call, std::span<const Tensor> outputs,
               std::span<const Tensor> inputs) {
  return call.is_mesh() && std::ranges::all_of(inputs, &Tensor::is_contiguous) &&
         std::ranges::all_of(outputs, &Tensor::is_contiguous);
}

// Runs submit(stream, d), which submits work to the stream of inputs[d]'s device, for every d. All
// streams are ordered before and after. So every link transfers in both directions at once.
template <class Submit>
void run_together(const MultiDeviceCall& call, std::span<const Tensor> outputs,
                  std::span<const Tensor> inputs, Submit submit) {
  call.run({outputs, inputs}, call.streams(), [&](const Stream& stream, int, int) {
    for (std::size_t d = 0; d < inputs.size(); ++d) {
      if (inputs[d].device() == stream.device()) submit(stream, d);
    }
  });
}

// Copies `rows` rows of inputs[d], from row j * step on, to rows d * rows … of outputs[j], for all
// d and j. Senders start with different receivers.
void send_blocks(MultiDeviceCall& call, std::span<const Tensor> outputs,
                 std::span<const Tensor> inputs, std::int64_t rows, std::int64_t step) {
  const std::size_t count = inputs.size();
  const auto block = [](std::size_t i, std::int64_t size) {
    return static_cast<std::int64_t>(i) * size;
  };
  if (is_direct(call, outputs, inputs)) {
    const std::size_t bytes =
        inputs[0].nbytes() / static_cast<std::size_t>(inputs[0].size(0) / rows);
    std::pmr::vector<CopyRegion> runs(call.memory());
    runs.reserve(count);
    return run_together(call, outputs, inputs, [&](const Stream& stream, std::size_t d) {
      runs.clear();
      for (std::size_t turn = 0; turn < count; ++turn) {
        const std::size_t j = (d + turn) % count;
        runs.push_back({row(inputs[d], block(j, step)), row(outputs[j], block(d, rows)), bytes});
      }
      copy_by_size(stream, runs, comm_tuning().send_by_engines_bytes);
    });
  }
  for (std::size_t turn = 0; turn < count; ++turn) {
    for (std::size_t d = 0; d < count; ++d) {
      const std::size_t j = (d + turn) % count;
      outputs[j].narrow(0, block(d, rows), rows).copy_(inputs[d].narrow(0, block(j, step), rows));
    }
  }
}

}  // namespace

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
  MultiDeviceCall call(inputs.front().device(), {inputs, outputs});
  if (inputs.front().nbytes() * outputs.size() >= comm_tuning().send_by_engines_bytes ||
      outputs.size() > kernels::kMaxMulticastCopies || !is_direct(call, outputs, inputs)) {
    return send_blocks(call, outputs, inputs, rows, 0);
  }
  std::pmr::vector<std::ptrdiff_t> shifts(call.memory());
  shifts.reserve(outputs.size());
  for (const Tensor& output : outputs.subspan(1)) {
    shifts.push_back(row(output, 0) - row(outputs.front(), 0));
  }
  run_together(call, outputs, inputs, [&](const Stream& stream, std::size_t d) {
    const CopyRegion run{inputs[d].data(),
                         row(outputs.front(), static_cast<std::int64_t>(d) * rows),
                         inputs[d].nbytes()};
    kernels::multicast(kernels::Target::on(stream), std::span(&run, 1), shifts);
  });
}

void reduce_scatter(std::span<Tensor> shares, std::span<const Tensor> inputs, ReduceOp op) {
  const NamedCall named("reduce_scatter");
  require_pairs("reduce_scatter", shares, inputs);
  const std::vector<Tensor> outputs = as_rows(shares, inputs.front().dim());
  const auto parts = static_cast<std::int64_t>(inputs.size());
  require_rows("reduce_scatter", inputs.front(), parts);
  Shape share = inputs.front().sizes();
  share[0] /= parts;
  require_outputs("reduce_scatter", outputs, share);
  const NaryReduction how =
      reduction_for(op, inputs.front().dtype(), static_cast<int>(inputs.size()), "reduce_scatter");
  if (outputs.front().numel() == 0) return;
  warn_without_nccl("comm::reduce_scatter", kOwnCopies);
  std::vector<Tensor> copies;
  const std::span<const Tensor> dense = contiguous_of(inputs, copies);
  // Strided outputs get their results from temporaries.
  std::vector<Tensor> results = outputs;
  for (Tensor& result : results) {
    if (!result.is_contiguous()) result = result.new_empty(share);
  }
  const std::int64_t rows = share[0];
  MultiDeviceCall call(dense.front().device(), {dense, results});
  if (is_direct(call, results, dense) && fits_passes(dense.front().dtype(), dense.size())) {
    std::pmr::vector<const void*> from(dense.size(), call.memory());
    run_together(call, results, dense, [&](const Stream& stream, std::size_t d) {
      std::ranges::transform(dense, from.begin(), [&](const Tensor& input) {
        return row(input, static_cast<std::int64_t>(d) * rows);
      });
      reduce_in_passes(kernels::Target::on(stream), how, results[d].data(), from,
                       results[d].numel(), results[d].dtype());
    });
  } else {
    for (std::size_t d = 0; d < results.size(); ++d) {
      std::vector<Tensor> slices;
      for (const Tensor& input : dense) {
        slices.push_back(input.narrow(0, static_cast<std::int64_t>(d) * rows, rows));
      }
      MultiDeviceCall part(results[d].device(), {slices});
      reduce_into(part, results[d], slices, how);
    }
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
  MultiDeviceCall call(inputs.front().device(), {inputs, outputs});
  send_blocks(call, outputs, inputs, rows, rows);
}

}  // namespace gantry::comm
