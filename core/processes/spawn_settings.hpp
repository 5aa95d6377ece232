#pragma once

#include <spawn.h>

namespace gantry {

/// How posix_spawn starts a program of another developer from inside a user's process: with default
/// signal actions, an empty signal mask, and standard streams of its own.
///
/// Descriptors that are given are above 2. A closed standard stream of the user's process would
/// otherwise give its number to one of them.
class SpawnSettings {
 public:
  /// The program reads /dev/null, and writes both output streams to `output`.
  /// Throws: Error.
  explicit SpawnSettings(int output) : SpawnSettings(-1, output) {}
  /// As above, but it reads `input` unless that is −1.
  SpawnSettings(int input, int output);
  ~SpawnSettings();
  SpawnSettings(const SpawnSettings&) = delete;
  SpawnSettings& operator=(const SpawnSettings&) = delete;

  /// The program starts in the open directory `folder`. Throws: as the constructor.
  void start_in(int folder);
  /// The program leads a process group of its own, which kill() ends with its children. Throws: as
  /// the constructor.
  void lead_group();

  [[nodiscard]] const posix_spawn_file_actions_t* actions() const { return &actions_; }
  [[nodiscard]] const posix_spawnattr_t* attributes() const { return &attributes_; }

 private:
  posix_spawn_file_actions_t actions_;
  posix_spawnattr_t attributes_;
};

}  // namespace gantry
