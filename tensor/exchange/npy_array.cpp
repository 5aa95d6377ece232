#include "tensor/exchange/npy_array.hpp"

#include <string>

#include <gantry/core/error.hpp>

#include "tensor/check.hpp"
#include "tensor/exchange/element_io.hpp"
#include "tensor/exchange/npy_header.hpp"

namespace gantry::detail {

namespace {

Dims reversed(int dims) {
  Dims result;
  for (int d = dims - 1; d >= 0; --d) result.push_back(d);
  return result;
}

// True for a dense tensor in column-major order.
bool is_fortran(const Tensor& self) {
  return !self.is_contiguous() && self.permute(reversed(self.dim())).is_contiguous();
}

std::string header_of(const Tensor& self) {
  return npy_header(self.dtype(), is_fortran(self), self.sizes());
}

}  // namespace

void check_npy(std::string_view op, const Tensor& self) {
  check_defined(op, "self", self);
  if (has_npy_type(self.dtype())) return;
  throw DTypeError(std::string(op) + ": expected a dtype of NumPy, but got " +
                       std::string(name(self.dtype())) +
                       "; convert it with to(f32), or use save_safetensors",
                   self.device().str());
}

void write_npy(std::string_view op, std::ostream& out, const Tensor& self) {
  out << header_of(self);
  write_elements(op, out, is_fortran(self) ? self.permute(reversed(self.dim())) : self);
}

std::uint64_t npy_bytes(const Tensor& self) { return header_of(self).size() + self.nbytes(); }

Tensor read_npy(const ByteSource& source, const TensorOptions& placed) {
  const NpyHeader header = read_npy_header(source);
  const Dims order = reversed(header.sizes.size());
  Shape sizes = header.sizes;
  if (header.fortran_order) {
    for (int d = 0; d < sizes.size(); ++d) sizes[d] = header.sizes[sizes.size() - 1 - d];
  }
  const Tensor tensor =
      load_elements(source, {.offset = header.bytes, .big_endian = header.big_endian}, sizes,
                    header.dtype, placed);
  return header.fortran_order ? tensor.permute(order) : tensor;
}

}  // namespace gantry::detail
