#pragma once

#include <chrono>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "collectives/bootstrap/bootstrap.hpp"
#include "collectives/bootstrap/group_timeout.hpp"
#include "collectives/host/links/addresses.hpp"
#include "collectives/host/links/handshake.hpp"
#include "core/authentication/keys.hpp"
#include "core/authentication/tag_thread.hpp"

namespace gantry {

// A message to a rank: `head`, then `body`.
struct Outgoing {
  int rank = 0;
  std::span<const std::byte> head;
  std::span<const std::byte> body = {};
};

// A receive of the next message of a rank.
struct Incoming {
  int rank = 0;
  std::span<std::byte> buffer;
  std::size_t bytes = 0;  // received bytes
};

// The callbacks of an exchange whose messages depend on earlier ones: see HostLinks::drive().
//
// Thread safety: only the thread that calls drive().
class ExchangeHandler {
 public:
  virtual ~ExchangeHandler() = default;

  // The oldest message to `rank` is sent; its bytes may change.
  virtual void sent(int rank) = 0;
  // The oldest awaited message of `rank` has arrived, `bytes` long.
  virtual void received(int rank, std::size_t bytes) = 0;

  // For the links: the messages queued since the last call.
  virtual std::vector<Outgoing> take_sends() { return std::exchange(sends_, {}); }
  virtual std::vector<Incoming> take_receives() { return std::exchange(receives_, {}); }

 protected:
  // Queue a send, whose bytes stay valid until sent(), or a receive, whose buffer stays valid until
  // received().
  void send(int rank, std::span<const std::byte> bytes) { sends_.push_back({rank, {}, bytes}); }
  void await(int rank, std::span<std::byte> buffer) { receives_.push_back({rank, buffer}); }

 private:
  std::vector<Outgoing> sends_;
  std::vector<Incoming> receives_;
};

// The knowledge of the links about the processes of a group, while they exchange no message.
//
// Thread safety: any thread.
class LinkMonitor {
 public:
  virtual ~LinkMonitor() = default;

  // Calls `callback` once with the error of a group that other ranks broke, from a thread of the
  // links. It must not block. After a call with an empty one, no callback runs.
  virtual void on_failure(std::function<void(std::exception_ptr)> callback) = 0;
  // The error of a group that other ranks broke; null: none did.
  virtual std::exception_ptr failure() const = 0;
  // Sets what probe() of another rank returns for this one.
  virtual void set_progress(const RankProgress& progress) noexcept = 0;
  // The progress of every rank; none for a process that does not reply in time. A rank that has
  // left has made all progress. Empty once the group is broken, or after the last message of this
  // rank. Blocks for more than a second if a rank does not reply.
  virtual std::vector<std::optional<RankProgress>> probe() = 0;
  // Tells all ranks that `rank` is late: all throw TimeoutError from now on.
  virtual void report_late(int rank) noexcept = 0;
  // Tells all ranks that this one has no NCCL.
  virtual void report_no_nccl() noexcept = 0;
  // A rank that reported so; −1: none.
  virtual int rank_without_nccl() const noexcept = 0;
};

// Message passing between the hosts of a group's ranks.
//
// Messages from one rank to another arrive whole and in order.
// Thread safety: exchange() by one thread at a time, abort() by any.
class HostLinks {
 public:
  virtual ~HostLinks() = default;

  // "unix", "tcp" or "mpi".
  virtual std::string_view name() const = 0;
  // Sends and receives all messages concurrently. On return the sent bytes may be overwritten, and
  // all receives are done. A message of up to kDetachedBytes does not wait for its receiver; a
  // larger one may. Throws: PeerLostError once any rank of the group is lost, even one without a
  // message here; TimeoutError naming the ranks without progress. Then every rank of the group
  // throws, at each later call.
  virtual void exchange(std::span<const Outgoing> sends, std::span<Incoming> receives) = 0;
  // Sends and receives the messages that `handler` queues, also from its callbacks, until none is
  // left. A stalled message only delays later messages between the same ranks.
  // Throws: as exchange(), and exceptions of `handler`.
  virtual void drive(ExchangeHandler& handler) = 0;
  // True if a message of `rank`, or the begin of one, has arrived and nothing awaits it. May miss
  // one. Does not block.
  virtual bool has_message(int /*rank*/) noexcept { return false; }
  // Marks this rank failed: exchange() throws PeerLostError on all ranks from now on.
  virtual void abort() noexcept = 0;
  // Signals that this rank exchanges nothing more. Only ranks that still wait for it lose a peer.
  virtual void leave() noexcept = 0;
  // Cancels the operations of a failed exchange. Returns false if that is impossible: then the
  // memory of the exchange, and these links, must never be freed.
  virtual bool release_memory() noexcept { return true; }
  // Null where the links have none.
  virtual LinkMonitor* monitor() noexcept { return nullptr; }

