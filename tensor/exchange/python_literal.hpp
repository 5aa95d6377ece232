// The Python literal in the header of a NumPy file.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace gantry::detail {

// What is wrong with a header.
class MalformedHeader : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)}
struct NpyDict {
  std::string descr;           ///< the text of a list or tuple for a structured type
  bool is_structured = false;  ///< `descr` is no string
  bool fortran_order = false;
  std::vector<std::int64_t> shape;
};

// Parses the dict, with its three keys in any order. White space may stand between the tokens and
// behind it, and nothing else. Throws: MalformedHeader.
[[nodiscard]] NpyDict parse_npy_dict(std::string_view text);

}  // namespace gantry::detail
