#include "tools/replay/workload.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <string>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/extend/parse_number.hpp>

namespace gantry::replay {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

// Removes element `index` as RMM does: the last one takes its place.
template <class T>
T take(std::vector<T>& values, std::size_t index) {
  const T taken = values[index];
  values[index] = values.back();
  values.pop_back();
  return taken;
}

// The arguments of a workload: plain ones in order, and key=value pairs.
class Arguments {
 public:
  Arguments(std::string_view workload, std::string_view text) : workload_(workload) {
    while (!text.empty()) {
      const std::size_t comma = std::min(text.find(','), text.size());
      const std::string_view part = text.substr(0, comma);
      text.remove_prefix(std::min(comma + 1, text.size()));
      const std::size_t equals = part.find('=');
      if (equals == std::string_view::npos) {
        plain_.emplace_back(part);
      } else {
        named_[std::string(part.substr(0, equals))] = part.substr(equals + 1);
      }
    }
  }

  std::int64_t plain(std::size_t index, std::string_view what, std::int64_t max) {
    used_ = std::max(used_, index + 1);
    if (index >= plain_.size()) {
      throw InvalidArgument(fmt::format("--workload {}: expected {}", workload_, what));
    }
    return env::parse_int(plain_[index], fmt::format("--workload {}, {}", workload_, what), 1, max);
  }
  std::int64_t named(const std::string& key, std::int64_t otherwise, std::int64_t min,
                     std::int64_t max) {
    const auto text = take_named(key);
    if (!text) return otherwise;
    return env::parse_int(*text, fmt::format("--workload {}, {}", workload_, key), min, max);
  }
  double fraction(const std::string& key, double otherwise) {
    const auto text = take_named(key);
    if (!text) return otherwise;
    std::size_t used = 0;
    double value = -1;
    try {
      value = std::stod(*text, &used);
    } catch (const std::exception&) {
      used = 0;
    }
    if (used == 0 || used != text->size() || !(value >= 0) || !(value < 1)) {
      throw InvalidArgument(
          fmt::format("--workload {}, {}: expected a number from 0 to below 1, but got '{}'",
                      workload_, key, *text));
    }
    return value;
  }
  void expect_all_used() const {
    if (plain_.size() > used_) {
      throw InvalidArgument(
          fmt::format("--workload {}: '{}' is too much", workload_, plain_[used_]));
    }
    if (!named_.empty()) {
      throw InvalidArgument(
          fmt::format("--workload {}: unknown key '{}'", workload_, named_.begin()->first));
    }
  }

 private:
  std::optional<std::string> take_named(const std::string& key) {
    const auto found = named_.find(key);
    if (found == named_.end()) return std::nullopt;
    std::string text = found->second;
    named_.erase(found);
    return text;
  }

  std::string workload_;
  std::vector<std::string> plain_;
  std::map<std::string, std::string> named_;
  std::size_t used_ = 0;
};

}  // namespace

AllocationSequence rmm_random_allocations(std::size_t allocations, std::size_t max_mib) {
  constexpr std::uint64_t kMaxUsage = 16'000 * kMiB;
  AllocationSequence sequence;
  sequence.name = fmt::format("rmm:{},{}", allocations, max_mib);
  sequence.ops.reserve(allocations * 2);
  struct Live {
    std::uint32_t block;
    std::uint64_t bytes;
  };
  std::vector<Live> live;
  std::uint64_t live_bytes = 0;
  std::default_random_engine random;  // NOLINT: the default seed is the benchmark's
  std::uniform_int_distribution<std::size_t> size_of(1, max_mib * kMiB);
  std::uniform_int_distribution<int> chance_of(0, 99);
  std::uniform_int_distribution<std::size_t> index_of(0, allocations - 1);
  for (std::size_t step = 0; step < allocations * 2; ++step) {
    const std::size_t bytes = size_of(random);
    bool allocate = true;
    if (!live.empty()) {
      const int chance = chance_of(random);
      allocate = chance < 73 && sequence.blocks < allocations && live_bytes + bytes < kMaxUsage;
    }
    if (allocate) {
      live.push_back({sequence.allocate(bytes), bytes});
      live_bytes += bytes;
    } else {
      const Live freed = take(live, index_of(random) % live.size());
      sequence.free(freed.block);
      live_bytes -= freed.bytes;
    }
  }
  return sequence;
}

