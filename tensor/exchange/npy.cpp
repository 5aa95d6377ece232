#include <gantry/tensor/npy.hpp>

#include <ostream>
#include <sstream>
#include <string_view>

#include <gantry/core/error.hpp>

#include "core/files/atomic_file.hpp"
#include "tensor/check.hpp"
#include "tensor/exchange/byte_source.hpp"
#include "tensor/exchange/element_io.hpp"
#include "tensor/exchange/npy_header.hpp"

namespace gantry {

namespace {

Dims reversed(int dims) {
  Dims result;
  for (int d = dims - 1; d >= 0; --d) result.push_back(d);
  return result;
}

void check(std::string_view op, const Tensor& self) {
  detail::check_defined(op, "self", self);
  if (detail::has_npy_type(self.dtype())) return;
  throw DTypeError(std::string(op) + ": expected a dtype of NumPy, but got " +
                       std::string(name(self.dtype())) +
                       "; convert it with to(f32), or use save_safetensors",
                   self.device().str());
}

void write(std::string_view op, std::ostream& out, const Tensor& self) {
  const Tensor transposed = self.permute(reversed(self.dim()));
  const bool is_fortran = !self.is_contiguous() && transposed.is_contiguous();
  out << detail::npy_header(self.dtype(), is_fortran, self.sizes());
  detail::write_elements(op, out, is_fortran ? transposed : self);
}

Tensor read(std::string_view op, const detail::ByteSource& source, const TensorOptions& options) {
  const TensorOptions placed = detail::load_options(op, options);
  const detail::NpyHeader header = detail::read_npy_header(source);
  const Dims order = reversed(header.sizes.size());
  Shape sizes = header.sizes;
  if (header.fortran_order) {
    for (int d = 0; d < sizes.size(); ++d) sizes[d] = header.sizes[sizes.size() - 1 - d];
  }
  const Tensor tensor =
      detail::load_elements(source, {.offset = header.bytes, .big_endian = header.big_endian},
                            sizes, header.dtype, placed);
  return header.fortran_order ? tensor.permute(order) : tensor;
}

}  // namespace

void save_npy(const std::filesystem::path& path, const Tensor& self) {
  check("save_npy", self);
  AtomicFile file(path, "save_npy: ");
  write("save_npy", file.out(), self);
  file.commit();
}

Tensor load_npy(const std::filesystem::path& path, const TensorOptions& options) {
  return read("load_npy", detail::FileSource("load_npy", path), options);
}

std::vector<std::byte> to_npy(const Tensor& self) {
  check("to_npy", self);
  std::ostringstream out;
  write("to_npy", out, self);
  const std::string_view text = out.view();
  const auto* const first = reinterpret_cast<const std::byte*>(text.data());
  return {first, first + text.size()};
}

Tensor from_npy(std::span<const std::byte> bytes, const TensorOptions& options) {
  return read("from_npy", detail::MemorySource("from_npy", bytes), options);
}

}  // namespace gantry
