#include "kernels/layout/roll.hpp"

#include <gantry/device/device.hpp>

#include "kernels/dispatch.hpp"
#include "kernels/layout/copy.hpp"

namespace gantry::kernels {

namespace {

// Up to here a GPU takes as long for a launch as for its work.
constexpr std::int64_t kOneLaunch = std::int64_t{1} << 20;

// Elements [first, first + count) of every row.
TensorRef part_of_rows(const TensorRef& rows, std::int64_t length, std::int64_t first,
                       std::int64_t count) {
  TensorRef part;
  part.data =
      static_cast<char*>(rows.data) + first * static_cast<std::int64_t>(element_size(rows.dtype));
  part.dtype = rows.dtype;
  part.ndim = 2;
  part.sizes[0] = rows.numel() / length;
  part.sizes[1] = count;
  part.strides[0] = length;
  part.strides[1] = 1;
  return part;
}

// True if two copies are faster than one launch, whose threads read single elements: both parts of
// many rows begin and end on 16 bytes.
bool has_wide_parts(const TensorRef& out, const TensorRef& in, std::int64_t length,
                    std::int64_t front) {
  const auto bytes = static_cast<std::int64_t>(element_size(out.dtype));
  const auto is_aligned = [](const void* data) {
    return reinterpret_cast<std::uintptr_t>(data) % 16 == 0;
  };
  return out.numel() > kOneLaunch && length * bytes % 16 == 0 && front * bytes % 16 == 0 &&
         is_aligned(out.data) && is_aligned(in.data);
}

}  // namespace

void roll_rows(const Target& target, const TensorRef& out, const TensorRef& in, std::int64_t length,
               std::int64_t front) {
  if (out.numel() == 0) return;
  if (front == 0) return copy(target, out, in);
  const bool is_gpu = !target.is_cpu() && platform() != Platform::simulated;
  if (is_gpu && (out.numel() >= std::int64_t{1} << 31 || has_wide_parts(out, in, length, front))) {
    const std::int64_t rest = length - front;
    copy(target, part_of_rows(out, length, 0, front), part_of_rows(in, length, rest, front));
    copy(target, part_of_rows(out, length, front, rest), part_of_rows(in, length, 0, rest));
    return;
  }
  const RollPlan plan{out.data, in.data, out.numel(), length, front, out.dtype};
  submit(
      KernelName::moving("roll"), target, {&out, &in}, [plan] { host::roll_rows(plan); },
      [&](void* stream) { cuda::roll_rows(stream, plan); });
}

}  // namespace gantry::kernels
