// A library that is loaded at run time, with the functions that gantry uses of it.
#pragma once

#include <source_location>
#include <string>
#include <string_view>
#include <utility>

#include "core/files/shared_library.hpp"

namespace gantry {

/// `Functions` has pointers to functions, and a member `bind(SharedLibrary&)` that sets them.
///
/// A library is loaded once: `static const auto& loaded = *new LoadedLibrary<F>(…)`. It is never
/// destroyed, since handles of its objects may outlive static objects.
/// Thread safety: const functions by any thread.
template <class Functions>
class LoadedLibrary {
 public:
  explicit LoadedLibrary(SharedLibrary library) : library_(std::move(library)) {
    functions_.bind(library_);
  }

  /// Why the library cannot be used: as SharedLibrary::problem().
  [[nodiscard]] const std::string& problem() const { return library_.problem(); }
  /// Some are null if there is a problem.
  [[nodiscard]] const Functions& functions() const { return functions_; }
  /// Throws: NotSupported "<operation>: <problem>" if the library cannot be used.
  [[nodiscard]] const Functions& require(
      std::string_view operation,
      std::source_location where = std::source_location::current()) const {
    library_.require(operation, where);
    return functions_;
  }

 private:
  SharedLibrary library_;
  Functions functions_;
};

}  // namespace gantry
