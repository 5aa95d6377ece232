#include <fmt/format.h>

#include <charconv>
#include <string>
#include <utility>

#include <gantry/core/error.hpp>
#include <gantry/extend/parse_number.hpp>
#include <gantry/machine/plan.hpp>

namespace gantry::machine {
namespace {

constexpr int kMaxGpus = 4096;

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (;;) {
    const auto end = text.find(separator);
    parts.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

}  // namespace

void PlanOptions::set_gpus(std::string_view text) {
  const std::string_view all = text;
  const auto count = [&](std::string_view prefix) {
    text.remove_prefix(prefix.size());
    return static_cast<int>(env::parse_int(text, fmt::format("--gpus {}N", prefix), 1, kMaxGpus));
  };
  PlanOptions chosen = *this;
  chosen.gpu_list.clear();
  chosen.gpu_count = 0;
  if (text == "all") {
    chosen.gpus = GpuChoice::all;
  } else if (text.starts_with("best:")) {
    chosen.gpus = GpuChoice::best;
    chosen.gpu_count = count("best:");
  } else if (text.starts_with("idle:")) {
    chosen.gpus = GpuChoice::idle;
    chosen.gpu_count = count("idle:");
  } else {
    chosen.gpus = GpuChoice::listed;
    chosen.gpu_list = split(text, ',');
    for (const std::string& entry : chosen.gpu_list) {
      if (!entry.empty()) continue;
      throw InvalidArgument(fmt::format(
          "--gpus: expected all, best:N, idle:N or a list such as 0,2 or GPU-ab,GPU-cd, but got "
          "'{}'",
          all));
    }
  }
  *this = std::move(chosen);
}

void PlanOptions::set_order(std::string_view text) {
  if (text == "pci") {
    order = RankOrder::pci;
  } else if (text == "ring") {
    order = RankOrder::ring;
  } else if (text == "given") {
    order = RankOrder::given;
  } else {
    throw InvalidArgument(fmt::format("--order: expected pci, ring or given, but got '{}'", text));
  }
}

void PlanOptions::set_memory(std::string_view text) {
  if (text == "prefer") {
    memory = MemoryMode::prefer;
  } else if (text == "bind") {
    memory = MemoryMode::bind;
  } else if (text == "none") {
    memory = MemoryMode::none;
  } else {
    throw InvalidArgument(fmt::format("--mem: expected prefer, bind or none, but got '{}'", text));
  }
}

void PlanOptions::set_bind(std::string_view text) {
  std::vector<CpuSet> lists;
  BindMode mode = BindMode::listed;
  if (text == "auto") {
    mode = BindMode::automatic;
  } else if (text == "numa") {
    mode = BindMode::numa;
  } else if (text == "core") {
    mode = BindMode::core;
  } else if (text == "none") {
    mode = BindMode::none;
  } else {
    for (const std::string& list : split(text, ':')) {
      CpuSet cpus;
      try {
        cpus = CpuSet::parse(list);
      } catch (const InvalidArgument&) {
        cpus = {};
      }
      if (cpus.empty()) {
        throw InvalidArgument(fmt::format(
            "--bind: expected auto, numa, core, none or CPUs of each rank such as 0-3:4-7, but got "
            "'{}'",
            text));
      }
      lists.push_back(std::move(cpus));
    }
  }
  bind = mode;
  cpu_lists = std::move(lists);
}

}  // namespace gantry::machine
