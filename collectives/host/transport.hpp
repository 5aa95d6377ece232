#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "collectives/call.hpp"
#include "collectives/host/entry.hpp"
#include "collectives/host/staging.hpp"
#include "collectives/slices.hpp"
#include "collectives/transport.hpp"

namespace gantry {

// The slices that one rank sends to and receives from every rank, itself included.
struct HostPlan {
  std::vector<ByteSlice> sends;     // slices of `in`
  std::vector<ByteSlice> receives;  // slices of `out`; all the same one if they are reduced
  bool sends_one = false;           // every rank is sent the same bytes
  bool reduces = false;

  // The ends of the last slice sent, and of the last one received.
  std::int64_t in_bytes() const;
  std::int64_t out_bytes() const;
  // The longest slice. A rank's slice to itself counts only if it is reduced.
  std::int64_t longest(int rank) const;
};

// Plans a collective in which all data go directly to their receivers. Not for barrier, send, recv.
HostPlan plan_on_host(const CollectiveCall& call, int rank, int size);

// The transport through page-locked host memory and messages between hosts. It needs neither peer
// memory nor NCCL, and works between any machines and devices.
//
// run() blocks the host for earlier work of the stream and for the other ranks. It returns when
// only the last copies to the device are left, which it has submitted. Reductions run on the host,
// in rank order.
class HostTransport final : public Transport {
 public:
  HostTransport(const Membership& membership, std::shared_ptr<HostLinks> links);
  ~HostTransport() override;

  std::string_view name() const override { return "host"; }
  // Throws also: CollectiveMismatch, on all ranks of the call; CaptureError. If a rank throws any
  // other exception, all other ranks throw PeerLostError.
  End run(const ResolvedCall& call, const Stream& stream) override;
  End run_together(std::span<const ResolvedCall> messages, const Stream& stream) override;

  // Compares the calls of all ranks without running them. Throws as run(), but for rejections.
  void verify(const CollectiveCall& call, const Stream& stream);
  // Throws CollectiveMismatch if a receiver rejected an earlier message. Called after an operation,
  // since the other ranks wait for this rank's part in it.
  void throw_rejection() { entry_.throw_rejection(); }
  // True if the data of `what` are small enough to be sent with its entry.
  bool is_small(const Descriptor& what) const;
  // Makes a transport of some ranks over the same links; `members` include this rank. All members
  // use it in the same order, and only between operations of this one.
  std::unique_ptr<HostTransport> among(const std::vector<int>& members) const;
  // The links, which may outlive this object.
  std::shared_ptr<HostLinks> links() const { return entry_.shared_links(); }
  // As Communicator::abort, across machines. Any thread.
  void abort() noexcept override { entry_.links().abort(); }
  void close() noexcept override { entry_.links().leave(); }

 private:
  template <class Run>
  void guarded(Run run);
  // Runs `exchange` for `messages`. Takes answers before it, and answers of other ranks behind it.
  template <class Exchange>
  void exchange_between_answers(std::span<const ResolvedCall> messages, Exchange exchange);
  void enter(const CollectiveCall& call);
  void require_no_capture(const CollectiveCall& call, const Stream& stream) const;
  void dispatch(const ResolvedCall& call, const Stream& stream);
  void synchronize(const Stream& stream);
  void run_small(const ResolvedCall& call, const HostPlan& plan, const Stream& stream);
  void run_direct(const ResolvedCall& call, const HostPlan& plan, const Stream& stream);
  void run_two_shot(const ResolvedCall& call, const Stream& stream);
  void send(const CollectiveCall& call, const Stream& stream);
  void receive(const CollectiveCall& call, const Stream& stream);
  void exchange_messages(std::span<const ResolvedCall> messages, const Stream& stream);
  HostStaging& staging(std::int64_t chunk);
  // Calls fetch(staging, chunk) for every chunk, which submits copies from the device. When they
  // are done it calls process(staging, chunk), while the next chunk is fetched.
  template <class Fetch, class Process>
  void for_each_chunk(std::int64_t chunks, const Stream& stream, Fetch fetch, Process process) {
    const auto begin = [&](std::int64_t chunk) {
      HostStaging& staging = this->staging(chunk);
      staging.begin(stream);
      fetch(staging, chunk);
      staging.fetched(stream);
    };
    if (chunks > 0) begin(0);
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
      if (chunk + 1 < chunks) begin(chunk + 1);
      HostStaging& staging = this->staging(chunk);
      staging.await();
      process(staging, chunk);
      staging.finish(stream);
    }
  }

  Membership membership_;
  HostEntry entry_;
  HostStaging small_;
  std::vector<HostStaging> large_;  // two, allocated on first use
};

// A HostTransport over make_host_links(). Collective.
std::unique_ptr<HostTransport> make_host_transport_over_links(
    const Membership& membership, Bootstrap& bootstrap, GroupTimeout timeout,
    std::function<void()> on_stall = [] {});

}  // namespace gantry
