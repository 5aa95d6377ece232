#pragma once

#include <string>

#include "launcher/options.hpp"
#include "launcher/plan.hpp"

namespace gantry::launcher {

/// What a job owns on this machine apart from its processes: a name, a scratch directory, and the
/// lifeline, a pipe whose write end only glaunch has.
class JobSite {
 public:
  /// Throws: std::system_error.
  explicit JobSite(const Options& options);
  ~JobSite();
  JobSite(const JobSite&) = delete;
  JobSite& operator=(const JobSite&) = delete;

  [[nodiscard]] const std::string& job_id() const { return job_id_; }
  [[nodiscard]] const std::string& scratch_directory() const { return scratch_; }
  /// Makes the scratch directory. Throws: std::system_error.
  void make_scratch_directory();
  /// Removes it with all that is in it, as the destructor does.
  void remove_scratch_directory();
  /// Where the job's store listens.
  [[nodiscard]] std::string store_address() const;
  /// What the store asks of its clients.
  [[nodiscard]] const std::string& store_token() const { return store_token_; }
  /// Read end of the lifeline.
  [[nodiscard]] int lifeline_fd() const { return lifeline_read_; }
  [[nodiscard]] std::string error_file(int rank) const;
  /// The values that the ranks' environment needs; picks a port for MASTER_PORT.
  [[nodiscard]] JobValues values() const;

 private:
  std::string job_id_;
  std::string store_token_;
  std::string scratch_;
  std::string error_prefix_;
  bool has_scratch_ = false;
  int lifeline_read_ = -1;
  int lifeline_write_ = -1;
};

}  // namespace gantry::launcher
