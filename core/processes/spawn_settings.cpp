#include "core/processes/spawn_settings.hpp"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cstring>

#include <gantry/core/error.hpp>

namespace gantry {

namespace {

void check(int code) {
  if (code != 0) {
    throw Error(std::string("failed to prepare the start of a program: ") + std::strerror(code));
  }
}

}  // namespace

SpawnSettings::SpawnSettings(int input, int output) {
  check(posix_spawn_file_actions_init(&actions_));
  if (const int code = posix_spawnattr_init(&attributes_); code != 0) {
    posix_spawn_file_actions_destroy(&actions_);
    check(code);
  }
  try {
    if (input < 0) {
      check(posix_spawn_file_actions_addopen(&actions_, STDIN_FILENO, "/dev/null", O_RDONLY, 0));
    } else {
      check(posix_spawn_file_actions_adddup2(&actions_, input, STDIN_FILENO));
    }
    check(posix_spawn_file_actions_adddup2(&actions_, output, STDOUT_FILENO));
    check(posix_spawn_file_actions_adddup2(&actions_, output, STDERR_FILENO));
    sigset_t none;
    sigset_t all;
    sigemptyset(&none);
    sigfillset(&all);
    check(posix_spawnattr_setsigmask(&attributes_, &none));
    check(posix_spawnattr_setsigdefault(&attributes_, &all));
    check(posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF));
  } catch (...) {
    posix_spawn_file_actions_destroy(&actions_);
    posix_spawnattr_destroy(&attributes_);
    throw;
  }
}

SpawnSettings::~SpawnSettings() {
  posix_spawn_file_actions_destroy(&actions_);
  posix_spawnattr_destroy(&attributes_);
}

void SpawnSettings::start_in(int folder) {
  check(posix_spawn_file_actions_addfchdir_np(&actions_, folder));
}

void SpawnSettings::lead_group() {
  short flags = 0;
  check(posix_spawnattr_getflags(&attributes_, &flags));
  check(posix_spawnattr_setpgroup(&attributes_, 0));
  check(posix_spawnattr_setflags(&attributes_, static_cast<short>(flags | POSIX_SPAWN_SETPGROUP)));
}

}  // namespace gantry