  static constexpr std::size_t kDetachedBytes = std::size_t{64} << 10;
};

// A rank's view of its group, and its timeout.
struct LinkGroup {
  int rank = 0;
  int size = 1;
  GroupTimeout timeout{std::chrono::milliseconds(600'000)};
  // Called now and then while the rank waits without progress. May throw, which ends the wait.
  std::function<void()> on_stall = [] {};
  // Derived from the job's secret; zero if it has none.
  Key key{};
  Neighbourhood where = Neighbourhood::machines;
  // Of the threads that compute the tags of long messages over TCP.
  TagThread::Start tags = TagThread::Start::with_spare_cpus;
};

// Note [Links between hosts]
// gantry uses TCP if all ranks can connect, also under mpirun, and unix sockets where all ranks are
// processes of one user on one machine. With TCP every rank detects a dead
// rank or an unreachable machine and names it. MPI without its fault-tolerance extension ends the
// whole job, or the ranks time out. gantry uses MPI links only where TCP cannot connect the ranks.

// Makes TCP links if all ranks can connect, else MPI links if all ranks have MPI.
// GANTRY_HOST_LINKS=tcp|mpi forces one. Collective.
// Sets `group.where`. Throws: Error naming the failed rank and the cause; InvalidArgument;
// TimeoutError; PeerLostError.
std::unique_ptr<HostLinks> make_host_links(Bootstrap& bootstrap, LinkGroup group);

// Makes TCP links, or links by unix sockets for ranks of one user. Every rank listens.
std::unique_ptr<HostLinks> make_tcp_links(Bootstrap& bootstrap, const LinkGroup& group);

// True if MPI is initialized in this process, by gantry or by the program.
bool can_link_by_mpi();
// Makes MPI links inside MPI_COMM_WORLD. Throws: NotSupported without MPI.
std::unique_ptr<HostLinks> make_mpi_links(Bootstrap& bootstrap, const LinkGroup& group);

// Says that a message of `rank` was changed on its way.
std::string forgery_text(int rank);

// The error that broke a rank's links, if there is one. Every later call throws it again.
//
// Thread safety: only the thread that exchanges.
class LinkError {
 public:
  // `broadcast` sends a control message to all other ranks. `group` outlives this object.
  LinkError(const LinkGroup& group, std::function<void(const ControlMessage&)> broadcast)
      : group_(group), broadcast_(std::move(broadcast)) {}

  // Throws the error that broke the links, if there is one.
  void require_intact() const {
    if (why_) raise();
  }
  // Records the error, broadcasts it, and throws it. `text`: details that this rank knows.
  // `from`: the rank that reported the error, −1 for this rank.
  [[noreturn]] void fail(const ControlMessage& why, std::string text = {}, int from = -1);
  // The error that fail() would throw.
  static std::exception_ptr error_of(const LinkGroup& group, const ControlMessage& why,
                                     const std::string& text, int from);
  // Fails with a timeout that names the ranks `missing`.
  [[noreturn]] void fail_late(const std::vector<int>& missing);

 private:
  [[noreturn]] void raise() const;

  const LinkGroup& group_;
  std::function<void(const ControlMessage&)> broadcast_;
  std::optional<ControlMessage> why_;
  int from_ = -1;
  std::string text_;
  std::vector<int> late_;  // the ranks that this rank waited for
};

}  // namespace gantry
