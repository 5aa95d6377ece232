#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/memory/snapshot.hpp>

#include "command_line/command_line.hpp"
#include "core/files/atomic_file.hpp"
#include "core/files/regular_file.hpp"
#include "core/text/escaped_text.hpp"
#include "snapshots/snapshot_json.hpp"
#include "tools/program/program.hpp"
#include "tools/snapshot/page.hpp"
#include "tools/snapshot/pickle_reader.hpp"
#include "tools/snapshot/torch_pickle.hpp"
#include "tools/snapshot/torch_snapshot.hpp"

namespace gantry::snapshot {
namespace {

using memory::Snapshot;

constexpr const char* kFooter = R"(
  gantry-snapshot run.json -o run.html      a page for a browser, complete in one file
  gantry-snapshot run.json -o run.pickle    for PyTorch's memory_viz and its tools
  gantry-snapshot torch.pickle -o run.html  a page from a snapshot of PyTorch

gantry::memory::save_snapshot runs this program for both kinds of files.
Exit code: 0, or 2 for errors of the command line, the input or the output.)";

using Writer = void (*)(const Snapshot& snapshot, std::ostream& out);

Writer writer_for(const std::string& output) {
  const std::string extension = std::filesystem::path(output).extension().string();
  if (extension == ".html") return write_page;
  if (extension == ".pickle") return write_pickle;
  throw InvalidArgument(
      fmt::format("--output: expected a file .html or .pickle, but got '{}'", output));
}

// Pickles begin with this opcode, which no JSON text does.
constexpr int kPickleByte = 0x80;

Snapshot read_pickled(std::istream& in, const std::string& name) {
  std::ostringstream bytes;
  bytes << in.rdbuf();
  if (!in || !bytes) throw Error(fmt::format("failed to read '{}'", name));
  try {
    return read_torch_snapshot(read_pickle(bytes.view()));
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(fmt::format("'{}' is no snapshot: {}", name, error.what()));
  }
}

Snapshot read_input(const std::string& path) {
  if (path == "-") {
    const std::string name = "standard input";
    return std::cin.peek() == kPickleByte ? read_pickled(std::cin, name)
                                          : memory::read_json(std::cin, name);
  }
  // Opening a pipe would wait for its writer. One that is open already is an input like others.
  if (!path.starts_with("/dev/fd/") && !why_not_regular(path).empty()) {
    return memory::read_json_file(path);  // says why
  }
  std::ifstream file(path, std::ios::binary);
  const int first = file.peek();
  if (!file) return memory::read_json_file(path);  // says why
  return first == kPickleByte ? read_pickled(file, path) : memory::read_json(file, path);
}

int run(const std::vector<std::string>& arguments) {
  std::string input;
  std::string output;
  CommandLine line("Makes a page or a pickle from a memory snapshot of gantry or PyTorch.",
                   "gantry-snapshot");
  line.set_footer(kFooter);
  line.add_option("FILE", input,
                  "the snapshot: a .json or .pickle file of save_snapshot or a .pickle file of "
                  "PyTorch; - for stdin")
      .required();
  line.add_option("-o,--output", output, "the file to write: .html or .pickle")
      .value("FILE", ValueKind::file)
      .required();
  if (const std::string text = line.parse(arguments); !text.empty()) {
    fmt::print("{}", text);
    return 0;
  }
  const Writer write = writer_for(output);
  const Snapshot snapshot = read_input(input);
  AtomicFile file(output);
  write(snapshot, file.out());
  file.commit();
  std::size_t events = 0;
  for (const auto& trace : snapshot.device_traces) events += trace.size();
  // save_snapshot reads this line; see Note [Running gantry-snapshot].
  fmt::print("wrote {}: {} segments, {} events\n", escape_control_characters(output),
             snapshot.segments.size(), events);
  return 0;
}

}  // namespace
}  // namespace gantry::snapshot

int main(int argc, char** argv) {
  return gantry::run_program("gantry-snapshot", argc, argv, gantry::snapshot::run);
}
