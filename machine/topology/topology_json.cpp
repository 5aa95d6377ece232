#include <fmt/format.h>

#include <cstdint>

#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/machine/topology.hpp>

#include "core/text/escaped_text.hpp"
#include "core/text/json.hpp"
#include "machine/topology/names.hpp"
#include "machine/topology/topology_file.hpp"

namespace gantry::machine {
namespace {

constexpr int kSchema = 1;
constexpr const char* kKind = "gantry topology";

// Note [Topology as JSON]
// describe() lists the members of each part once. A Writer converts them to JSON, a Reader converts
// JSON to them, and a Printer escapes the texts among them. A fact is {"value": …, "source":
// "nvml"}, or null if it is unknown.

template <class Visitor>
void describe(Visitor& visit, Topology::NumaNode& node) {
  visit("id", node.id);
  visit("package", node.package);
  visit("cpus", node.cpus);
  visit("memory_bytes", node.memory_bytes);
}

template <class Visitor>
void describe(Visitor& visit, Topology::Core& core) {
  visit("cpus", core.cpus);
  visit("package", core.package);
  visit("node", core.node);
  visit("cache_group", core.cache_group);
}

template <class Visitor>
void describe(Visitor& visit, Topology::NvLinks& links) {
  visit("end", links.end);
  visit("bus_id", links.bus_id);
  visit("count", links.count);
}

template <class Visitor>
void describe(Visitor& visit, Topology::Gpu& gpu) {
  visit("name", gpu.name);
  visit("uuid", gpu.uuid);
  visit("bus_id", gpu.bus_id);
  visit("node", gpu.node);
  visit("cpus", gpu.cpus);
  visit("pci_chain", gpu.pci_chain);
  visit("pcie_generation", gpu.pcie_generation);
  visit("pcie_width", gpu.pcie_width);
  visit("max_pcie_generation", gpu.max_pcie_generation);
  visit("max_pcie_width", gpu.max_pcie_width);
  visit("pcie_bandwidth", gpu.pcie_bandwidth);
  visit("memory_bytes", gpu.memory_bytes);
  visit("used_memory_bytes", gpu.used_memory_bytes);
  visit("processes", gpu.processes);
  visit("compute_capability", gpu.compute_capability);
  visit("nvlinks", gpu.nvlinks);
  visit("inactive_nvlinks", gpu.inactive_nvlinks);
}

template <class Visitor>
void describe(Visitor& visit, Topology::Nic& nic) {
  visit("name", nic.name);
  visit("bus_id", nic.bus_id);
  visit("node", nic.node);
  visit("pci_chain", nic.pci_chain);
}

template <class Visitor>
void describe(Visitor& visit, Topology::Link& link) {
  visit("nvlinks", link.nvlinks);
  visit("may_have_nvlinks", link.may_have_nvlinks);
  visit("path", link.path);
  visit("peer_access", link.peer_access);
}

template <class Visitor>
void describe(Visitor& visit, Topology& topology) {
  visit("host", topology.host);
  visit("virtualization", topology.virtualization);
  visit("container", topology.container);
  visit("driver_version", topology.driver_version);
  visit("shm_bytes", topology.shm_bytes);
  visit("cpu_quota", topology.cpu_quota);
  visit("allowed_cpus", topology.allowed_cpus);
  visit("nodes", topology.nodes);
  visit("cores", topology.cores);
  visit("gpu_source", topology.gpu_source);
  visit("gpus", topology.gpus);
  visit("nics", topology.nics);
  visit("links", topology.links);
  visit("nic_paths", topology.nic_paths);
  visit("why_no_gpu", topology.why_no_gpu);
  visit("warnings", topology.warnings);
}

class Writer {
 public:
  template <class T>
  void operator()(const char* key, const T& value) {
    json_.append(key, encode(value));
  }
  template <class Part>
  static Json object(Part part) {
    Writer writer;
    describe(writer, part);
    return std::move(writer.json_);
  }

 private:
  static Json encode(const CpuSet& value) { return value.str(); }
  static Json encode(FactSource value) { return name(value); }
  static Json encode(PciPath value) { return name(value); }
  static Json encode(Topology::LinkEnd value) { return name(value); }
  template <class T>
  static Json encode(const Fact<T>& fact) {
    if (!fact) return nullptr;
    return Json::object({{"value", encode(*fact)}, {"source", name(fact.source)}});
  }
  template <class T>
  static Json encode(const std::vector<T>& values) {
    Json list = Json::array();
    for (const T& value : values) list.push_back(encode(value));
    return list;
  }
  template <class T>
  static Json encode(const T& value) {
    if constexpr (std::is_constructible_v<Json, const T&>) {
      return value;
    } else {
      return object(value);
    }
  }

  Json json_ = Json::object();
};

class Reader {
 public:
  template <class T>
  void operator()(const char* key, T& value) {
    decode(json_.at(key), value);
  }
  // Files of earlier versions lack the facts that came later.
  template <class T>
  void operator()(const char* key, Fact<T>& fact) {
    if (const Json* const json = json_.find(key)) decode(*json, fact);
  }
  template <class Part>
  static void object(const Json& json, Part& part) {
    if (!json.is_object()) throw JsonError(json, "expected an object");
    Reader reader(json);
    describe(reader, part);
  }

