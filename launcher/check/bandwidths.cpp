#include "launcher/check/bandwidths.hpp"

#include <fmt/format.h>

#include <utility>

namespace gantry::launcher {
namespace {

constexpr int kWidth = 8;

std::string number_text(const Bandwidth& bandwidth) {
  if (!bandwidth.gigabytes_per_second) return bandwidth.failure.empty() ? "-" : "?";
  return fmt::format("{:.{}f}", *bandwidth.gigabytes_per_second,
                     *bandwidth.gigabytes_per_second < 10 ? 2 : 1);
}

Json matrix_json(const std::vector<std::vector<Bandwidth>>& matrix) {
  Json rows = Json::array();
  for (const auto& row : matrix) {
    Json cells = Json::array();
    for (const Bandwidth& cell : row) cells.push_back(cell.gigabytes_per_second);
    rows.push_back(std::move(cells));
  }
  return rows;
}

// Numbers of the peers of each GPU.
std::string matrix_text(const std::string& title,
                        const std::vector<std::vector<Bandwidth>>& matrix) {
  std::string text = title + "\n      ";
  for (std::size_t i = 0; i < matrix.size(); ++i) {
    text += fmt::format("{:>{}}", fmt::format("GPU{}", i), kWidth);
  }
  text += '\n';
  for (std::size_t i = 0; i < matrix.size(); ++i) {
    text += fmt::format("{:<6}", fmt::format("GPU{}", i));
    for (std::size_t j = 0; j < matrix.size(); ++j) {
      text += fmt::format("{:>{}}", i == j ? "X" : number_text(matrix[i][j]), kWidth);
    }
    text += '\n';
  }
  return text;
}

}  // namespace

Bandwidths Bandwidths::of(std::size_t gpus, std::vector<int> nodes) {
  Bandwidths bandwidths;
  bandwidths.write.assign(gpus, std::vector<Bandwidth>(gpus));
  bandwidths.read.assign(gpus, std::vector<Bandwidth>(gpus));
  bandwidths.host.assign(gpus, std::vector<Host>(nodes.size()));
  bandwidths.nodes = std::move(nodes);
  return bandwidths;
}

Json bandwidths_json(const Bandwidths& bandwidths) {
  Json hosts = Json::array();
  for (std::size_t gpu = 0; gpu < bandwidths.host.size(); ++gpu) {
    for (std::size_t at = 0; at < bandwidths.nodes.size(); ++at) {
      const Bandwidths::Host& host = bandwidths.host[gpu][at];
      const int node = bandwidths.nodes[at];
      hosts.push_back(Json::object({{"gpu", gpu},
                                    {"node", node < 0 ? Json() : Json(node)},
                                    {"to_device", host.to_device.gigabytes_per_second},
                                    {"to_host", host.to_host.gigabytes_per_second}}));
    }
  }
  return Json::object({{"unit", "GB/s"},
                       {"write", matrix_json(bandwidths.write)},
                       {"read", matrix_json(bandwidths.read)},
                       {"host", std::move(hosts)}});
}

std::string bandwidths_text(const Bandwidths& bandwidths) {
  std::string text;
  if (bandwidths.write.size() > 1) {
    text += matrix_text("\nGB/s that the GPU of the line writes to the GPU of the column:",
                        bandwidths.write);
    text += matrix_text("GB/s that the GPU of the line reads from the GPU of the column:",
                        bandwidths.read);
  }
  if (bandwidths.host.empty()) return text;
  text += "GB/s between page-locked memory and the GPU:\n";
  for (std::size_t gpu = 0; gpu < bandwidths.host.size(); ++gpu) {
    for (std::size_t at = 0; at < bandwidths.nodes.size(); ++at) {
      const Bandwidths::Host& host = bandwidths.host[gpu][at];
      const int node = bandwidths.nodes[at];
      text += fmt::format("{:<6}{:<13}{:>{}} to the GPU{:>{}} from it\n", fmt::format("GPU{}", gpu),
                          node < 0 ? "any node" : fmt::format("NUMA node {}", node),
                          number_text(host.to_device), kWidth, number_text(host.to_host), kWidth);
    }
  }
  return text;
}

}  // namespace gantry::launcher
