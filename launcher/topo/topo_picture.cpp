// The SVG of `glaunch topo --svg`.
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/text/escaped_text.hpp"
#include "launcher/topo/topo_print.hpp"
#include "launcher/topo/topo_text.hpp"

namespace gantry::launcher {
namespace {

// "1 GPU" or "8 GPUs".
std::string counted(std::size_t count, std::string_view one) {
  return fmt::format("{} {}{}", count, one, count == 1 ? "" : "s");
}

constexpr int kGpuWidth = 190;
constexpr int kGpuHeight = 64;
constexpr int kGap = 14;
constexpr int kTop = 60;
constexpr int kNodeHeader = 46;
constexpr int kNicHeight = 26;
constexpr int kUnknownNode = -1;

constexpr const char* kStyle =
    "text{font:12px sans-serif;fill:#222}.s{font-size:10px;fill:#555}.t{font-size:16px}"
    ".node{fill:#f3f5f8;stroke:#9aa5b1}.gpu{fill:#d7ecd4;stroke:#4d8b45}"
    ".busy{fill:#f6e3c5;stroke:#b07a1f}.nic{fill:#dbe6f6;stroke:#5678a8}"
    ".link{fill:none;stroke:#4d8b45}.switch{fill:#e4f1e2;stroke:#4d8b45}"
    ".pci{stroke:#9aa5b1;stroke-dasharray:3 2}.page{fill:#fff}"
    "@media (prefers-color-scheme:dark){.page{fill:#14181d}text{fill:#e6e9ec}.s{fill:#aab4be}"
    ".node{fill:#1f262e;stroke:#5a6673}.gpu{fill:#1e3a1c;stroke:#6fb465}"
    ".busy{fill:#43341a;stroke:#c9973f}.nic{fill:#1d2f47;stroke:#6f93c8}"
    ".link{stroke:#6fb465}.switch{fill:#1a3018;stroke:#6fb465}.pci{stroke:#5a6673}}";

// Text that fits into `width` pixels, by a rough measure of its letters.
std::string fitted(std::string text, int width, int letter) {
  const auto most = static_cast<std::size_t>(std::max(1, width / letter));
  if (text.size() > most) {
    std::size_t end = most - 1;  // not inside a character of UTF-8
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
    text = text.substr(0, end) + "…";
  }
  return escape_xml(text);
}

struct Place {
  int x = 0;
  int y = 0;
};

class Picture {
 public:
  explicit Picture(const machine::Topology& topology) : topology_(topology) {
    for (const machine::Topology::NumaNode& node : topology.nodes) columns_[node.id];
    for (std::size_t i = 0; i < topology.gpus.size(); ++i) {
      columns_[known_node(topology.gpus[i].node)].gpus.push_back(i);
    }
    for (std::size_t i = 0; i < topology.nics.size(); ++i) {
      columns_[known_node(topology.nics[i].node)].nics.push_back(i);
    }
    place();
  }

  std::string svg() {
    draw_header();
    for (const auto& [id, column] : columns_) draw_column(id, column);
    draw_switch();
    draw_links();
    for (std::size_t i = 0; i < topology_.gpus.size(); ++i) draw_gpu(i);
    for (std::size_t i = 0; i < topology_.nics.size(); ++i) draw_nic(i);
    return fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} "
        "{1}\">\n<style>{2}</style>\n<rect width=\"{0}\" height=\"{1}\" "
        "class=\"page\"/>\n{3}</svg>\n",
        width_, height_, kStyle, body_);
  }

 private:
  struct Column {
    std::vector<std::size_t> gpus;
    std::vector<std::size_t> nics;
    int x = 0;
    int width = 0;
  };

  int known_node(const machine::Fact<int>& node) const {
    return node && columns_.contains(*node) ? *node : kUnknownNode;
  }

  void place() {
    gpu_places_.resize(topology_.gpus.size());
    nic_places_.resize(topology_.nics.size());
    int x = kGap;
    std::size_t most_nics = 0;
    for (auto& [id, column] : columns_) {
      const auto boxes = static_cast<int>(std::max<std::size_t>(1, column.gpus.size()));
      column.x = x;
      column.width = std::max(boxes * (kGpuWidth + kGap) + kGap, 240);
      x += column.width + kGap;
      for (std::size_t i = 0; i < column.gpus.size(); ++i) {
        gpu_places_[column.gpus[i]] = {column.x + kGap + static_cast<int>(i) * (kGpuWidth + kGap),
                                       kTop + kNodeHeader};
      }
      most_nics = std::max(most_nics, place_nics(column, static_cast<std::size_t>(boxes)));
    }
    node_height_ =
        kNodeHeader + kGpuHeight + 2 * kGap + static_cast<int>(most_nics) * (kNicHeight + 6);
    width_ = std::max(x, 480);
    height_ = kTop + node_height_ + (has_switch() ? 70 : 30) + bow_room();
  }

