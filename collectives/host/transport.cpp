#include "collectives/host/transport.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include <gantry/core/error.hpp>
#include <gantry/core/log.hpp>
#include <gantry/extend/driver.hpp>

#include "collectives/control/segment.hpp"
#include "collectives/host/chunk_sizes.hpp"
#include "collectives/host/reduce.hpp"
#include "core/processes/background_thread.hpp"
#include "device/platform/sync_debug_driver.hpp"

namespace gantry {

namespace {

constexpr auto kStagingBytes = static_cast<std::size_t>(kHostStagingBytes);

constexpr const char* kDoing = "a collective operation through the host";

// Translates the ranks of a subset for another handler.
class RemappedHandler final : public ExchangeHandler {
 public:
  RemappedHandler(ExchangeHandler& handler, const std::vector<int>& members)
      : handler_(handler), members_(members) {}

  void sent(int rank) override { handler_.sent(index(rank)); }
  void received(int rank, std::size_t bytes) override { handler_.received(index(rank), bytes); }
  std::vector<Outgoing> take_sends() override { return remapped(handler_.take_sends()); }
  std::vector<Incoming> take_receives() override { return remapped(handler_.take_receives()); }

 private:
  int index(int member) const {
    return static_cast<int>(std::find(members_.begin(), members_.end(), member) - members_.begin());
  }
  template <class Messages>
  Messages remapped(Messages messages) const {
    for (auto& message : messages) message.rank = members_[static_cast<std::size_t>(message.rank)];
    return messages;
  }

  ExchangeHandler& handler_;
  const std::vector<int>& members_;
};

// Links between a subset of the ranks of other links.
class SubsetLinks final : public HostLinks {
 public:
  SubsetLinks(std::shared_ptr<HostLinks> all, std::vector<int> members)
      : all_(std::move(all)), members_(std::move(members)) {}

  std::string_view name() const override { return all_->name(); }
  void exchange(std::span<const Outgoing> sends, std::span<Incoming> receives) override {
    sends_.assign(sends.begin(), sends.end());
    for (Outgoing& message : sends_) message.rank = member(message.rank);
    receives_.assign(receives.begin(), receives.end());
    for (Incoming& message : receives_) message.rank = member(message.rank);
    all_->exchange(sends_, receives_);
    for (std::size_t i = 0; i < receives.size(); ++i) receives[i].bytes = receives_[i].bytes;
  }
  void drive(ExchangeHandler& handler) override {
    RemappedHandler remapped(handler, members_);
    all_->drive(remapped);
  }
  bool has_message(int rank) noexcept override { return all_->has_message(member(rank)); }
  void abort() noexcept override { all_->abort(); }
  void leave() noexcept override { all_->leave(); }
  bool release_memory() noexcept override { return all_->release_memory(); }

 private:
  int member(int rank) const { return members_[static_cast<std::size_t>(rank)]; }

