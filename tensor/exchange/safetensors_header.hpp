// The header of a safetensors file.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
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

// Bits per element of a type of the format, or 0. Sets `dtype` if gantry has it.
[[nodiscard]] std::uint64_t safetensors_bits(std::string_view name, std::optional<DType>& dtype);

// The bytes of a tensor by its shape and the bits of an element, or nothing if the elements end
// within a byte or if there are more than any file has.
[[nodiscard]] std::optional<std::uint64_t> safetensors_bytes(const std::vector<std::int64_t>& sizes,
                                                             std::uint64_t bits);

// A tensor to write. Its elements are those of `tensor`.
struct SafetensorsItem {
  std::string_view name;
  std::string_view dtype_name;
  std::vector<std::int64_t> sizes;
  const Tensor* tensor = nullptr;
};

// The items in the order of a file: by alignment, then by name. Precondition: the types are of the
// format.
[[nodiscard]] std::vector<SafetensorsItem> safetensors_items(
    const NamedTensors& tensors, std::span<const SafetensorsBytes> bytes);
// The length and the header. Throws: Error if it is too large.
[[nodiscard]] std::string safetensors_header(std::span<const SafetensorsItem> items,
                                             const SafetensorsMetadata& metadata);

}  // namespace gantry::detail