  machine::Fact<machine::PciPath> path_between(std::size_t gpu, std::size_t nic) const {
    const auto& rows = topology_.nic_paths;
    return gpu < rows.size() && nic < rows[gpu].size() ? rows[gpu][nic]
                                                       : machine::Fact<machine::PciPath>();
  }

  // GPUs of a column, by their index in it, that are nearest to an interface. Empty if all are
  // equally near, or the paths are unknown.
  std::vector<std::size_t> nearest_gpus(const Column& column, std::size_t nic) const {
    std::vector<std::size_t> nearest;
    std::optional<machine::PciPath> best;
    for (std::size_t i = 0; i < column.gpus.size(); ++i) {
      const machine::Fact<machine::PciPath> path = path_between(column.gpus[i], nic);
      if (!path || (best && *path > *best)) continue;
      if (!best || *path < *best) nearest.clear();
      best = *path;
      nearest.push_back(i);
    }
    if (nearest.size() == column.gpus.size()) nearest.clear();
    return nearest;
  }

  // Interfaces stand below the GPU that is nearest, of equally near ones below the first with the
  // fewest. The others fill the rows. The result is the number of rows.
  std::size_t place_nics(const Column& column, std::size_t boxes) {
    std::vector<std::size_t> heights(boxes, 0);
    const auto put = [&](std::size_t nic, std::size_t box) {
      nic_places_[nic] = {column.x + kGap + static_cast<int>(box) * (kGpuWidth + kGap),
                          kTop + kNodeHeader + kGpuHeight + kGap +
                              static_cast<int>(heights[box]) * (kNicHeight + 6)};
      ++heights[box];
    };
    std::vector<std::size_t> others;
    for (const std::size_t nic : column.nics) {
      const std::vector<std::size_t> nearest = nearest_gpus(column, nic);
      if (nearest.empty()) {
        others.push_back(nic);
        continue;
      }
      put(nic, *std::min_element(nearest.begin(), nearest.end(), [&](std::size_t a, std::size_t b) {
            return heights[a] < heights[b];
          }));
    }
    for (const std::size_t nic : others) {
      put(nic, static_cast<std::size_t>(std::min_element(heights.begin(), heights.end()) -
                                        heights.begin()));
    }
    return *std::max_element(heights.begin(), heights.end());
  }

  bool has_switch() const {
    return std::any_of(topology_.gpus.begin(), topology_.gpus.end(),
                       [](const machine::Topology::Gpu& gpu) { return switch_links(gpu) > 0; });
  }

  static int switch_links(const machine::Topology::Gpu& gpu) {
    int count = 0;
    if (!gpu.nvlinks) return count;
    for (const machine::Topology::NvLinks& links : *gpu.nvlinks) {
      if (links.end == machine::Topology::LinkEnd::nvswitch) count += links.count;
    }
    return count;
  }

  static int direct_links(const machine::Topology::Gpu& from, const machine::Topology::Gpu& to) {
    int count = 0;
    if (!from.nvlinks) return count;
    for (const machine::Topology::NvLinks& links : *from.nvlinks) {
      if (links.end == machine::Topology::LinkEnd::gpu && links.bus_id == to.bus_id)
        count += links.count;
    }
    return count;
  }

  // How far the bow between two GPUs reaches below the boxes of the nodes.
  int bow_depth(std::size_t a, std::size_t b) const {
    return 20 + std::abs(gpu_places_[b].x - gpu_places_[a].x) / 6;
  }

  int bow_room() const {
    int room = 0;
    for (std::size_t i = 0; i < topology_.gpus.size(); ++i) {
      for (std::size_t j = i + 1; j < topology_.gpus.size(); ++j) {
        if (direct_links(topology_.gpus[i], topology_.gpus[j]) > 0) {
          room = std::max(room, bow_depth(i, j));
        }
      }
    }
    return room;
  }

  void text(int x, int y, const std::string& content, const char* kind = "") {
    body_ += fmt::format("<text x=\"{}\" y=\"{}\"{}>{}</text>\n", x, y,
                         *kind == '\0' ? "" : fmt::format(" class=\"{}\"", kind), content);
  }

