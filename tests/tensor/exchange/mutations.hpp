// Files damaged at random, and tensors written by others.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include <gantry/tensor/tensor.hpp>

namespace gantry::testing {

inline void write_file(const std::filesystem::path& path, const std::string& content) {
  // A file that is truncated and written again goes to the disk at once.
  std::filesystem::remove(path);
  std::ofstream(path, std::ios::binary) << content;
}

/// `content` with one to four bytes changed, removed, doubled, or cut off behind a place.
inline std::string mutated(std::string content, std::mt19937& random) {
  const auto below = [&](std::size_t limit) { return static_cast<std::size_t>(random()) % limit; };
  const std::size_t times = 1 + below(4);
  for (std::size_t i = 0; i < times && !content.empty(); ++i) {
    // Most damage goes to the header.
    const std::size_t header = std::min<std::size_t>(content.size(), 200);
    const std::size_t at = below(below(4) == 0 ? content.size() : header);
    switch (below(6)) {
      case 0:
        content[at] = static_cast<char>(random());
        break;
      case 1:
        content[at] = static_cast<char>(content[at] ^ (1 << below(8)));
        break;
      case 2:
        content[at] = "0123456789,:()[]{}'\"<>-LTF "[below(27)];
        break;
      case 3:
        content.erase(at, 1);
        break;
      case 4:
        content.insert(at, 1, content[at]);
        break;
      default:
        content.resize(at);
    }
  }
  return content;
}

/// The elements of the files in data/: i - 2; for u8 i; for bool whether i is odd.
inline std::vector<double> file_values(std::size_t count, DType dtype) {
  std::vector<double> result;
  for (std::size_t i = 0; i < count; ++i) {
    const auto number = static_cast<double>(i);
    result.push_back(dtype == DType::bool_ ? static_cast<double>(i % 2)
                     : dtype == DType::u8  ? number
                                           : number - 2);
  }
  return result;
}

/// The number of files in a folder.
inline std::size_t files_in(const std::filesystem::path& folder) {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder)) ++count;
  return count;
}

}  // namespace gantry::testing
