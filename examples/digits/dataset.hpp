#pragma once

#include <cstdint>
#include <string>

#include <gantry/gantry.hpp>

namespace digits {

// Images and labels on one device.
struct Dataset {
  gantry::Tensor pixels;  // f32 [n, 64], 0 to 1
  gantry::Tensor labels;  // i64 [n]

  std::int64_t size() const { return labels.size(0); }
  Dataset to(gantry::Device device) const { return {pixels.to(device), labels.to(device)}; }
};

// Training and test part of the digits, on the CPU.
struct Split {
  Dataset train;
  Dataset test;
};

// Reads rows of 64 pixels and a label from a gzipped CSV file, and deals a fifth of them, chosen by
// `seed`, to the test part. Throws: std::runtime_error that names file and line.
Split load(const std::string& path, std::uint64_t seed);

}  // namespace digits
