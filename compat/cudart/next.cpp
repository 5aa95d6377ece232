#include "compat/cudart/next.hpp"

#include <dlfcn.h>

#include <atomic>
#include <exception>

#include <gantry/core/env.hpp>
#include <gantry/core/log.hpp>
#include <gantry/device/device.hpp>

namespace gantry::cudart_api {

namespace {

enum class Answer { unknown, no, yes };

std::atomic<Answer> answer{Answer::unknown};

// Without the variable there are no simulated devices. libgantry looks for GPUs then, which calls
// this library under the lock that platform() takes.
Answer ask() noexcept {
  try {
    const bool is_set = !env::get("GANTRY_SIM_DEVICES").value_or("").empty();
    return is_set && platform() == Platform::simulated ? Answer::yes : Answer::no;
  } catch (const std::exception& error) {  // a variable of the environment is malformed
    logging::error(error.what());
    return Answer::no;
  }
}

}  // namespace

bool is_simulated() noexcept {
  Answer known = answer.load(std::memory_order_acquire);
  if (known == Answer::unknown) {
    known = ask();
    answer.store(known, std::memory_order_release);
  }
  return known == Answer::yes;
}

void* next_symbol(const char* name) noexcept { return ::dlsym(RTLD_NEXT, name); }

}  // namespace gantry::cudart_api
