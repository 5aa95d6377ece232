#include "collectives/communicator/checks.hpp"

#include <fmt/format.h>

#include <gantry/core/error.hpp>

#include "collectives/reduction.hpp"
#include "tensor/overlap.hpp"

namespace gantry {

void require_tensor(const Tensor& tensor, Device device, std::string_view op,
                    std::string_view argument) {
  if (!tensor.defined()) {
    throw InvalidArgument(
        fmt::format("{}: expected a defined tensor for argument '{}', but got an undefined tensor",
                    op, argument));
  }
  if (tensor.device() != device) {
    throw DeviceMismatchError(
        fmt::format("{}: expected argument '{}' on the communicator's device {}, but got {}", op,
                    argument, device.str(), tensor.device().str()),
        tensor.device().str());
  }
}

void require_writable(const Tensor& tensor, std::string_view op, std::string_view argument) {
  if (!detail::has_internal_overlap(tensor)) return;
  throw InvalidArgument(fmt::format(
      "{}: expected '{}' to have a place for each element, but several share one (an expanded "
      "tensor?); clone() it first",
      op, argument));
}

void require_same_dtype(const Tensor& output, const Tensor& input, std::string_view op) {
  if (output.dtype() == input.dtype()) return;
  throw DTypeError(fmt::format("{}: expected output of dtype {}, but got {}", op,
                               name(input.dtype()), name(output.dtype())));
}

void require_pair(const Tensor& output, const Tensor& input, Device device, std::string_view op) {
  require_tensor(output, device, op, "output");
  require_tensor(input, device, op, "input");
  require_writable(output, op, "output");
  require_same_dtype(output, input, op);
}

void require_same_shape(const Tensor& output, const Tensor& input, std::string_view op) {
  if (output.sizes() == input.sizes()) return;
  throw ShapeError(fmt::format("{}: expected 'output' of shape {}, but got {}", op,
                               input.sizes().str(), output.sizes().str()),
                   output.device().str());
}

bool is_same_array(const Tensor& a, const Tensor& b) {
  return a.data() == b.data() && a.sizes() == b.sizes() && a.strides() == b.strides();
}

void require_joined(const Tensor& large, const Tensor& small, int ranks, std::string_view op,
                    std::string_view argument) {
  Shape expected = small.sizes();
  if (small.dim() > 0) {
    expected[0] *= ranks;
  } else {
    expected.insert(0, ranks);
  }
  if (large.sizes() == expected) return;
  if (small.dim() < kMaxDims) {
    Shape stacked = small.sizes();
    stacked.insert(0, ranks);
    if (large.sizes() == stacked) return;
  }
  throw ShapeError(fmt::format("{}: expected '{}' of shape {}, but got {}", op, argument,
                               expected.str(), large.sizes().str()),
                   large.device().str());
}

void require_root(int root, int size, std::string_view op) {
  if (root >= 0 && root < size) return;
  throw InvalidArgument(
      fmt::format("{}: expected a root from 0 to {}, but got {}", op, size - 1, root));
}

void require_peer(int peer, int rank, int size, std::string_view op) {
  if (peer >= 0 && peer < size && peer != rank) return;
  throw InvalidArgument(fmt::format("{}: expected another rank from 0 to {}, but got {}{}", op,
                                    size - 1, peer, peer == rank ? ", this rank itself" : ""));
}

void require_rank(int rank, int size, std::string_view op, std::string_view argument) {
  if (rank >= 0 && rank < size) return;
  throw InvalidArgument(fmt::format("{}: expected a rank from 0 to {}{}, but got {}", op, size - 1,
                                    argument.empty() ? "" : fmt::format(" for '{}'", argument),
                                    rank));
}

void require_row_counts(std::span<const std::int64_t> rows, const Tensor& tensor, int ranks,
                        std::string_view op, std::string_view argument, std::string_view list) {
  if (rows.size() != static_cast<std::size_t>(ranks)) {
    throw ShapeError(fmt::format("{}: expected {} numbers in '{}', one per rank, but got {}", op,
                                 ranks, list, rows.size()));
  }
  __int128 total = 0;  // which no list of 64-bit numbers exceeds
  for (const std::int64_t count : rows) {
    if (count < 0) {
      throw ShapeError(
          fmt::format("{}: expected no negative number in '{}', but got {}", op, list, count));
    }
    total += count;
  }
  if (tensor.dim() == 0 || tensor.size(0) != total) {
    const std::string sum = list.empty() ? std::string() : fmt::format(", the sum of '{}'", list);
    throw ShapeError(fmt::format("{}: expected '{}' of {} rows{}, but its shape is {}", op,
                                 argument, total, sum, tensor.sizes().str()));
  }
}

void require_same_row_shape(const Tensor& output, const Tensor& input, std::string_view op) {
  bool same = output.dim() == input.dim() && output.dim() > 0;
  for (int dim = 1; same && dim < output.dim(); ++dim) same = output.size(dim) == input.size(dim);
  if (same) return;
  throw ShapeError(fmt::format("{}: expected rows of one shape, but output is {} and input is {}",
                               op, output.sizes().str(), input.sizes().str()));
}

void require_reducible(ReduceOp op, DType dtype, const CollectiveOptions& options,
                       std::string_view where) {
  (void)reduction_for(op, dtype, 1, where);
  if (options.scale == 1) return;
  if (!is_floating_point(dtype) || (op != ReduceOp::sum && op != ReduceOp::avg)) {
    throw DTypeError(
        fmt::format("{}: expected scale 1 for {} of {}, but got {}; only floating sums and "
                    "averages are scaled",
                    where, name(op), name(dtype), options.scale));
  }
}

}  // namespace gantry
