// Commands that stand in front of the program: debuggers, profilers.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gantry::launcher {

/// The words of --wrap, or of --wrap-rank for some ranks.
struct Wrapper {
  std::vector<int> ranks;  ///< empty: all that no other wrapper names
  std::vector<std::string> words;
};

/// Parses the command of --wrap, with the quotes of a shell. Throws: InvalidArgument.
[[nodiscard]] Wrapper parse_wrapper(std::string_view text);
/// Parses "0='gdb --args'", "0,2-3=valgrind" of --wrap-rank. Throws: InvalidArgument.
[[nodiscard]] Wrapper parse_rank_wrapper(std::string_view text);

/// The words in front of the program of `rank`: %r is the rank, %l the rank on its machine, %% a
/// percent sign. Nothing without a wrapper for it.
[[nodiscard]] std::vector<std::string> wrapper_of(const std::vector<Wrapper>& wrappers, int rank,
                                                  int local_rank);

/// Checks that the job of `ranks` ranks has those that wrappers name. Throws: InvalidArgument.
void check_wrappers(const std::vector<Wrapper>& wrappers, int ranks);

}  // namespace gantry::launcher
