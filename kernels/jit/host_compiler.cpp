#include "kernels/jit/host_compiler.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <optional>
#include <sstream>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <gantry/core/env.hpp>
#include <gantry/core/error.hpp>
#include <gantry/extend/unique_fd.hpp>
#include <gantry/kernels/compile_error.hpp>

#include "core/files/code_file.hpp"
#include "core/files/regular_file.hpp"
#include "core/processes/spawn_settings.hpp"
#include "core/text/escaped_text.hpp"
#include "device/platform/sanitizers.hpp"
#include "kernels/jit/counts.hpp"
#include "kernels/jit/program.hpp"
#include "kernels/jit/work_folder.hpp"

namespace gantry::kernels::jit {

namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr auto kDeadline = std::chrono::seconds(120);
constexpr std::size_t kMostLog = std::size_t{64} << 10;
constexpr std::size_t kMostLibrary = std::size_t{64} << 20;
constexpr const char* kProgramFile = "program.cpp";
constexpr const char* kLibraryFile = "program.so";

// The file that a command names: a path, or a name that is looked for in PATH.
std::optional<std::string> find_program(const std::string& name) {
  if (name.find('/') == std::string::npos) {
    const std::optional<fs::path> found = find_in_path(name);
    return found ? std::optional(found->string()) : std::nullopt;
  }
  if (!is_program(name)) return std::nullopt;
  if (const CodeFile file = check_code_file(name, CodeOrigin::named); !file.ok()) {
    throw NotSupported(
        fmt::format("jit::elementwise: failed to use the C++ compiler '{}': {}; set "
                    "CXX to another compiler",
                    escape_control_characters(name), file.problem));
  }
  return name;
}

std::string identity_of(const std::string& program) {
  std::error_code ignored;
  const fs::path file = fs::canonical(program, ignored);
  struct stat status {};
  (void)stat(program.c_str(), &status);
  return fmt::format("{} {} {}.{}", file.string(), status.st_size, status.st_mtim.tv_sec,
                     status.st_mtim.tv_nsec);
}

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

class Pipe {
 public:
  Pipe() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
      throw Error(fmt::format("jit::elementwise: failed to make a pipe: {}", std::strerror(errno)));
    }
    // Above the standard streams, whose numbers may be free.
    read_end = UniqueFd(fcntl(ends[0], F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
    write_end = UniqueFd(fcntl(ends[1], F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
    close(ends[0]);
    close(ends[1]);
    if (!read_end || !write_end) {
      throw Error(fmt::format("jit::elementwise: failed to make a pipe: {}", std::strerror(errno)));
    }
  }

  UniqueFd read_end;
  UniqueFd write_end;
};

// The environment without what would be loaded into the compiler, and with plain messages.
std::vector<std::string> compiler_environment() {
  std::vector<std::string> result;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    if (!text.starts_with("LD_PRELOAD=") && !text.starts_with("LC_ALL=")) result.emplace_back(text);
  }
  result.emplace_back("LC_ALL=C");
  return result;
}

std::vector<char*> pointers_to(std::vector<std::string>& words) {
  std::vector<char*> result;
  for (std::string& word : words) result.push_back(word.data());
  result.push_back(nullptr);
  return result;
}

// Reads until the writers are gone. False if the deadline comes first.
bool read_until(Clock::time_point deadline, int from, std::string& text) {
  char buffer[4096];
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) return false;
    pollfd waited{from, POLLIN, 0};
    const int ready = poll(&waited, 1, static_cast<int>(left));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return false;
    const ssize_t count = read(from, buffer, sizeof(buffer));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return true;
    text.append(buffer, std::min(static_cast<std::size_t>(count), kMostLog - text.size()));
  }
}

// Runs a command in `folder` to its end and returns what it wrote. What it made tells whether it
// succeeded: the program may reap every child itself. See Note [Running gantry-snapshot].
std::string run(std::vector<std::string> words, int folder) {
  Pipe pipe;
  std::vector<std::string> environment = compiler_environment();
  const std::string program = words.front();
  pid_t child = -1;
  int failure = 0;
  {
    SpawnSettings settings(pipe.write_end.get());
    settings.start_in(folder);
    settings.lead_group();
    failure = posix_spawn(&child, program.c_str(), settings.actions(), settings.attributes(),
                          pointers_to(words).data(), pointers_to(environment).data());
  }
  pipe.write_end = UniqueFd();
  if (failure != 0) {
    throw Error(fmt::format("jit::elementwise: failed to run the compiler '{}': {}", program,
                            std::strerror(failure)));
  }
  count().compiled.fetch_add(1, std::memory_order_relaxed);
  std::string text;
  const bool has_ended = read_until(Clock::now() + kDeadline, pipe.read_end.get(), text);
  if (!has_ended) kill(-child, SIGKILL);
  while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  if (!has_ended) {
    throw TimeoutError(fmt::format(
        "jit::elementwise: failed to compile: the compiler '{}' did not end within {} s", program,
        kDeadline.count()));
  }
  return text;
}

}  // namespace

HostCompiler find_host_compiler() {
  const auto make = [](const std::string& program, std::string arguments) {
    return HostCompiler{program, std::move(arguments), identity_of(program)};
  };
  const std::vector<std::string> named = words_of(env::get("CXX").value_or(""));
  if (!named.empty()) {
    if (const auto found = find_program(named.front())) {
      return make(*found, fmt::format("{}", fmt::join(named.begin() + 1, named.end(), "\n")));
    }
    throw NotSupported(
        fmt::format("jit::elementwise: failed to find a C++ compiler: CXX is '{}', which is no "
                    "program; set CXX to a compiler",
                    escape_control_characters(named.front())));
  }
  for (const char* name : {"c++", "g++", "clang++"}) {
    if (const auto found = find_program(name)) return make(*found, {});
  }
  throw NotSupported(
      "jit::elementwise: failed to find a C++ compiler: CXX is unset, and PATH has no c++, g++ or "
      "clang++; install one, or set CXX");
}

std::string host_flags() {
  std::string flags =
      "-std=c++20\n-O3\n-fPIC\n-shared\n-ffp-contract=off\n-fno-math-errno\n"
      "-fno-trapping-math\n-fvisibility=hidden\n-w";
  // A sanitizer of the process sees the program's accesses, too. The process brings its runtime.
  const LoadedSanitizers loaded = loaded_sanitizers();
  if (loaded.thread) flags += "\n-fsanitize=thread\n-nodefaultlibs";
  if (loaded.address) flags += "\n-fsanitize=address\n-nodefaultlibs";
  return flags;
}

std::string compile_for_host(const HostCompiler& compiler, const std::string& program,
                             const std::string& source, const std::string& what) {
  const WorkFolder folder;
  folder.write(kSourceFile, source);
  folder.write(kProgramFile, program);
  std::vector<std::string> words{compiler.program};
  for (const std::string& word : words_of(compiler.arguments + "\n" + host_flags())) {
    words.push_back(word);
  }
  for (const char* word : {"-o", kLibraryFile, kProgramFile}) words.emplace_back(word);
  const std::string log = run(std::move(words), folder.descriptor());
  FileContent library = folder.read(kLibraryFile, kMostLibrary);
  if (library.ok() && !library.text.empty()) return std::move(library.text);
  throw ::gantry::jit::CompileError(
      fmt::format("jit::elementwise: failed to compile {} with '{}':", what, compiler.program),
      log.empty() ? "the compiler wrote no message"
                  : escape_control_characters(log, LineEnds::keep));
}

}  // namespace gantry::kernels::jit