  std::shared_ptr<HostLinks> all_;
  std::vector<int> members_;
  std::vector<Outgoing> sends_;
  std::vector<Incoming> receives_;
};

}  // namespace

HostTransport::HostTransport(const Membership& membership, std::shared_ptr<HostLinks> links)
    : membership_(membership),
      entry_(std::move(links), membership.rank, membership.size,
             static_cast<std::size_t>(small_limit(membership.size))),
      small_(entry_.body_limit() * static_cast<std::size_t>(membership.size)) {}

HostTransport::~HostTransport() {
  if (entry_.links().release_memory()) return;
  // Never destroyed.
  new HostEntry(std::move(entry_));
  new HostStaging(std::move(small_));
  new std::vector<HostStaging>(std::move(large_));
}

std::unique_ptr<HostTransport> HostTransport::among(const std::vector<int>& members) const {
  Membership membership = membership_;
  membership.size = static_cast<int>(members.size());
  const auto own = std::find(members.begin(), members.end(), membership_.rank);
  membership.rank = static_cast<int>(own - members.begin());
  return std::make_unique<HostTransport>(
      membership, std::make_shared<SubsetLinks>(entry_.shared_links(), members));
}

template <class Run>
void HostTransport::guarded(Run run) {
  try {
    run();
  } catch (const CollectiveMismatch&) {
    throw;  // All ranks throw it and stay synchronized.
  } catch (const TimeoutError& error) {
    abort();
    const std::string cause = entry_.rejection_text();
    if (cause.empty()) throw;
    throw TimeoutError(fmt::format("{}; before that, {}", error.what(), cause), error.ranks());
  } catch (...) {
    abort();  // The other ranks wait for this rank's part.
    throw;
  }
}

template <class Exchange>
void HostTransport::exchange_between_answers(std::span<const ResolvedCall> messages,
                                             Exchange exchange) {
  entry_.take_answers();
  exchange();
  // A small send does not throw its own rejection, however early the receiver answers.
  std::vector<int> receivers;
  for (const ResolvedCall& call : messages) {
    if (call.what.kind == CollectiveKind::send) receivers.push_back(call.what.root);
  }
  entry_.take_answers(receivers);
}

void HostTransport::require_no_capture(const CollectiveCall& call, const Stream& stream) const {
  if (!driver().is_capturing(stream.native())) return;
  throw CaptureError(
      std::string(gantry::name(call.what.kind)) +
      ": expected a stream that is not being captured, because the host takes part in "
      "the operation, but got one that is");
}

End HostTransport::run(const ResolvedCall& call, const Stream& stream) {
  require_no_capture(call, stream);
  announce_host_wait(kDoing);
  const BlockingIsNeeded needed;  // a refused step would leave the other ranks waiting
  guarded([&] {
    if (!gantry::is_message(call.what.kind)) return dispatch(call, stream);
    exchange_between_answers({&call, 1}, [&] { dispatch(call, stream); });
  });
  throw_rejection();
  return {};
}

End HostTransport::run_together(std::span<const ResolvedCall> messages, const Stream& stream) {
  require_no_capture(messages.front(), stream);
  announce_host_wait(kDoing);
  const BlockingIsNeeded needed;
  guarded(
      [&] { exchange_between_answers(messages, [&] { exchange_messages(messages, stream); }); });
  throw_rejection();
  return {};
}

void HostTransport::verify(const CollectiveCall& call, const Stream& stream) {
  require_no_capture(call, stream);
  guarded([&] { enter(call); });
}

bool HostTransport::is_small(const Descriptor& what) const {
  return what.bytes() <= static_cast<std::int64_t>(entry_.body_limit());
}

void HostTransport::enter(const CollectiveCall& call) {
  if (call.is_uneven()) {
    entry_.enter_uneven(call.what, call.send_counts, call.recv_counts);
  } else {
    entry_.enter(call.what, {}, /*moves_data=*/true);
  }
}

void HostTransport::dispatch(const ResolvedCall& call, const Stream& stream) {
  const bool is_small = !call.is_uneven() && this->is_small(call.what);
  switch (call.what.kind) {
    case CollectiveKind::barrier:
      synchronize(stream);
      entry_.enter(call.what);
      return;
    case CollectiveKind::send:
      return send(call, stream);
    case CollectiveKind::recv:
      return receive(call, stream);
    case CollectiveKind::all_reduce:
    case CollectiveKind::reduce:
    case CollectiveKind::broadcast:
      if (!is_small) return run_two_shot(call, stream);
      break;
    case CollectiveKind::all_gather:
    case CollectiveKind::reduce_scatter:
    case CollectiveKind::gather:
    case CollectiveKind::scatter:
    case CollectiveKind::all_to_all:
      break;
  }
  const HostPlan plan = plan_on_host(call, membership_.rank, membership_.size);
  if (is_small) {
    run_small(call, plan, stream);
  } else {
    run_direct(call, plan, stream);
  }
}

void HostTransport::synchronize(const Stream& stream) {
  small_.begin(stream);
  small_.fetched(stream);
  small_.await();
}

void HostTransport::run_small(const ResolvedCall& call, const HostPlan& plan,
                              const Stream& stream) {
  const auto ranks = static_cast<std::size_t>(membership_.size);
  small_.begin(stream);
  small_.fetch(0, call.in, static_cast<std::size_t>(plan.in_bytes()), stream);
  small_.fetched(stream);
  small_.await();
  std::vector<std::span<const std::byte>> bodies(ranks);
  for (std::size_t p = 0; p < ranks; ++p) {
    bodies[p] = std::span(small_.outbound() + plan.sends[p].at,
                          static_cast<std::size_t>(plan.sends[p].bytes));
  }
  entry_.enter(call.what, bodies);
  std::byte* const result = small_.inbound();
  std::vector<const void*> inputs;
  for (std::size_t p = 0; p < ranks; ++p) {
    const bool is_own = static_cast<int>(p) == membership_.rank;
    const auto body = is_own ? bodies[p] : entry_.body(static_cast<int>(p));
    const auto bytes = static_cast<std::size_t>(plan.receives[p].bytes);
    if (bytes == 0) continue;
    if (body.size() < bytes) throw Error("collective: a message is shorter than its call says");
    if (plan.reduces) {
      inputs.push_back(body.data());
    } else {
      std::memcpy(result + plan.receives[p].at, body.data(), bytes);
    }
  }
  if (!inputs.empty()) {
    reduce_on_host(call.how, call.what.scale, result, inputs, call.what.count, call.what.dtype);
  }
  small_.deliver(call.out, result, static_cast<std::size_t>(plan.out_bytes()), stream);
  small_.finish(stream);
}

HostStaging& HostTransport::staging(std::int64_t chunk) {
  if (large_.empty()) {
    large_.reserve(2);
    large_.emplace_back(kStagingBytes);
    large_.emplace_back(kStagingBytes);
  }
  return large_[static_cast<std::size_t>(chunk % 2)];
}

std::unique_ptr<HostTransport> make_host_transport_over_links(const Membership& membership,
                                                              Bootstrap& bootstrap,
                                                              GroupTimeout timeout,
                                                              std::function<void()> on_stall) {
  LinkGroup group{membership.rank, membership.size, timeout, std::move(on_stall)};
  if (const JobGroup job = bootstrap.job_group(); job.job) group.key = job.job->link_key();
  auto links = make_host_links(bootstrap, std::move(group));
  if (membership.rank == 0) {
    logging::info("messages between " + std::to_string(membership.size) + " ranks' hosts go by " +
                  std::string(links->name()));
  }
  return std::make_unique<HostTransport>(membership, std::move(links));
}

std::unique_ptr<Transport> make_host_transport(const Membership& membership, Bootstrap& bootstrap,
                                               bool in_one_process, GroupTimeout timeout) {
  if (!in_one_process) return make_host_transport_over_links(membership, bootstrap, timeout);
  // One thread that serves several ranks would wait for itself.
  return make_host_transport_over_links(membership, bootstrap, timeout, [membership] {
    if (!is_only_thread_of_program()) return;
    throw InvalidArgument(
        fmt::format("collective: expected a thread for each of the {} ranks, since operations "
                    "through the host wait for the other ranks, but got one thread, which waits as "
                    "rank {}",
                    membership.size, membership.rank));
  });
}

}  // namespace gantry
