#include "launcher/check/bandwidth_run.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include <gantry/extend/unique_fd.hpp>

#include "core/files/code_file.hpp"
#include "launcher/command/option_values.hpp"
#include "launcher/run/processes/job_context.hpp"
#include "launcher/run/processes/process.hpp"
#include "launcher/run/processes/reaper.hpp"

namespace gantry::launcher {
namespace {

using Clock = std::chrono::steady_clock;

// A driver that crashed once may crash at every pair.
constexpr int kMostRuns = 4;
// A process that is stuck in the driver does not end by SIGKILL.
constexpr std::chrono::seconds kTimeToDie{5};

// Splits output into lines.
class LineBuffer {
 public:
  // Calls `use` with each line that is complete now.
  template <class Use>
  void add(std::string_view text, Use&& use) {
    rest_ += text;
    std::size_t begin = 0;
    for (std::size_t end = 0; (end = rest_.find('\n', begin)) != std::string::npos;
         begin = end + 1) {
      use(std::string_view(rest_).substr(begin, end - begin));
    }
    rest_.erase(0, begin);
  }

 private:
  std::string rest_;
};

// One run of the program.
class Run {
 public:
  Run(const Process& process, BandwidthReader& reader)
      : pid_(process.pid),
        out_(process.stdout_fd),
        err_(process.stderr_fd),
        end_(static_cast<int>(syscall(SYS_pidfd_open, process.pid, 0))),
        reader_(reader) {}

  // Reads until the program ends, or is silent for `deadline`. Returns how it ended, as
  // BandwidthReader::end() takes it.
  std::string follow(std::chrono::milliseconds deadline) {
    Clock::time_point last = Clock::now();
    for (;;) {
      std::array<pollfd, 3> entries{
          {{out_.get(), POLLIN, 0}, {err_.get(), POLLIN, 0}, {end_.get(), POLLIN, 0}}};
      const auto left =
          std::chrono::ceil<std::chrono::milliseconds>(last + deadline - Clock::now());
      if (left.count() <= 0) return stop(deadline);
      const int count = poll(entries.data(), entries.size(), static_cast<int>(left.count()));
      if (count < 0 && errno != EINTR) return stop(deadline);
      if (count <= 0) continue;
      if (read_output()) last = Clock::now();
      if (entries[2].revents != 0) {
        read_output();
        return wait_for_end();
      }
    }
  }

  // True if the program does not end even by SIGKILL.
  [[nodiscard]] bool is_stuck() const { return is_stuck_; }

 private:
  // True if there was a line of standard output.
  bool read_output() {
    bool has_line = false;
    read_all(out_, out_lines_, [&](std::string_view line) {
      has_line = true;
      reader_.read(line);
    });
    read_all(err_, err_lines_, [&](std::string_view line) { last_words_ = line; });
    return has_line;
  }

  template <class Use>
  static void read_all(UniqueFd& fd, LineBuffer& lines, Use&& use) {
    std::array<char, 4096> chunk;
    while (fd) {
      const ssize_t got = ::read(fd.get(), chunk.data(), chunk.size());
      if (got > 0) {
        lines.add({chunk.data(), static_cast<std::size_t>(got)}, use);
      } else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
        fd.reset();  // poll() ignores it from now on
      } else if (errno == EAGAIN) {
        return;
      }
    }
  }

  std::string stop(std::chrono::milliseconds deadline) {
    kill(-pid_, SIGKILL);
    pollfd entry{end_.get(), POLLIN, 0};
    const auto wait = std::chrono::duration_cast<std::chrono::milliseconds>(kTimeToDie);
    is_stuck_ = poll(&entry, 1, static_cast<int>(wait.count())) <= 0;
    if (!is_stuck_) (void)wait_for_end();
    return fmt::format("the measuring process gave no answer within {:g} s{}",
                       static_cast<double>(deadline.count()) / 1e3,
                       is_stuck_ ? ", and SIGKILL does not end it" : "");
  }

  std::string wait_for_end() {
    int status = 0;
    while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
    std::string text =
        WIFSIGNALED(status)
            ? fmt::format("the measuring process was killed by {}", signal_name(WTERMSIG(status)))
            : fmt::format("the measuring process ended with code {}", WEXITSTATUS(status));
    if (!last_words_.empty()) text += fmt::format(" ({})", last_words_);
    return text;
  }

  pid_t pid_;
  UniqueFd out_;
  UniqueFd err_;
  UniqueFd end_;
  BandwidthReader& reader_;
  LineBuffer out_lines_;
  LineBuffer err_lines_;
  std::string last_words_;  // on standard error
  bool is_stuck_ = false;
};

std::vector<std::string> node_arguments(const machine::Topology& machine) {
  std::vector<std::string> arguments;
  if (machine.nodes.size() < 2) return arguments;
  for (const machine::Topology::NumaNode& node : machine.nodes) {
    const machine::CpuSet cpus =
        machine.allowed_cpus ? node.cpus & *machine.allowed_cpus : node.cpus;
    // Its memory can be used, though its CPUs cannot.
    arguments.insert(arguments.end(), {"--node", fmt::format("{}:{}", node.id, cpus.str())});
  }
  return arguments;
}

}  // namespace

std::string measuring_program() {
  std::error_code error;
  const std::filesystem::path own = std::filesystem::read_symlink("/proc/self/exe", error);
  return (own.parent_path() / GANTRY_LIBEXEC_FROM_BIN / "gantry-check-devices")
      .lexically_normal()
      .string();
}

Bandwidths measure_bandwidths(const std::string& program, const machine::Topology& machine,
                              std::chrono::milliseconds deadline) {
  BandwidthReader reader(machine);
  const auto fail = [&](const ExecFailure& failure) {
    Bandwidths result = reader.take();
    result.failures.push_back(failure.message);
    return result;
  };
  const auto found = find_program(program, "");
  if (const auto* failure = std::get_if<ExecFailure>(&found)) return fail(*failure);
  if (const CodeFile file = check_code_file(program, CodeOrigin::found); !file.ok()) {
    return fail({EACCES, fmt::format("cannot start '{}': {}", program, file.problem)});
  }
  const JobContext context{OutputOptions{}};
  const Reaper reaper(context.job_id(), context.scratch_directory());
  SpawnRequest request;
  request.executable = program;
  request.environment = current_environment();
  request.environment["GANTRY_JOB_ID"] = context.job_id();
  getrlimit(RLIMIT_NOFILE, &request.descriptors);
  std::optional<std::size_t> first = 0;
  for (int run = 0; first && run < kMostRuns; ++run) {
    request.arguments = {program, "--first", std::to_string(*first)};
    for (std::string& argument : node_arguments(machine)) {
      request.arguments.push_back(std::move(argument));
    }
    const auto started = spawn(request, reaper);
    if (const auto* failure = std::get_if<ExecFailure>(&started)) return fail(*failure);
    Run one(std::get<Process>(started), reader);
    first = reader.end(one.follow(deadline));
    if (one.is_stuck()) break;
  }
  Bandwidths result = reader.take();
  if (first) result.failures.emplace_back("the measurement was given up after several failures");
  return result;
}

}  // namespace gantry::launcher
