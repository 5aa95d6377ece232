// The JSON in the header of a safetensors file.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <gantry/tensor/safetensors.hpp>

namespace gantry::detail {

// The members of a tensor as the JSON has them. Nothing is checked but their form.
struct StoredTensor {
  std::string dtype;
  std::vector<std::int64_t> sizes;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

struct StoredHeader {
  std::map<std::string, StoredTensor, std::less<>> tensors;
  SafetensorsMetadata metadata;
};

// Parses {"name": {"dtype": …, "shape": […], "data_offsets": [begin, end]}, …} and the texts of
// "__metadata__". Needs no memory beyond the result: the text may be 100 MB of anything.
// Throws: InvalidArgument for another form, for a name that is there twice, and for no JSON.
[[nodiscard]] StoredHeader parse_safetensors_schema(std::string_view text);

}  // namespace gantry::detail
