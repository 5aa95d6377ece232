// A statement about tensors, as record.py writes it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <gantry/tensor/tensor.hpp>

namespace gantry::testing {

/// One line of data/statements.dat.
struct Statement {
  std::uint64_t answer = 0;         ///< hash of PyTorch's results
  std::string operation;            ///< a name of operations.hpp
  std::string parameters;           ///< as text
  std::vector<std::string> inputs;  ///< `dtype:shape:layout:seed`
};

/// Parses a line. Throws std::runtime_error for one that is malformed.
[[nodiscard]] Statement parse_statement(std::string_view line);

/// The tensor of an input, on `device`.
[[nodiscard]] Tensor input_tensor(std::string_view text, Device device);

/// FNV-1a of the dtypes, the shapes and the elements; all NaNs count as one.
[[nodiscard]] std::uint64_t hash_of(const std::vector<Tensor>& results);

/// The parts of `text` between separators.
[[nodiscard]] std::vector<std::string> split(std::string_view text, char separator);

}  // namespace gantry::testing