AllocationSequence training_loop(const TrainingShape& shape) {
  AllocationSequence sequence;
  sequence.name =
      fmt::format("training:layers={},steps={},jitter={}", shape.layers, shape.steps, shape.jitter);
  std::mt19937_64 random(shape.seed);
  // Drawn by hand: the standard's distributions differ between libraries.
  const auto uniform = [&random] { return static_cast<double>(random() >> 11) * 0x1.0p-53; };
  const auto scaled = [](double bytes) {
    return std::max<std::uint64_t>(1, static_cast<std::uint64_t>(bytes));
  };
  for (int layer = 0; layer < shape.layers; ++layer) {
    for (int copy = 0; copy < 3; ++copy) sequence.allocate(shape.layer_bytes);
  }
  // Attention's and the MLP's inputs and outputs, relative to the largest activation.
  constexpr double kKept[] = {0.25, 0.75, 0.25, 1.0};
  constexpr double kTemporary[] = {0.5, 1.0};
  for (int step = 0; step < shape.steps; ++step) {
    const double batch =
        static_cast<double>(shape.activation_bytes) * (1 + shape.jitter * (2 * uniform() - 1));
    std::vector<std::vector<std::uint32_t>> kept(static_cast<std::size_t>(shape.layers));
    for (std::vector<std::uint32_t>& blocks : kept) {
      for (const double part : kTemporary) {
        const std::uint32_t temporary = sequence.allocate(scaled(batch * part));
        for (int i = 0; i < 2; ++i) {
          blocks.push_back(sequence.allocate(scaled(batch * kKept[blocks.size()])));
        }
        sequence.free(temporary);
      }
    }
    std::vector<std::uint32_t> gradients;
    std::uint32_t flowing = sequence.allocate(scaled(batch * 0.25));
    for (auto blocks = kept.rbegin(); blocks != kept.rend(); ++blocks) {
      for (std::size_t i = blocks->size(); i-- > 0;) {
        const std::uint32_t next = sequence.allocate(scaled(batch * kKept[i]));
        sequence.free(flowing);
        sequence.free((*blocks)[i]);
        flowing = next;
      }
      gradients.push_back(sequence.allocate(shape.layer_bytes));
    }
    sequence.free(flowing);
    for (const std::uint32_t gradient : gradients) sequence.free(gradient);
  }
  return sequence;
}

AllocationSequence random_live_set(std::size_t blocks, std::size_t replacements,
                                   std::uint64_t seed) {
  AllocationSequence sequence;
  sequence.name = fmt::format("liveset:{}", blocks);
  std::mt19937_64 random(seed);
  const auto draw_bytes = [&random] {
    const double exponent = 9.0 + 14.0 * static_cast<double>(random() >> 11) * 0x1.0p-53;
    return static_cast<std::uint64_t>(std::exp2(exponent));
  };
  std::vector<std::uint32_t> live;
  for (std::size_t i = 0; i < blocks; ++i) live.push_back(sequence.allocate(draw_bytes()));
  for (std::size_t i = 0; i < replacements; ++i) {
    std::uint32_t& victim = live[random() % live.size()];
    sequence.free(victim);
    victim = sequence.allocate(draw_bytes());
  }
  return sequence;
}

AllocationSequence make_workload(std::string_view text) {
  const std::size_t colon = std::min(text.find(':'), text.size());
  const std::string_view kind = text.substr(0, colon);
  Arguments arguments(kind, text.substr(std::min(colon + 1, text.size())));
  AllocationSequence sequence;
  if (kind == "rmm") {
    const std::int64_t count = arguments.plain(0, "the number of allocations", 100'000'000);
    const std::int64_t max_mib = arguments.plain(1, "the largest size in MiB", 15'999);
    arguments.expect_all_used();
    return rmm_random_allocations(static_cast<std::size_t>(count),
                                  static_cast<std::size_t>(max_mib));
  }
  if (kind == "training") {
    TrainingShape shape;
    shape.layers = static_cast<int>(arguments.named("layers", shape.layers, 1, 10'000));
    shape.steps = static_cast<int>(arguments.named("steps", shape.steps, 1, 100'000));
    shape.jitter = arguments.fraction("jitter", shape.jitter);
    shape.seed = static_cast<std::uint64_t>(arguments.named("seed", 1, 0, INT64_MAX));
    shape.activation_bytes =
        static_cast<std::uint64_t>(arguments.named("activation-mib", 32, 1, 65'536)) * kMiB;
    shape.layer_bytes =
        static_cast<std::uint64_t>(arguments.named("layer-mib", 48, 1, 65'536)) * kMiB;
    arguments.expect_all_used();
    return training_loop(shape);
  }
  if (kind == "liveset") {
    const auto blocks =
        static_cast<std::size_t>(arguments.plain(0, "the number of live blocks", 10'000'000));
    const auto replacements =
        static_cast<std::size_t>(arguments.named("replacements", 100'000, 0, 1'000'000'000));
    const auto seed = static_cast<std::uint64_t>(arguments.named("seed", 1, 0, INT64_MAX));
    arguments.expect_all_used();
    return random_live_set(blocks, replacements, seed);
  }
  throw InvalidArgument(fmt::format(
      "--workload: expected rmm:N,MAXMIB, training[:key=value,…] or liveset:N, but got '{}'",
      text));
}

}  // namespace gantry::replay
