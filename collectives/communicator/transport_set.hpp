// The transports of one group.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include <gantry/streams/stream.hpp>
#include <gantry/tensor/storage.hpp>

#include "collectives/communicator/members.hpp"
#include "collectives/p2p/registrations.hpp"
#include "collectives/selection/selector.hpp"
#include "collectives/transport.hpp"

namespace gantry {

// Makes the transports of a group, and chooses one for each call.
// Thread safety: abort(), abort_links() and require_intact() any thread; the rest one at a time.
class TransportSet {
 public:
  // Compares the ranks' settings, and opens the control segment of `members`, which outlive it.
  // Collective. Throws: see Communicator::world().
  explicit TransportSet(Members& members);

  // Requires that the algorithm that the call wants, if any, serves it. The arrays of the call may
  // be unknown; require_registered() then checks an algorithm for registered memory.
  // Throws: InvalidArgument.
  void require_served(const CollectiveCall& call) const;
  void require_registered(const CollectiveCall& call) const;
  // Finds what follows from a call.
  [[nodiscard]] ResolvedCall resolve(const CollectiveCall& call);
  // The transport of a call. Starts NCCL at its first call, which compares the ranks' calls.
  // Throws: CollectiveMismatch; as make_nccl_transport().
  [[nodiscard]] Transport& open(const ResolvedCall& call);

  // Gives a call of the host transport, which blocks the host, its own timeout while the result
  // lives.
  [[nodiscard]] GroupTimeout::CallScope call_scope(const Transport& via,
                                                   const CollectiveCall& call) const;

  // Null if ranks cannot reach each other's memory.
  [[nodiscard]] Transport* p2p() const { return p2p_.get(); }
  [[nodiscard]] std::string_view name() const;
  // See Transport. Without p2p memory is only compared.
  void add_memory(const Storage& storage);
  void remove_memory(const Storage& storage, const Stream& stream);

  // Throws the error of a group without a control segment whose ranks are lost or late.
  void require_intact() const;
  // True if require_intact() throws.
  [[nodiscard]] bool is_broken() const noexcept;
  // True while kernels that may wait for other ranks are enqueued. Queries the driver.
  [[nodiscard]] bool is_waiting() const;
  // Makes pending and later calls of every rank throw, as far as no control segment does it.
  void abort() noexcept;
  // Ends waits over links, which do not read the control segment.
  void abort_links() noexcept;
  // Ends NCCL's kernels.
  void abort_nccl() noexcept;
  // Closes the other ranks' memory. Requires: no operation is pending.
  void close() noexcept;
  // Frees the transports. Afterwards only abort() and require_intact() may be called.
  void clear() noexcept;

 private:
  void make();
  void start_nccl(const ResolvedCall& call);
  // Loads NCCL on all ranks at the first call, and returns true if all have it. Collective.
  bool agree_on_nccl();
  // Why links between hosts move the data of ranks on several machines; empty: NCCL does.
  // Collective.
  std::string why_no_nccl_between_machines();
  // Of groups without peer memory: nccl or host.
  [[nodiscard]] Algorithm carrier() const;
  // True if GANTRY_COLL_ALGO is nccl and all ranks have NCCL.
  [[nodiscard]] bool forces_nccl() const;

  Members& members_;
  Selector selector_;
  bool agreed_on_nccl_ = false;
  std::unique_ptr<Transport> p2p_;
  std::unique_ptr<Transport> nccl_;
  std::unique_ptr<Transport> host_;  // also of ranks on several machines, whatever moves their data
  mutable std::mutex clearing_;      // guards these three between clear() and require_intact()
  Registrations registrations_;      // used without p2p, which has its own ones
  const Transport* last_collective_ = nullptr;  // the transport of the last one
};

}  // namespace gantry
