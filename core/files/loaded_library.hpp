// A library that is loaded at run time, with the functions that gantry uses of it.
#pragma once

#include <source_location>
#include <string>
#include <string_view>
#include <utility>

#include "core/files/shared_library.hpp"

namespace gantry {

/// The base of a struct of pointers to functions of a library, which are bound as they are
/// declared:
///
///   struct Math : LibraryFunctions {
///     using LibraryFunctions::LibraryFunctions;
///     decltype(&::cos) cos = bind("cos");
///   };
class LibraryFunctions {
 public:
  explicit LibraryFunctions(SharedLibrary& library) : library_(library) {}

 protected:
  /// Becomes the function that it initialises, or null.
  class Binding {
   public:
    Binding(SharedLibrary& library, const char* symbol) : library_(library), symbol_(symbol) {}
    template <class Function>
    operator Function*() const {  // NOLINT(google-explicit-constructor)
      Function* function = nullptr;
      library_.bind(function, symbol_);
      return function;
    }

   private:
    SharedLibrary& library_;
    const char* symbol_;
  };

  /// As SharedLibrary::bind().
  [[nodiscard]] Binding bind(const char* symbol) const { return {library_, symbol}; }

 private:
  SharedLibrary& library_;
};

/// A library and the functions of it that gantry uses, a struct with base LibraryFunctions.
///
/// A library is loaded once: `static const auto& loaded = *new LoadedLibrary<F>(…)`. It is never
/// destroyed, since handles of its objects may outlive static objects.
/// Thread safety: const functions by any thread.
template <class Functions>
class LoadedLibrary {
 public:
  explicit LoadedLibrary(SharedLibrary library)
      : library_(std::move(library)), functions_(library_) {}
  LoadedLibrary(const LoadedLibrary&) = delete;
  LoadedLibrary& operator=(const LoadedLibrary&) = delete;

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
