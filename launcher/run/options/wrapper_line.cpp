#include "launcher/run/options/wrapper_line.hpp"

#include <fmt/format.h>

namespace gantry::launcher {

WrapperLine::WrapperLine(CommandLine& line, PlacementOptions& options)
    : options_(options),
      wrap_option_(
          line.add_option("--wrap", wrap_, "put a command in front of the program; %r: rank")
              .value("COMMAND")) {
  line.add_option("--wrap-rank", rank_wraps_, "the same for some ranks: 0='gdb --args'")
      .repeatable()
      .value("R=COMMAND");
}

void WrapperLine::read() const {
  if (wrap_option_.is_given()) {
    options_.wrappers.push_back(parse_wrapper(wrap_));
    options_.arguments.push_back(fmt::format("--wrap={}", wrap_));
  }
  for (const std::string& text : rank_wraps_) {
    options_.wrappers.push_back(parse_rank_wrapper(text));
    options_.arguments.push_back(fmt::format("--wrap-rank={}", text));
  }
}

}  // namespace gantry::launcher
