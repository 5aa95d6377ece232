#include "tools/bench/algorithm_override.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>

#include <gantry/core/env.hpp>
#include <gantry/core/error.hpp>
#include <gantry/device/device.hpp>
#include <gantry/extend/unique_fd.hpp>

#include "collectives/peers/reach.hpp"
#include "core/files/output_file.hpp"

namespace gantry::bench {

namespace {

constexpr const char* kAlgorithm = "GANTRY_COLL_ALGO";
constexpr const char* kTable = "GANTRY_COLL_TABLE";

void restore(const char* name, const std::optional<std::string>& value) {
  if (value) {
    ::setenv(name, value->c_str(), 1);
  } else {
    ::unsetenv(name);
  }
}

// A table in which every operation that can takes `algorithm`.
Selector one_choice(Algorithm algorithm, int blocks) {
  Selector selector;
  for (int i = 0; i < kCollectiveKinds; ++i) {
    const auto kind = static_cast<CollectiveKind>(i);
    if (kind == CollectiveKind::barrier || !can_serve(algorithm, kind)) continue;
    selector.set(kind, {{INT64_MAX, {algorithm, static_cast<std::uint16_t>(blocks)}}},
                 needs_registration(algorithm));
  }
  return selector;
}

}  // namespace

Selector present_selector(int ranks, const std::string& device_name) {
  Selector selector = Selector::load(ranks, device_name);
  const int devices = device_count();
  for (int from = 0; from < devices; ++from) {
    for (int to = 0; to < devices; ++to) {
      if (!keeps_line_order(from, to)) selector.forbid_ll128();
    }
  }
  return selector;
}

AlgorithmOverride::AlgorithmOverride(const std::string& algorithm, std::optional<int> blocks)
    : algorithm_before_(env::get(kAlgorithm)), table_before_(env::get(kTable)) {
  Selector selector;
  selector.rule(algorithm);
  if (blocks) {
    if (selector.forced() == Algorithm::automatic || selector.forced() == Algorithm::copy) {
      throw InvalidArgument(fmt::format(
          "--blocks: expected one algorithm beside it (--algo), but got {}", algorithm));
    }
    const std::string json = one_choice(selector.forced(), *blocks).to_json();
    std::string path = (std::filesystem::temp_directory_path() / "gantry-table-XXXXXX").string();
    const UniqueFd file(::mkostemp(path.data(), O_CLOEXEC));
    if (file) table_path_ = path;
    if (!file || !write_all(file.get(), json)) throw Error(fmt::format("cannot write '{}'", path));
    ::setenv(kTable, path.c_str(), 1);
  }
  ::setenv(kAlgorithm, algorithm.c_str(), 1);
}

AlgorithmOverride::~AlgorithmOverride() {
  restore(kAlgorithm, algorithm_before_);
  restore(kTable, table_before_);
  if (!table_path_.empty()) ::unlink(table_path_.c_str());
}

}  // namespace gantry::bench
