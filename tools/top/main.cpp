#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <gantry/core/env.hpp>
#include <gantry/core/error.hpp>

#include "tools/program/program.hpp"
#include "tools/top/columns.hpp"
#include "tools/top/live.hpp"
#include "tools/top/options.hpp"
#include "tools/top/sample.hpp"
#include "tools/top/sample_json.hpp"
#include "tools/top/table.hpp"
#include "tools/top/terminal.hpp"

namespace gantry::top {
namespace {

void print(const std::string& text) {
  if (std::fputs(text.c_str(), stdout) < 0 || std::fflush(stdout) != 0) {
    throw Error(fmt::format("failed to write to standard output: {}", std::strerror(errno)));
  }
}

void print_table(const Sample& sample) {
  const std::size_t columns = output_columns();
  std::string text;
  for (const std::string& line : table_lines(sample)) {
    text += (columns == 0 ? line : cut(line, columns)) + "\n";
  }
  print(text);
}

int run(const std::vector<std::string>& arguments) {
  const Options options = parse_options(arguments);
  if (!options.text.empty()) {
    print(options.text);
    return 0;
  }
  const machine::Nvml nvml(env::get("GANTRY_NVML_PATH").value_or(machine::Nvml::kDefaultPath));
  if (options.once) {
    const Sample sample = take_sample(nvml);
    if (options.json) {
      print(sample_json(sample).dump(2) + "\n");
    } else {
      print_table(sample);
    }
    return 0;
  }
  if (!options.json) {
    run_live(nvml, options.interval);
    return 0;
  }
  for (auto next = std::chrono::steady_clock::now();; next += options.interval) {
    std::this_thread::sleep_until(next);
    print(sample_json(take_sample(nvml)).dump() + "\n");
  }
}

}  // namespace
}  // namespace gantry::top

int main(int argc, char** argv) {
  return gantry::run_program("gantry-top", argc, argv, gantry::top::run);
}
