// What pluggable_library.cpp notes about its calls.
#pragma once

#include <sys/types.h>

namespace gantry::testing {

/// Found with dlsym as pluggable_log.
struct PluggableLog {
  int devices = 0;  ///< what init was told
  int allocations = 0;
  int frees = 0;  ///< read with std::atomic_ref while another thread frees
  int empties = 0;
  int recorded = 0;
  int wrong_device = 0;  ///< calls with another device current
  int mismatches = 0;    ///< frees with another size, device or stream than the allocation
  bool is_full = false;  ///< allocations give null
  void* last_recorded = nullptr;
};

}  // namespace gantry::testing
