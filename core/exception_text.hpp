// The text of an exception of any type.
#pragma once

#include <exception>
#include <string>

namespace gantry {

/// The text of the exception that is being handled. Call it in a catch block.
[[nodiscard]] inline std::string current_exception_text() {
  try {
    throw;
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "an exception of unknown type";
  }
}

}  // namespace gantry
