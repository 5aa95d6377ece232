#pragma once

#include <memory>
#include <vector>

#include "collectives/folding.hpp"
#include "collectives/host/entry.hpp"
#include "collectives/host/plan.hpp"
#include "collectives/host/staging.hpp"
#include "collectives/transport.hpp"

namespace gantry {

// Carries arrays through page-locked host memory and messages between hosts; needs neither peer
// memory nor NCCL, and works between any machines and devices.
//
// The host takes part: run() returns when this rank's share is done but for the last copies to the
// device, which are submitted. So it waits for what the stream did before, and for the other ranks.
// Sums are folded on the host, in rank order.
class HostTransport final : public Transport {
 public:
  HostTransport(const Membership& membership, std::shared_ptr<HostLinks> links);
  ~HostTransport() override;

  std::string_view name() const override { return "host"; }
  bool supports(const Descriptor&) const override { return true; }
  // Throws also: CollectiveMismatch, on all ranks that are concerned; CaptureError. A rank that
  // throws anything else makes all others throw PeerLostError.
  void run(const CollectiveCall& call, const Stream& stream) override;
  void run_together(std::span<const CollectiveCall> messages, const Stream& stream) override;

  // Compares the calls of all ranks and moves nothing. Throws as run(), but for raise_refusal().
  void verify(const CollectiveCall& call, const Stream& stream);
  // Throws CollectiveMismatch if a receiver said that an earlier message is not what it expects:
  // after an operation, as the others wait for this rank's part in it.
  void raise_refusal() { entry_.raise_refusal(); }
  // True if the data of `what` travel with the comparison.
  bool is_small(const Descriptor& what) const;
  // A transport of some ranks over the same links; `members` hold this rank. It may be used only
  // between two operations of this one, by all its members in the same order.
  std::unique_ptr<HostTransport> among(const std::vector<int>& members) const;
  // As Communicator::abort, across machines. Any thread.
  void abort() noexcept override { entry_.links().abort(); }
  void close() noexcept override { entry_.links().leave(); }

 private:
  template <class Run>
  void guarded(Run run);
  void enter(const CollectiveCall& call);
  void require_no_capture(const CollectiveCall& call, const Stream& stream) const;
  void dispatch(const CollectiveCall& call, const Stream& stream);
  void synchronize(const Stream& stream);
  void run_small(const CollectiveCall& call, const HostPlan& plan, const Stream& stream);
  void run_straight(const CollectiveCall& call, const HostPlan& plan, const Stream& stream);
  void run_relay(const CollectiveCall& call, const Stream& stream);
  void send(const CollectiveCall& call, const Stream& stream);
  void receive(const CollectiveCall& call, const Stream& stream);
  void exchange_messages(std::span<const CollectiveCall> messages, const Stream& stream);
  void fold(const Descriptor& what, void* out, std::span<const void* const> inputs,
            std::int64_t count) const;
  HostStaging& staging(std::int64_t step);

  Membership membership_;
  HostEntry entry_;
  HostStaging small_;
  std::vector<HostStaging> large_;  // two, made when needed
};

// A HostTransport over make_host_links(). Collective.
std::unique_ptr<HostTransport> make_host_transport_over_links(const Membership& membership,
                                                              Bootstrap& bootstrap,
                                                              std::chrono::milliseconds timeout);

}  // namespace gantry
