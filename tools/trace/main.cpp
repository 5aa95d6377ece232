#include <fmt/format.h>

#include <filesystem>
#include <string>
#include <vector>

#include <gantry/kernels/trace.hpp>

#include "command_line/command_line.hpp"
#include "core/text/escaped_text.hpp"
#include "tools/program/program.hpp"

namespace gantry::trace {
namespace {

constexpr const char* kFooter = R"(
  GANTRY_TRACE=trace.{rank}.json glaunch -n 4 ./train
  gantry-trace trace.0.json trace.1.json trace.2.json trace.3.json -o trace.json

Open the file in https://ui.perfetto.dev.
Exit code: 0, or 2 for errors of the command line, the input or the output.)";

int run(const std::vector<std::string>& arguments) {
  std::vector<std::string> inputs;
  std::string output;
  CommandLine line("Merges the traces of several ranks into one.", "gantry-trace");
  line.set_footer(kFooter);
  line.add_option("FILE", inputs, "the traces, one of each rank").required();
  line.add_option("-o,--output", output, "the file to write")
      .value("FILE", ValueKind::file)
      .required();
  if (const std::string text = line.parse(arguments); !text.empty()) {
    fmt::print("{}", text);
    return 0;
  }
  merge(std::vector<std::filesystem::path>(inputs.begin(), inputs.end()), output);
  fmt::print("wrote {}: {} ranks\n", escape_control_characters(output), inputs.size());
  return 0;
}

}  // namespace
}  // namespace gantry::trace

int main(int argc, char** argv) {
  return gantry::run_program("gantry-trace", argc, argv, gantry::trace::run);
}
