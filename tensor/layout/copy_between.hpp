#pragma once

#include <gantry/tensor/tensor.hpp>

// Copies between host and device, and between devices. Preconditions: `out` and `in` are defined
// and not empty, and `in` broadcasts to the shape of `out`. Layouts and dtypes are arbitrary.
namespace gantry::detail {

// CPU → device, on the device's current stream. Blocks the host unless `non_blocking` and the host
// memory is pinned.
void copy_to_device(const Tensor& out, const Tensor& in, bool non_blocking);

// Device → CPU, on the device's current stream. Blocks the host unless `non_blocking` and `out` is
// pinned and contiguous.
void copy_to_host(const Tensor& out, const Tensor& in, bool non_blocking);

// Device → another device. Never blocks the host.
void copy_across(const Tensor& out, const Tensor& in);

}  // namespace gantry::detail
