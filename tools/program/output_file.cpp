#include "tools/program/output_file.hpp"

#include <fmt/format.h>

#include <gantry/core/error.hpp>

#include "core/files/atomic_file.hpp"
#include "core/files/output_file.hpp"

namespace gantry {

void check_output(const std::string& path) {
  const std::string problem = why_no_output(path);
  if (!problem.empty()) throw Error(fmt::format("failed to write '{}': {}", path, problem));
}

void write_output(const std::string& path, const std::string& text) {
  AtomicFile file(path);
  file.out() << text;
  file.commit();
}

}  // namespace gantry
