// The header of a safetensors file.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <gantry/core/dtype.hpp>
#include <gantry/tensor/safetensors.hpp>

#include "tensor/exchange/byte_source.hpp"

namespace gantry::detail {

// As the reference implementation. Headers of real models have some hundred kB.
inline constexpr std::uint64_t kMaxSafetensorsHeader = 100'000'000;
inline constexpr std::string_view kMetadataName = "__metadata__";

struct SafetensorsPlace {
  SafetensorsEntry entry;
  std::uint64_t offset = 0;  ///< of the first byte, from the begin of the file
};

struct SafetensorsHeader {
  std::vector<std::string> names;  ///< in the order of the file
  std::map<std::string, SafetensorsPlace, std::less<>> tensors;
  SafetensorsMetadata metadata;
};

// Reads and checks the header. Throws: Error with the source's name.
[[nodiscard]] SafetensorsHeader read_safetensors_header(const ByteSource& source);

// The name of a dtype in the format.
[[nodiscard]] std::string_view safetensors_name(DType dtype);
// Bits per element of a type of the format, or 0. Sets `dtype` if gantry has it.
[[nodiscard]] std::uint64_t safetensors_bits(std::string_view name, std::optional<DType>& dtype);

// The order of the elements in a file: by alignment, then by name.
[[nodiscard]] std::vector<std::string> safetensors_order(const NamedTensors& tensors);
// The length and the header. Throws: Error if it is too large.
[[nodiscard]] std::string safetensors_header(const NamedTensors& tensors,
                                             const std::vector<std::string>& order,
                                             const SafetensorsMetadata& metadata);

}  // namespace gantry::detail
