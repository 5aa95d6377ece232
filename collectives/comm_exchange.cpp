#include <fmt/format.h>

#include <gantry/collectives/comm.hpp>
#include <gantry/core/error.hpp>

#include "collectives/comm_checks.hpp"
#include "collectives/device_fold.hpp"
#include "collectives/nccl_clique.hpp"

namespace gantry::comm {

namespace {

// Checks one output per input, each beside its input and of its dtype.
void require_pairs(std::string_view op, std::span<const Tensor> outputs,
                   std::span<const Tensor> inputs) {
  require_device_tensors(op, inputs, "input");
  require_device_tensors(op, outputs, "output");
  require_alike(op, inputs, "input");
  require_alike(op, outputs, "output");
  require_writable(op, outputs);
  require_apart(op, outputs, inputs);
  if (outputs.size() != inputs.size()) {
    throw InvalidArgument(fmt::format("{}: expected one output per input ({}), but got {}", op,
                                      inputs.size(), outputs.size()));
  }
  if (outputs.front().dtype() != inputs.front().dtype()) {
    throw DTypeError(fmt::format("{}: expected outputs of dtype {}, but got {}", op,
                                 name(inputs.front().dtype()), name(outputs.front().dtype())));
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (outputs[i].device() == inputs[i].device()) continue;
    throw DeviceMismatchError(
        fmt::format("{}: expected output {} on its input's device {}, but got {}", op, i,
                    inputs[i].device().str(), outputs[i].device().str()),
        outputs[i].device().str());
  }
}

// `large` must have `factor` times the rows of `small`.
void require_rows(std::string_view op, const Tensor& large, const Tensor& small, std::size_t factor,
                  std::string_view what) {
  Shape expected = small.sizes();
  if (small.dim() > 0) expected[0] *= static_cast<std::int64_t>(factor);
  if (small.dim() == 0 || large.sizes() != expected) {
    throw ShapeError(fmt::format("{}: expected {} of shape {}, but got {}", op, what,
                                 small.dim() == 0 ? std::string("with rows") : expected.str(),
                                 large.sizes().str()));
  }
}

std::vector<Tensor> dense_copies(std::span<const Tensor> tensors) {
  std::vector<Tensor> dense;
  for (const Tensor& tensor : tensors) dense.push_back(tensor.contiguous());
  return dense;
}

}  // namespace

void all_reduce(std::span<Tensor> tensors, ReduceOp op) {
  require_device_tensors("all_reduce", tensors, "input");
  require_alike("all_reduce", tensors, "input");
  require_writable("all_reduce", tensors);
  require_distinct_devices("all_reduce", tensors);
  const DType dtype = tensors.front().dtype();
  const Folding how = folding(op, dtype, static_cast<int>(tensors.size()), "all_reduce");
  const std::vector<Tensor> dense = dense_copies(tensors);
  // Floating minima differ, too: NCCL does not promise what NaN and -0 give.
  const bool same_bits = !is_floating_point(dtype) && nccl_supports(op, dtype);
  if (wants_nccl(devices_of(dense), dense.front().nbytes(), same_bits)) {
    nccl_all_reduce(dense, op);
  } else {
    fold_into_all(dense, how);
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!tensors[i].is_contiguous()) tensors[i].copy_(dense[i]);
  }
}

void all_gather(std::span<Tensor> outputs, std::span<const Tensor> inputs) {
  require_pairs("all_gather", outputs, inputs);
  require_rows("all_gather", outputs.front(), inputs.front(), inputs.size(), "outputs");
  const std::int64_t rows = inputs.front().size(0);
  for (std::size_t step = 0; step < inputs.size(); ++step) {
    for (std::size_t d = 0; d < outputs.size(); ++d) {
      // Every round pairs each sender with another receiver.
      const std::size_t source = (d + step) % inputs.size();
      outputs[d].narrow(0, static_cast<std::int64_t>(source) * rows, rows).copy_(inputs[source]);
    }
  }
}

void reduce_scatter(std::span<Tensor> outputs, std::span<const Tensor> inputs, ReduceOp op) {
  require_pairs("reduce_scatter", outputs, inputs);
  require_rows("reduce_scatter", inputs.front(), outputs.front(), inputs.size(), "inputs");
  const Folding how =
      folding(op, inputs.front().dtype(), static_cast<int>(inputs.size()), "reduce_scatter");
  const std::vector<Tensor> dense = dense_copies(inputs);
  const std::int64_t rows = outputs.front().size(0);
  for (std::size_t d = 0; d < outputs.size(); ++d) {
    std::vector<Tensor> slices;
    for (const Tensor& input : dense) {
      slices.push_back(input.narrow(0, static_cast<std::int64_t>(d) * rows, rows));
    }
    const bool direct = outputs[d].is_contiguous();
    const Tensor out = direct ? outputs[d] : outputs[d].new_empty(outputs[d].sizes());
    if (out.numel() > 0) fold_onto(out, slices, how);
    if (!direct) outputs[d].copy_(out);
  }
}

void all_to_all(std::span<Tensor> outputs, std::span<const Tensor> inputs) {
  require_pairs("all_to_all", outputs, inputs);
  const auto count = static_cast<std::int64_t>(inputs.size());
  if (inputs.front().sizes() != outputs.front().sizes()) {
    throw ShapeError(fmt::format("all_to_all: expected outputs of the inputs' shape {}, but got {}",
                                 inputs.front().sizes().str(), outputs.front().sizes().str()));
  }
  if (inputs.front().dim() == 0 || inputs.front().size(0) % count != 0) {
    throw ShapeError(
        fmt::format("all_to_all: expected rows that divide into {} blocks, but got shape {}", count,
                    inputs.front().sizes().str()));
  }
  const std::int64_t rows = inputs.front().size(0) / count;
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
