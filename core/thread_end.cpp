#include "core/thread_end.hpp"

#include <cxxabi.h>

// The linker's name of this library. It stays loaded while functions of threads are pending.
// NOLINTNEXTLINE(bugprone-reserved-identifier): a name of the C++ ABI
extern "C" __attribute__((visibility("hidden"))) void* __dso_handle;

namespace gantry {
namespace {

void call(void* function) { reinterpret_cast<void (*)() noexcept>(function)(); }

}  // namespace

void at_thread_end(void (*function)() noexcept) noexcept {
  // The function that compilers call for the destructor of a thread-local object.
  abi::__cxa_thread_atexit(call, reinterpret_cast<void*>(function), &__dso_handle);
}

}  // namespace gantry
