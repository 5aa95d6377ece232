// One rank's part in a measurement.
#pragma once

#include <optional>
#include <string>

#include <gantry/collectives/communicator.hpp>
#include <gantry/tensor/tensor.hpp>

#include "tools/bench/operation.hpp"
#include "tools/bench/pattern.hpp"
#include "tools/bench/timing.hpp"

namespace gantry::bench {

/// The result of a case; the same on all ranks.
struct CaseResult {
  Timing timing;
  /// Elements of all ranks that are not what the definition says; none if it was not checked.
  std::optional<std::int64_t> wrong;
  /// Why it could not be measured, or empty.
  std::string skipped;
};

/// Runs cases on one communicator. Every rank makes one, in a process or thread of its own, and
/// calls it alike.
class RankBench {
 public:
  /// Makes a stream of its own current, of the communicator's device, for this thread.
  explicit RankBench(Communicator communicator);

  /// Checks the result of a single call first if `check`; no timing if something is wrong, nor if
  /// `repetitions` has no batches.
  [[nodiscard]] CaseResult run(const Case& what, const Repetitions& repetitions, bool check);

  [[nodiscard]] const Communicator& communicator() const { return communicator_; }

 private:
  struct Buffers;

  [[nodiscard]] Buffers make_buffers(const Case& what) const;
  void fill(const Case& what, Buffers& buffers) const;
  void submit(const Case& what, Buffers& buffers);
  [[nodiscard]] std::int64_t wrong_elements(const Case& what, const Buffers& buffers) const;
  [[nodiscard]] Timing measure(const Case& what, Buffers& buffers, const Repetitions& repetitions);
  // The greatest of all ranks' values, position by position.
  [[nodiscard]] std::vector<double> maximum(const std::vector<double>& mine);
  [[nodiscard]] std::int64_t total(std::int64_t mine);
  // The first text of a rank that is not empty.
  [[nodiscard]] std::string first_failure(const std::string& mine);

  Communicator communicator_;
  Stream stream_;
};

}  // namespace gantry::bench
