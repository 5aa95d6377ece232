// A library that the program names, loaded for as long as it is used.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

namespace gantry {

/// A library with code of the program. SharedLibrary is for those that gantry looks for, which stay
/// loaded.
///
/// Thread safety: const functions by any thread.
class NamedLibrary {
 public:
  /// Loads the library at a path, by Note [Code of other users], or one that the loader searches.
  explicit NamedLibrary(const std::filesystem::path& path);

  /// Why the library could not be loaded; empty if it was.
  [[nodiscard]] const std::string& problem() const { return problem_; }
  /// The function `symbol`; null, and the loader's reason in `problem`, if there is none.
  template <class Function>
  [[nodiscard]] Function find(const std::string& symbol, std::string& problem) const {
    return reinterpret_cast<Function>(find_symbol(symbol, problem));
  }

 private:
  struct Close {
    void operator()(void* handle) const noexcept;
  };
  [[nodiscard]] void* find_symbol(const std::string& symbol, std::string& problem) const;

  std::string problem_;
  std::unique_ptr<void, Close> handle_;
};

}  // namespace gantry
