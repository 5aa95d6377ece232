// Libraries that are loaded at run time.
#pragma once

#include <source_location>
#include <string>
#include <string_view>
#include <vector>

namespace gantry {

/// A library that is loaded at run time, so that programs start without it.
///
/// It stays loaded until the process ends: its threads and exit handlers may run until then.
/// Thread safety: const functions by any thread.
class SharedLibrary {
 public:
  /// Loads the first of `candidates` that can be loaded. A name without a slash is searched as
  /// dlopen does, and a path by Note [Code of other users]. Errors name the first candidate and end
  /// with `remedy`, if it is not empty.
  explicit SharedLibrary(const std::vector<std::string>& candidates, std::string remedy = {});

  /// Why the library cannot be used: "failed to load libx.so.1: <cause>; <remedy>". Empty if it
  /// can.
  [[nodiscard]] const std::string& problem() const { return problem_; }
  /// Throws: NotSupported "<operation>: <problem>" if the library cannot be used.
  void require(std::string_view operation,
               std::source_location where = std::source_location::current()) const;
  /// The file that was loaded; empty if none was.
  [[nodiscard]] std::string path() const;

  /// The address of `symbol` in the library and its dependencies, or null.
  [[nodiscard]] void* find(const char* symbol) const noexcept;
  /// Sets `function` to `symbol`, or to null.
  template <class Function>
  bool find(Function*& function, const char* symbol) const noexcept {
    function = reinterpret_cast<Function*>(find(symbol));
    return function != nullptr;
  }
  /// Sets `function` to `symbol`. A library that lacks it cannot be used.
  template <class Function>
  void bind(Function*& function, const char* symbol) {
    if (!find(function, symbol)) reject_without(symbol);
  }
  /// Makes the library one that cannot be used, unless it is one already.
  void reject(std::string_view cause);

 private:
  void reject_without(const char* symbol);

  std::string name_;
  std::string remedy_;
  void* handle_ = nullptr;
  std::string problem_;
};

}  // namespace gantry
