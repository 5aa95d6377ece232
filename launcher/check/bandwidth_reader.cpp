#include <fmt/format.h>

#include <algorithm>

#include "launcher/check/bandwidth_run.hpp"

namespace gantry::launcher {
namespace {

std::vector<int> nodes_of(const machine::Topology& machine) {
  std::vector<int> nodes;
  for (const machine::Topology::NumaNode& node : machine.nodes) nodes.push_back(node.id);
  if (nodes.size() < 2) return {-1};
  return nodes;
}

}  // namespace

BandwidthReader::BandwidthReader(const machine::Topology& machine)
    : machine_(machine), bandwidths_(Bandwidths::of(machine.gpus.size(), nodes_of(machine))) {}

void BandwidthReader::read(std::string_view text) {
  const std::optional<Json> line = Json::try_parse(text);
  if (!line || !line->is_object()) return;
  try {
    if (line->contains("devices")) {
      read_devices(*line);
    } else if (line->contains("begin")) {
      begin(*line);
    } else if (line->contains("done")) {
      if (current_ != nullptr) {
        current_->gigabytes_per_second = line->at("gigabytes_per_second").as<double>();
        current_->bytes = line->at("bytes").as<std::uint64_t>();
        current_->wrong_bytes = line->at("wrong_bytes").as<std::uint64_t>();
        current_->is_by_kernel = line->at("by").as<std::string>() == "kernel";
        if (line->contains("host_node")) current_->host_node = line->at("host_node").as<int>();
      }
      current_ = nullptr;
    } else if (line->contains("failed")) {
      if (current_ != nullptr) current_->failure = line->at("cause").as<std::string>();
      current_ = nullptr;
    } else if (line->contains("cause")) {
      bandwidths_.no_devices = line->at("cause").as<std::string>();
    }
  } catch (const JsonError&) {
    // A line of another program.
  }
}

void BandwidthReader::read_devices(const Json& line) {
  gpus_.clear();
  for (const Json& uuid : line.at("devices").elements()) {
    const auto found =
        std::find_if(machine_.gpus.begin(), machine_.gpus.end(),
                     [name = uuid.as<std::string>()](const machine::Topology::Gpu& gpu) {
                       return gpu.uuid == name;
                     });
    gpus_.emplace_back();
    if (found != machine_.gpus.end()) {
      gpus_.back() = static_cast<std::size_t>(found - machine_.gpus.begin());
    }
  }
  count_ = line.at("measurements").as<std::size_t>();
  has_devices_ = true;
}

void BandwidthReader::begin(const Json& line) {
  next_ = line.at("begin").as<std::size_t>() + 1;
  current_ = find(line);
}

Bandwidth* BandwidthReader::find(const Json& line) {
  const auto gpu_of = [&](int device) -> std::optional<std::size_t> {
    const auto at = static_cast<std::size_t>(device);
    return device < 0 || at >= gpus_.size() ? std::nullopt : gpus_[at];
  };
  const std::optional<std::size_t> gpu = gpu_of(line.at("device").as<int>());
  if (!gpu) return nullptr;
  const auto route = line.at("route").as<std::string>();
  const int other = line.at("other").as<int>();
  if (route == "write" || route == "read") {
    const std::optional<std::size_t> peer = gpu_of(other);
    if (!peer) return nullptr;
    return &(route == "write" ? bandwidths_.write : bandwidths_.read)[*gpu][*peer];
  }
  const auto node = std::find(bandwidths_.nodes.begin(), bandwidths_.nodes.end(), other);
  if (node == bandwidths_.nodes.end()) return nullptr;
  Bandwidths::Host& host =
      bandwidths_.host[*gpu][static_cast<std::size_t>(node - bandwidths_.nodes.begin())];
  return route == "to_device" ? &host.to_device : &host.to_host;
}

std::optional<std::size_t> BandwidthReader::end(const std::string& cause) {
  Bandwidth* const interrupted = std::exchange(current_, nullptr);
  if (!has_devices_) {
    if (bandwidths_.no_devices.empty()) {
      bandwidths_.no_devices = cause.empty() ? "the measuring program found no device" : cause;
    }
    return std::nullopt;
  }
  if (interrupted != nullptr) {
    interrupted->failure = cause.empty() ? "the measuring process ended early" : cause;
  } else if (!cause.empty()) {
    bandwidths_.failures.push_back(cause);
  }
  if (next_ >= count_) return std::nullopt;
  return next_;
}

}  // namespace gantry::launcher