  void box(int x, int y, int width, int height, const char* kind) {
    body_ +=
        fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"4\" class=\"{}\"/>\n",
                    x, y, width, height, kind);
  }

  void draw_header() {
    text(kGap, 26, escape_xml(topology_.host), "t");
    text(kGap, 44,
         escape_xml(fmt::format("{}, {}, {}{}", counted(topology_.cores.size(), "core"),
                                counted(topology_.gpus.size(), "GPU"),
                                counted(topology_.nics.size(), "network interface"),
                                topology_.gpus.empty() ? ": " + topology_.why_no_gpu : "")),
         "s");
  }

  void draw_column(int id, const Column& column) {
    box(column.x, kTop, column.width, node_height_, "node");
    if (id == kUnknownNode) {
      text(column.x + kGap, kTop + 20, no_node_text(topology_));
      return;
    }
    for (const machine::Topology::NumaNode& node : topology_.nodes) {
      if (node.id != id) continue;
      text(column.x + kGap, kTop + 20,
           fmt::format("NUMA node {}, package {}, {}", node.id, node.package,
                       node.memory_bytes ? gibibytes(*node.memory_bytes) : "memory ?"));
      text(column.x + kGap, kTop + 36,
           fitted("CPUs " + node.cpus.str(), column.width - 2 * kGap, 6), "s");
    }
  }

  void draw_gpu(std::size_t index) {
    const machine::Topology::Gpu& gpu = topology_.gpus[index];
    const auto [x, y] = gpu_places_[index];
    const bool is_busy = gpu.processes && *gpu.processes > 0;
    box(x, y, kGpuWidth, kGpuHeight, is_busy ? "busy" : "gpu");
    text(x + 8, y + 18, fitted(fmt::format("GPU{} {}", index, gpu.name), kGpuWidth - 12, 7));
    text(x + 8, y + 33, escape_xml(gpu.bus_id), "s");
    // A simulated device has neither, unless a file says so.
    if (!is_simulated(topology_) || gpu.pcie_generation || gpu.pcie_bandwidth) {
      text(x + 8, y + 46, fitted("PCIe " + pcie_text(gpu), kGpuWidth - 12, 5), "s");
    }
    if (!is_simulated(topology_) || gpu.memory_bytes) {
      text(x + 8, y + 58, fitted(use_text(gpu), kGpuWidth - 12, 5), "s");
    }
  }

  void draw_nic(std::size_t index) {
    const machine::Topology::Nic& nic = topology_.nics[index];
    const auto [x, y] = nic_places_[index];
    box(x, y, kGpuWidth, kNicHeight, "nic");
    text(x + 8, y + 17,
         fitted(nic.name.empty() ? nic.bus_id : nic.name + " " + nic.bus_id, kGpuWidth - 12, 6),
         "s");
  }

  void draw_switch() {
    if (!has_switch()) return;
    const int y = kTop + node_height_ + 28;
    box(kGap, y, width_ - 2 * kGap, 26, "switch");
    text(width_ / 2 - 32, y + 17, "NVSwitch");
    for (std::size_t i = 0; i < topology_.gpus.size(); ++i) {
      const int links = switch_links(topology_.gpus[i]);
      if (links == 0) continue;
      const int x = gpu_places_[i].x + kGpuWidth - 10;
      const int from = gpu_places_[i].y + kGpuHeight;
      body_ +=
          fmt::format("<path class=\"link\" stroke-width=\"2\" d=\"M{0} {1}V{2}\"/>\n", x, from, y);
      text(x - 30, y - 6, fmt::format("NV{}", links), "s");
    }
  }

  // Bows below the nodes, wider for more links.
  void draw_links() {
    const int y = kTop + node_height_;
    for (std::size_t i = 0; i < topology_.gpus.size(); ++i) {
      for (std::size_t j = i + 1; j < topology_.gpus.size(); ++j) {
        const int links = direct_links(topology_.gpus[i], topology_.gpus[j]);
        if (links == 0) continue;
        const int a = gpu_places_[i].x + kGpuWidth / 2;
        const int b = gpu_places_[j].x + kGpuWidth / 2;
        const int depth = bow_depth(i, j);
        body_ += fmt::format(
            "<path class=\"link\" stroke-width=\"{:.1f}\" d=\"M{} {}Q{} {} {} {}\"><title>GPU{} – "
            "GPU{}: NV{}</title></path>\n",
            1.0 + 0.6 * links, a, y, (a + b) / 2, y + 2 * depth, b, y, i, j, links);
        text((a + b) / 2 - 8, y + depth - 3, fmt::format("NV{}", links), "s");
      }
    }
  }

  const machine::Topology& topology_;
  std::map<int, Column> columns_;
  std::vector<Place> gpu_places_;
  std::vector<Place> nic_places_;
  int node_height_ = 0;
  int width_ = 0;
  int height_ = 0;
  std::string body_;
};

}  // namespace

std::string topology_picture(const machine::Topology& topology) { return Picture(topology).svg(); }

}  // namespace gantry::launcher
