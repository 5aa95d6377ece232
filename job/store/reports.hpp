#pragma once

#include <mutex>
#include <optional>
#include <vector>

#include <gantry/extend/unique_fd.hpp>

namespace gantry::store {

/// The end of a rank's process, as the owner of a StoreServer saw it.
struct Report {
  int rank;
  bool in_order;
};

/// Reports of other threads to the serving thread of a StoreServer.
///
/// Thread safety: any thread.
class Reports {
 public:
  /// Throws: Error.
  Reports();

  /// Readable while there is something to take.
  [[nodiscard]] int descriptor() const { return wake_.get(); }
  void add(const Report& report);
  /// Asks the serving thread to end.
  void stop();
  /// Takes the reports out; none: the thread ends.
  [[nodiscard]] std::optional<std::vector<Report>> take();

 private:
  void wake() const;

  UniqueFd wake_;
  std::mutex mutex_;  // guards what follows
  std::vector<Report> reports_;
  bool stops_ = false;
};

}  // namespace gantry::store
