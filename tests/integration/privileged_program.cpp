// Reports what a program with more rights than its caller takes from the environment.
//
//   privileged_program as USER PROGRAM ARGUMENT…   becomes another user and runs a program
//   privileged_program report                      prints the variables that count, and uses them
#include <grp.h>
#include <unistd.h>

#include <cstdlib>
#include <exception>
#include <iostream>
#include <string>
#include <string_view>

#include <gantry/gantry.hpp>

#include "collectives/bootstrap/failure_note.hpp"
#include "core/env/env_check.hpp"
#include "core/files/code_file.hpp"
#include "machine/nvml/loaded_nvml.hpp"

namespace {

int run_as(char** arguments) {
  const auto user = static_cast<uid_t>(std::stoul(arguments[0]));
  if (setgroups(0, nullptr) != 0 || setresgid(user, user, user) != 0 ||
      setresuid(user, user, user) != 0) {
    return 3;
  }
  execv(arguments[1], arguments + 1);
  return 4;
}

template <class Body>
void tell(const char* what, Body&& body) {
  try {
    std::cout << what << ": " << body() << '\n';
  } catch (const std::exception& error) {
    std::cout << what << " failed: " << error.what() << '\n';
  }
}

int report() {
  std::cout << "privileged " << gantry::env::is_privileged() << '\n';
  for (const auto& variable : gantry::env::variables()) {
    const std::string name(variable.name);
    if (gantry::env::get(name.c_str())) std::cout << "honours " << name << '\n';
  }
  for (const char* name :
       {"PATH", "TMPDIR", "CXX", "HOME", "XDG_CACHE_HOME", "HWLOC_PLUGINS_PATH"}) {
    if (gantry::env::get(name)) std::cout << "honours " << name << '\n';
  }
  tell("devices", [] { return gantry::device_count(); });
  tell("device", [] { return gantry::ones({2}, gantry::Device::cuda(0)).numel(); });
  tell("size", [] { return gantry::detect_process_identity().world_size; });
  tell("program", [] { return gantry::find_in_path("sh").value_or("none").string(); });
  tell("compiled", [] {
    const auto square =
        gantry::jit::elementwise("template <class T> T square(T x) { return x * x; }");
    return square(gantry::ones({2}, gantry::Device::cpu())).sum().item<float>();
  });
  tell("nvml", [] { return gantry::machine::loaded_nvml().problem(); });
  tell("range", [] {
    gantry::nvtx::mark("mark");
    return "made";
  });
  tell("topology", [] { return gantry::machine::discover_topology().nodes.size(); });
  gantry::report_to_launcher(
      {.kind = gantry::FailureKind::error, .message = "failed", .ranks = {}});
  tell("page", [] {
    gantry::memory::save_snapshot("snapshot.html");
    return "made";
  });
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view action = argc > 1 ? argv[1] : "";
  if (action == "as" && argc > 3) return run_as(argv + 2);
  return action == "report" ? report() : 2;
}
