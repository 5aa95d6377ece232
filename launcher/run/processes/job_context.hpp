#pragma once

#include <string>

#include "launcher/run/options/output_options.hpp"
#include "launcher/run/plan/plan.hpp"

namespace gantry::launcher {

/// The resources of a job on this machine apart from its processes: its id, a scratch directory,
/// and the liveness pipe, whose write end only glaunch has.
class JobContext {
 public:
  /// Throws: std::system_error.
  explicit JobContext(const OutputOptions& options);
  ~JobContext();
  JobContext(const JobContext&) = delete;
  JobContext& operator=(const JobContext&) = delete;

  [[nodiscard]] const std::string& job_id() const { return job_id_; }
  [[nodiscard]] const std::string& scratch_directory() const { return scratch_; }
  /// Gives the job another id, store address and secret, for its next start. The ids of a job are
  /// "x", "x.1", "x.2", …
  void renew();
  /// Makes the scratch directory. Throws: std::system_error.
  void make_scratch_directory();
  /// Removes it with all that is in it, as the destructor does.
  void remove_scratch_directory();
  /// Where the job's store listens.
  [[nodiscard]] std::string store_address() const;
  /// The store's secret.
  [[nodiscard]] const std::string& store_token() const { return store_token_; }
  /// Read end of the liveness pipe.
  [[nodiscard]] int liveness_fd() const { return liveness_read_; }
  [[nodiscard]] std::string error_file(int rank) const;
  /// The values that the ranks' environment needs; picks a port for MASTER_PORT.
  [[nodiscard]] JobValues values() const;

 private:
  std::string first_job_id_;
  std::string job_id_;
  int restarts_ = 0;
  std::string store_name_;  // of this run: another process could take a name that it foresees
  std::string store_token_;
  std::string scratch_;
  std::string error_prefix_;
  bool has_scratch_ = false;
  int liveness_read_ = -1;
  int liveness_write_ = -1;
};

}  // namespace gantry::launcher
