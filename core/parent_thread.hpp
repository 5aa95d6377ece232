// Threads that a child of a fork knows of and does not have.
#pragma once

#include <list>
#include <thread>
#include <utility>

namespace gantry {

/// Forgets a thread of the parent: here it can be neither joined nor detached.
inline void leave_to_parent(std::thread thread) {
  // Never destroyed: that would end the process.
  static auto& kept = *new std::list<std::thread>();
  if (thread.joinable()) kept.push_back(std::move(thread));
}

}  // namespace gantry
