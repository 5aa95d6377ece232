// Communicators that give their device memory back for a time.
#include <fmt/format.h>

#include <mutex>
#include <string>
#include <vector>

#include <gantry/core/error.hpp>

#include "collectives/communicator/impl.hpp"
#include "device/sync_debug_driver.hpp"

namespace gantry {

void Communicator::suspend() const {
  Impl& mine = group("suspend");
  const std::lock_guard lock(mine.mutex);
  mine.suspend();
}

void Communicator::resume() const {
  Impl& mine = group("resume");
  const std::lock_guard lock(mine.mutex);
  mine.resume();
}

bool Communicator::is_suspended() const { return group("is_suspended").is_suspended(); }

// Every rank is suspended or none, so the errors of a wrong state are thrown before ranks meet.
void Communicator::Impl::suspend() {
  if (is_suspended_) {
    throw InvalidArgument("suspend: expected a communicator in use, but got a suspended one");
  }
  rendezvous(HostCall::suspend);
  {
    const BlockingIsNeeded needed;
    synchronize(members.self.device);
  }
  // Another rank's kernel may still write here when this rank's is done.
  (void)members.bootstrap->all_gather("idle");
  Transport* const p2p = transports.p2p();
  const std::vector<std::string> problems =
      members.bootstrap->all_gather(p2p != nullptr ? p2p->suspension_problem() : std::string());
  for (std::size_t rank = 0; rank < problems.size(); ++rank) {
    if (problems[rank].empty()) continue;
    throw InvalidArgument(fmt::format("suspend: expected {} on rank {}", problems[rank], rank));
  }
  if (p2p != nullptr) p2p->suspend();
  is_suspended_ = true;
}

void Communicator::Impl::resume() {
  if (!is_suspended_) {
    throw InvalidArgument("resume: expected a suspended communicator, but got one in use");
  }
  rendezvous(HostCall::resume);
  if (Transport* const p2p = transports.p2p()) p2p->resume();
  is_suspended_ = false;
}

}  // namespace gantry
