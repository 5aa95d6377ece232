#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <set>
#include <system_error>
#include <thread>

#include <gantry/core/env.hpp>
#include <gantry/core/error.hpp>
#include <gantry/extend/driver.hpp>

#include "collectives/bootstrap/failure_note.hpp"
#include "collectives/communicator/impl.hpp"
#include "collectives/communicator/rank_devices.hpp"
#include "job/elastic_job.hpp"

namespace gantry {

namespace {

// Throws a rank's own error in preference to other ranks' losses of it.
void raise_cause(const std::vector<std::exception_ptr>& failures) {
  std::exception_ptr consequence;
  for (const std::exception_ptr& failure : failures) {
    if (!failure) continue;
    try {
      std::rethrow_exception(failure);
    } catch (const PeerLostError&) {
      consequence = failure;
    }
  }
  if (consequence) std::rethrow_exception(consequence);
}

// Throws the error of a rank whose thread could not be started.
[[noreturn]] void raise_threadless(const std::exception_ptr& failure, std::size_t rank, int size) {
  try {
    std::rethrow_exception(failure);
  } catch (const std::system_error& error) {
    throw Error(
        fmt::format("Communicator::local: expected a thread for each of {} ranks, but got none for "
                    "rank {}: {}",
                    size, rank, error.code().message()));
  }
}

}  // namespace

std::shared_ptr<Communicator::Impl> Communicator::Impl::until_left(std::shared_ptr<Impl> impl) {
  Impl* const group = impl.get();
  return {group, [impl = std::move(impl)](Impl*) {
            if (in_bad_fork()) {
              // Devices are no use here, and connections are the parent's, too.
              new std::shared_ptr<Impl>(impl);
              return;
            }
            impl->finish();
            impl->transports.clear();
          }};
}

Communicator Communicator::world() {
  static std::mutex mutex;
  // Never destroyed: static destructors must not free device memory. The exit handler releases what
  // peers wait for.
  static std::shared_ptr<Impl>* world = nullptr;
  const std::lock_guard lock(mutex);
  if (world == nullptr) {
    GroupSeed seed{.identity = detect_process_identity(),
                   .device = {},
                   .bootstrap = nullptr,
                   .name = "world",
                   .maker = "Communicator::world"};
    report_uncaught_errors(seed.identity.rank);
    seed.device = choose_device(seed.identity, seed.maker);
    settle_process(seed.identity, seed.device);
    const auto terms = elastic_terms(seed.identity);
    if (terms && terms->replacement > 0) {
      auto job = std::make_shared<JobConnection>(seed.identity, StoreRole::of(seed.identity),
                                                 collective_timeout());
      world = new std::shared_ptr<Impl>(Impl::join(std::move(job), seed.identity, seed.device));
    } else if (is_elastic_by_user(seed.identity)) {
      StoreRole role = StoreRole::of(seed.identity);
      role.is_elastic = true;
      auto job = std::make_shared<JobConnection>(seed.identity, role, collective_timeout());
      seed.timeout = GroupTimeout(collective_timeout());
      world = new std::shared_ptr<Impl>(Impl::enter(std::move(job), std::move(seed)));
      warn_shared_devices(*(*world)->members.ranks, (*world)->members.identity,
                          "Communicator::world");
    } else {
      seed.bootstrap = make_bootstrap(seed.identity, collective_timeout());
      world = new std::shared_ptr<Impl>(std::make_shared<Impl>(std::move(seed)));
      warn_shared_devices(*(*world)->members.ranks, (*world)->members.identity,
                          "Communicator::world");
      const JobGroup& group = (*world)->members.job_group;
      if (terms && group.job) group.job->note_formed();
    }
    std::atexit([] {
      (*world)->finish();
      // The bootstrap of a group that was joined does not deregister.
      if (const auto& job = (*world)->members.job_group.job) job->leave();
    });
  } else {
    set_device((*world)->members.self.device);
  }
  return Communicator(*world);
}

std::vector<Communicator> Communicator::local(const std::vector<Device>& devices) {
  if (devices.empty()) {
    throw InvalidArgument("Communicator::local: expected at least one device, but got none");
  }
  std::set<int> seen;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    if (!devices[i].is_cuda()) {
      throw InvalidArgument(fmt::format(
          "Communicator::local: expected devices, but devices[{}] is {}", i, devices[i].str()));
    }
    (void)device_properties(devices[i]);
    if (!seen.insert(devices[i].index).second) {
      throw InvalidArgument(
          fmt::format("Communicator::local: expected every device once, but {} occurs again",
                      devices[i].str()));
    }
  }
  const auto size = static_cast<int>(devices.size());
  std::vector<std::unique_ptr<Bootstrap>> bootstraps =
      make_local_bootstraps(size, collective_timeout());
  std::vector<std::shared_ptr<Impl>> impls(devices.size());
  std::vector<std::exception_ptr> failures(devices.size());
  // Making a rank blocks for the others, so each rank needs a thread.
  std::vector<std::thread> makers;
  std::exception_ptr threadless;
  const auto make = [&](int rank) {
    const auto at = static_cast<std::size_t>(rank);
    try {
      ProcessIdentity identity;
      identity.rank = identity.local_rank = rank;
      identity.world_size = identity.local_size = size;
      identity.source = "local";
      impls[at] = std::make_shared<Impl>(GroupSeed{.identity = std::move(identity),
                                                   .device = devices[at],
                                                   .bootstrap = std::move(bootstraps[at]),
                                                   .name = "local",
                                                   .maker = "Communicator::local"});
    } catch (...) {
      failures[at] = std::current_exception();
    }
  };
  try {
    makers.reserve(devices.size());
    for (int rank = 0; rank < size; ++rank) makers.emplace_back(make, rank);
  } catch (...) {
    threadless = std::current_exception();
    // Destroying the bootstraps signals the running ranks that these ranks are lost.
    for (std::size_t at = makers.size(); at < bootstraps.size(); ++at) bootstraps[at].reset();
  }
  for (std::thread& maker : makers) maker.join();
  if (threadless) raise_threadless(threadless, makers.size(), size);
  raise_cause(failures);
  std::vector<Communicator> group;
  for (std::shared_ptr<Impl>& impl : impls)
    group.push_back(Communicator(Impl::until_left(std::move(impl))));
  return group;
}

}  // namespace gantry
