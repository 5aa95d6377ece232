#include "tools/bench/model/model_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <initializer_list>
#include <optional>
#include <string_view>

#include <gantry/core/error.hpp>
#include <gantry/machine/plan.hpp>
#include <gantry/machine/topology.hpp>

#include "core/files/regular_file.hpp"
#include "core/text/json.hpp"
#include "machine/topology/topology_file.hpp"

namespace gantry::bench {

namespace {

using machine::Topology;

constexpr std::string_view kKind = "gantry machines";
constexpr int kSchema = 1;
constexpr std::size_t kMostBytes = std::size_t{1} << 20;

void require_only(const Json& object, std::initializer_list<std::string_view> known) {
  if (!object.is_object()) throw JsonError(object, "expected an object");
  for (const auto& [key, value] : object.members()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    throw JsonError(value, fmt::format("expected only the fields {}", fmt::join(known, ", ")));
  }
}

double positive(const Json& json) {
  const double value = json.as<double>();
  if (std::isfinite(value) && value > 0) return value;
  throw JsonError(json, fmt::format("expected a number greater than 0, but got {}", json.dump()));
}

LinkRates read_rates(const Json& json) {
  require_only(json, {"latency_us", "bandwidth_gbs"});
  return {.latency_us = positive(json.at("latency_us")),
          .bandwidth_gbs = positive(json.at("bandwidth_gbs"))};
}

// The topology file lies beside the model file, unless its path is absolute.
Topology read_topology(const Json& json, const std::string& model_path) {
  const auto path = std::filesystem::path(model_path).parent_path() / json.as<std::string>();
  try {
    Topology topology = machine::read_topology_file(path.string());
    if (topology.gpus.empty()) {
      throw InvalidArgument(fmt::format(
          "topology file '{}': expected a machine with GPUs, but got none", path.string()));
    }
    return topology;
  } catch (const InvalidArgument& error) {
    throw JsonError(json, error.what());
  }
}

// True if `holds` for all pairs of GPUs.
template <class Holds>
bool all_links(const Topology& topology, Holds holds) {
  for (std::size_t i = 0; i < topology.gpus.size(); ++i) {
    for (std::size_t j = 0; j < topology.gpus.size(); ++j) {
      if (i != j && !holds(topology.links[i][j])) return false;
    }
  }
  return true;
}

void set_topology(const Topology& topology, MachineModel& model) {
  model.device = topology.gpus.front().name;
  model.interfaces = std::max<int>(1, static_cast<int>(topology.nics.size()));
  for (const machine::RankPlacement& rank : machine::plan(topology).ranks) {
    model.nics.push_back(rank.nic.value_or(0));
  }
  model.reaches_peers = all_links(
      topology, [](const Topology::Link& link) { return link.peer_access.value.value_or(true); });
  const bool is_simulated = topology.gpu_source == machine::FactSource::simulated;
  model.keeps_line_order = is_simulated || all_links(topology, [](const Topology::Link& link) {
                             return link.nvlinks.value.value_or(0) > 0;
                           });
}

MachineModel model_in(const Json& json, const std::string& path) {
  require_only(
      json, {"kind", "schema", "topology", "machines", "device", "open_memory", "links", "note"});
  if (json.value_or<std::string>("kind", "") != kKind) {
    throw InvalidArgument(fmt::format("expected a JSON object with \"kind\": \"{}\"", kKind));
  }
  if (const Json& schema = json.at("schema"); schema.as<int>() != kSchema) {
    throw JsonError(schema, fmt::format("expected {}, but got {}", kSchema, schema.as<int>()));
  }
  MachineModel model;
  model.path = path;
  set_topology(read_topology(json.at("topology"), path), model);
  if (const Json* const device = json.find("device")) model.device = device->as<std::string>();
  model.opens_memory = json.value_or("open_memory", true);
  if (const Json* const machines = json.find("machines")) {
    const std::optional<std::int64_t> count = machines->integer();
    const int most = kMostModelRanks / model.width();
    if (!count || *count < 1 || *count > most) {
      throw JsonError(*machines, fmt::format("expected 1 to {} machines of {} GPUs, but got {}",
                                             most, model.width(), machines->dump()));
    }
    model.machines = static_cast<int>(*count);
  }
  const Json& links = json.at("links");
  require_only(links, {"peer", "host", "network"});
  model.peer = read_rates(links.at("peer"));
  model.host = read_rates(links.at("host"));
  if (model.machines > 1 || links.contains("network")) {
    model.network = read_rates(links.at("network"));
  }
  return model;
}

}  // namespace

MachineModel read_model(const std::string& path) {
  const FileContent file = read_regular_file(path, kMostBytes);
  const auto fail = [&](std::string_view problem) {
    return InvalidArgument(fmt::format("--model: '{}': {}", path, problem));
  };
  if (!file.ok()) throw fail(file.problem);
  try {
    return read_json(Json::parse(file.text),
                     [&](const Json& json) { return model_in(json, path); });
  } catch (const InvalidArgument& error) {
    throw fail(error.what());
  }
}

}  // namespace gantry::bench