 private:
  explicit Reader(const Json& json) : json_(json) {}

  static void decode(const Json& json, CpuSet& value) {
    const std::string text = json.as<std::string>();
    try {
      value = CpuSet::parse(text);
    } catch (const InvalidArgument&) {
      throw JsonError(json, fmt::format("expected CPUs such as \"0-3,8\", but got \"{}\"", text));
    }
  }
  static void decode(const Json& json, PciPath& value) {
    decode_name(json, value, &path_named, "X, PIX, PXB, PHB, NODE or SYS");
  }
  static void decode(const Json& json, Topology::LinkEnd& value) {
    decode_name(json, value, &link_end_named, "gpu, switch, processor or ?");
  }
  static void decode(const Json& json, FactSource& value) {
    decode_name(json, value, &source_named, "the name of a source");
  }
  template <class Enum>
  static void decode_name(const Json& json, Enum& value,
                          std::optional<Enum> (*named)(std::string_view), const char* expected) {
    const std::string text = json.as<std::string>();
    const auto found = named(text);
    if (!found) throw JsonError(json, fmt::format("expected {}, but got \"{}\"", expected, text));
    value = *found;
  }
  template <class T>
  static void decode(const Json& json, Fact<T>& fact) {
    if (json.is_null()) return;
    T value{};
    decode(json.at("value"), value);
    decode(json.at("source"), fact.source);
    fact.value = std::move(value);
  }
  template <class T>
  static void decode(const Json& json, std::vector<T>& values) {
    for (const Json& element : json.elements()) {
      T value{};
      decode(element, value);
      values.push_back(std::move(value));
    }
  }
  template <class T>
  static void decode(const Json& json, T& value) {
    if constexpr (std::is_constructible_v<Json, const T&>) {
      value = json.as<T>();
    } else {
      object(json, value);
    }
  }

  const Json& json_;
};

class Printer {
 public:
  template <class T>
  void operator()(const char*, T& value) {
    escape(value);
  }

 private:
  static void escape(std::string& text) { text = escape_control_characters(text); }
  static void escape(CpuSet&) {}
  template <class T>
  void escape(Fact<T>& fact) {
    if (fact.value) escape(*fact.value);
  }
  template <class T>
  void escape(std::vector<T>& values) {
    for (T& value : values) escape(value);
  }
  template <class T>
  void escape(T& part) {
    if constexpr (std::is_class_v<T>) describe(*this, part);
  }
};

void require_matrix(const Json& root, const char* key, std::size_t rows, std::size_t columns) {
  const Json& matrix = root.at(key);
  const auto wrong = [&](const Json& json, std::size_t expected) {
    return JsonError(json, fmt::format("expected {} elements, but got {}", expected, json.size()));
  };
  if (matrix.size() != rows) throw wrong(matrix, rows);
  for (const Json& row : matrix.elements()) {
    if (row.size() != columns) throw wrong(row, columns);
  }
}

// Numbers in place of names: the n-th GPU is "GPU-00000000-0000-0000-0000-00000000000n".
Topology redacted(Topology topology) {
  topology.host = "host";
  for (std::size_t i = 0; i < topology.gpus.size(); ++i) {
    Topology::Gpu& gpu = topology.gpus[i];
    gpu.uuid =
        fmt::format("{}-00000000-0000-0000-0000-{:012x}", gpu.is_instance() ? "MIG" : "GPU", i + 1);
  }
  topology.warnings.clear();
  topology.why_no_gpu.clear();
  return topology;
}

}  // namespace

void make_printable(Topology& topology) {
  Printer printer;
  printer("", topology);
}

std::string topology_json(const Topology& topology, bool redact) {
  Json root = Json::object({{"schema", kSchema}, {"kind", kKind}});
  const Json parts = Writer::object(redact ? redacted(topology) : topology);
  for (const auto& [key, value] : parts.members()) root.append(key, value);
  return root.dump(1) + "\n";
}

Topology parse_topology_json(std::string_view text) {
  const Json root = Json::parse(text);
  return read_json(root, [](const Json& json) {
    if (!json.is_object() || json.value_or<std::string>("kind", "") != kKind) {
      throw InvalidArgument(fmt::format("expected a JSON object with \"kind\": \"{}\"", kKind));
    }
    if (const Json& schema = json.at("schema"); schema.as<int>() != kSchema) {
      throw JsonError(schema,
                      fmt::format("expected schema {}, but got {}", kSchema, schema.as<int>()));
    }
    Topology topology;
    Reader::object(json, topology);
    require_matrix(json, "links", topology.gpus.size(), topology.gpus.size());
    require_matrix(json, "nic_paths", topology.gpus.size(), topology.nics.size());
    make_printable(topology);
    return topology;
  });
}

}  // namespace gantry::machine
