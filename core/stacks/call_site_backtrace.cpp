// Names of code addresses from debug information, through libbacktrace.
#include <backtrace.h>

#include "core/stacks/call_site_symbols.hpp"

namespace gantry::stacks {
namespace {

struct Search {
  std::vector<NamedFrame> functions;
  const char* symbol = nullptr;
};

void ignore_error(void*, const char*, int) {}

// Never freed: libbacktrace keeps what it has read.
backtrace_state* debug_information() {
  constexpr int kThreaded = 1;
  static backtrace_state* const state =
      backtrace_create_state(nullptr, kThreaded, ignore_error, nullptr);
  return state;
}

int add_function(void* argument, std::uintptr_t, const char* file, int line, const char* function) {
  if (function == nullptr) return 0;
  static_cast<Search*>(argument)->functions.push_back(
      {{file != nullptr ? file : "??", line, demangled(function)}, function});
  return 0;
}

void take_symbol(void* argument, std::uintptr_t, const char* symbol, std::uintptr_t,
                 std::uintptr_t) {
  static_cast<Search*>(argument)->symbol = symbol;
}

}  // namespace

std::vector<NamedFrame> functions_at(std::uintptr_t address) {
  Search search;
  backtrace_state* const state = debug_information();
  if (state != nullptr) {
    backtrace_pcinfo(state, address, add_function, ignore_error, &search);
    backtrace_syminfo(state, address, take_symbol, ignore_error, &search);
    if (!search.functions.empty()) {
      // Debug information has no scope for functions that only their file can see.
      NamedFrame& outermost = search.functions.back();
      if (search.symbol != nullptr && !outermost.symbol.starts_with("_Z")) {
        outermost.frame.name = demangled(search.symbol);
        outermost.symbol = search.symbol;
      }
      return std::move(search.functions);
    }
  }
  NamedFrame function = function_by_module(address);
  if (search.symbol != nullptr) {
    function.frame.name = demangled(search.symbol);
    function.symbol = search.symbol;
  }
  return {std::move(function)};
}

}  // namespace gantry::stacks
