// Says what a fresh process sees of the devices; the environment decides. Tests read the lines.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>
#include <string_view>

#include <gantry/core/error.hpp>
#include <gantry/device/device.hpp>
#include <gantry/device/guard.hpp>
#include <gantry/device/peer.hpp>
#include <gantry/device/properties.hpp>
#include <gantry/extend/driver.hpp>

namespace {

using gantry::Device;

void say(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

// Runs `call` and says which exception it threw, if any.
template <class Call>
void report(const std::string& name, Call call) {
  try {
    call();
    say(name + " ok");
  } catch (const gantry::ForkError& error) {
    say(name + " ForkError " + error.what());
  } catch (const gantry::NotSupported& error) {
    say(name + " NotSupported " + error.what());
  } catch (const gantry::InvalidArgument& error) {
    say(name + " InvalidArgument " + error.what());
  } catch (const std::exception& error) {
    say(name + " other " + error.what());
  }
}

void describe() {
  report("describe", [] {
    std::ostringstream line;
    line << "platform " << gantry::platform();
    say(line.str());
    say("count " + std::to_string(gantry::device_count()));
    say(std::string("initialized ") + (gantry::is_initialized() ? "yes" : "no"));
    for (int i = 0; i < gantry::device_count(); ++i) {
      const gantry::DeviceProperties& p = gantry::device_properties(Device::cuda(i));
      say("device " + p.uuid + " " + p.pci_bus_id);
    }
  });
}

// Every call that uses a device.
void use_all() {
  report("init", [] { gantry::init(); });
  report("driver", [] { (void)gantry::driver(); });
  report("current_device", [] { (void)gantry::current_device(); });
  report("set_device", [] { gantry::set_device(Device::cuda(0)); });
  report("synchronize", [] { gantry::synchronize(Device::cuda(0)); });
  report("resolved", [] { (void)Device::cuda(0).resolved(); });
  report("guard", [] { const gantry::DeviceGuard guard(Device::cuda(0)); });
  report("properties", [] { (void)gantry::device_properties(Device::cuda(0)); });
}

// Calls that use no device, but look for them.
void count_all() {
  report("device_count", [] { (void)gantry::device_count(); });
  report("devices", [] { (void)gantry::devices(); });
  report("is_available", [] { (void)gantry::is_available(); });
  report("peer_matrix", [] { (void)gantry::peer_matrix(); });
}

// Runs `child` in a forked process and says how that ended.
template <class Child>
void in_fork(Child child) {
  const pid_t pid = fork();
  if (pid == 0) {
    say(std::string("child in_bad_fork ") + (gantry::in_bad_fork() ? "yes" : "no"));
    child();
    _exit(0);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  say(status == 0 ? "child done" : "child failed");
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view command = argc > 1 ? argv[1] : "";
  if (command == "describe") {
    describe();
  } else if (command == "use") {
    use_all();
  } else if (command == "fork-before") {
    const auto all = [] {
      use_all();
      count_all();
    };
    in_fork(all);
    all();
  } else if (command == "fork-after-count") {
    say("count " + std::to_string(gantry::device_count()));
    in_fork(use_all);
  } else if (command == "fork-after-init") {
    gantry::set_device(Device::cuda(0));
    in_fork([] {
      use_all();
      count_all();
    });
    say(std::string("parent in_bad_fork ") + (gantry::in_bad_fork() ? "yes" : "no"));
    report("parent", [] { gantry::synchronize(Device::cuda(0)); });
  } else if (command == "fork-inside-guard") {
    const gantry::DeviceGuard guard(Device::cuda(0));
    const pid_t pid = fork();
    if (pid != 0) {
      int status = 0;
      waitpid(pid, &status, 0);
      say(status == 0 ? "child done" : "child failed");
    }
    // The child leaves through here too: its guard must not touch the devices.
  } else {
    return 2;
  }
  return 0;
}
