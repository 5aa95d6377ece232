#include <gantry/tensor/npy.hpp>

#include <ostream>
#include <sstream>
#include <string_view>

#include "core/files/atomic_file.hpp"
#include "tensor/exchange/byte_source.hpp"
#include "tensor/exchange/element_io.hpp"
#include "tensor/exchange/npy_array.hpp"

namespace gantry {

void save_npy(const std::filesystem::path& path, const Tensor& self) {
  detail::check_npy("save_npy", self);
  AtomicFile file(path, "save_npy: ");
  detail::write_npy("save_npy", file.out(), self);
  file.commit();
}

Tensor load_npy(const std::filesystem::path& path, const TensorOptions& options) {
  const TensorOptions placed = detail::load_options("load_npy", options);
  return detail::read_npy(detail::FileSource("load_npy", path), placed);
}

std::vector<std::byte> to_npy(const Tensor& self) {
  detail::check_npy("to_npy", self);
  std::ostringstream out;
  detail::write_npy("to_npy", out, self);
  const std::string_view text = out.view();
  const auto* const first = reinterpret_cast<const std::byte*>(text.data());
  return {first, first + text.size()};
}

Tensor from_npy(std::span<const std::byte> bytes, const TensorOptions& options) {
  const TensorOptions placed = detail::load_options("from_npy", options);
  return detail::read_npy(detail::MemorySource("from_npy", bytes), placed);
}

}  // namespace gantry
