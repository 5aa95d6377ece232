#pragma once

#include <chrono>
#include <cstddef>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "collectives/bootstrap/bootstrap.hpp"

namespace gantry {

// A message to a rank: `head`, then `body`.
struct Outgoing {
  int rank = 0;
  std::span<const std::byte> head;
  std::span<const std::byte> body = {};
};

// Room for the next message of a rank.
struct Incoming {
  int rank = 0;
  std::span<std::byte> room;
  std::size_t bytes = 0;  // what came
};

// Messages that follow from each other, between one rank and many: see HostLinks::converse().
//
// Thread safety: by the thread that converses.
class Conversation {
 public:
  virtual ~Conversation() = default;

  // The oldest message to `rank` is on its way; its bytes may change.
  virtual void sent(int rank) = 0;
  // The oldest message that was awaited from `rank` has filled `bytes` of its room.
  virtual void received(int rank, std::size_t bytes) = 0;

  // For the links: what was said since the last call.
  virtual std::vector<Outgoing> take_sends() { return std::exchange(sends_, {}); }
  virtual std::vector<Incoming> take_receives() { return std::exchange(receives_, {}); }

 protected:
  // Sends a message, whose bytes stay until sent(), or awaits one, whose room does until
  // received().
  void send(int rank, std::span<const std::byte> bytes) { sends_.push_back({rank, {}, bytes}); }
  void await(int rank, std::span<std::byte> room) { receives_.push_back({rank, room}); }

 private:
  std::vector<Outgoing> sends_;
  std::vector<Incoming> receives_;
};

// Messages between the hosts' memories of a group's ranks.
//
// Messages from one rank to another arrive whole and in the order in which they were sent.
// Thread safety: exchange() by one thread at a time, abort() by any.
class HostLinks {
 public:
  virtual ~HostLinks() = default;

  // "tcp" or "mpi".
  virtual std::string_view name() const = 0;
  // Sends and receives all of these side by side. On return what was sent is on its way and may be
  // overwritten, and all room is filled. A message of up to kDetachedBytes is on its way although
  // nobody receives it yet; a larger one may wait for its receiver.
  // Throws: PeerLostError as soon as any rank of the group is known to be lost, also one that is
  // not concerned; TimeoutError naming the ranks that moved nothing within the deadline. Then every
  // rank of the group throws, and does so at each later call.
  virtual void exchange(std::span<const Outgoing> sends, std::span<Incoming> receives) = 0;
  // Sends and receives what `talk` says, and what it says when something of it is done, until
  // nothing is left. A message that cannot move holds up only those behind it between the same
  // ranks. Throws: as exchange(), and what `talk` throws.
  virtual void converse(Conversation& talk) = 0;
  // Makes exchange() throw PeerLostError that blames this rank, on all ranks, for good.
  virtual void abort() noexcept = 0;
  // Says that this rank exchanges nothing more: its end is a loss only to those who still need it.
  virtual void leave() noexcept = 0;
  // Ends what a failed exchange left under way. False if it cannot: the memory that was given to
  // exchange(), and these links, must then stay for good.
  virtual bool release_memory() noexcept { return true; }

  static constexpr std::size_t kDetachedBytes = std::size_t{64} << 10;
};

// Who takes part in links, and how long a rank waits for others.
struct LinkGroup {
  int rank = 0;
  int size = 1;
  std::chrono::milliseconds timeout{600'000};
};

// Note [Links between hosts]
// TCP is taken wherever the ranks can connect to each other, also under mpirun: a rank that dies
// and a machine that is cut off are then noticed and named by all others, while MPI (up to its
// fault-tolerance extension) ends the whole job, or they are late. MPI is for machines whose ranks
// have no way to each other but the one that MPI knows.

// TCP if all ranks can connect, else MPI if all ranks have it; GANTRY_HOST_LINKS=tcp|mpi insists.
// Collective. Throws: Error that says what failed on which rank; InvalidArgument; TimeoutError;
// PeerLostError.
std::unique_ptr<HostLinks> make_host_links(Bootstrap& bootstrap, const LinkGroup& group);

// As above. Every rank listens on a port that the system picks.
std::unique_ptr<HostLinks> make_tcp_links(Bootstrap& bootstrap, const LinkGroup& group);

// True if this build has MPI, and this process runs in it.
bool can_link_by_mpi();
// A communicator of the group's own inside MPI_COMM_WORLD. Throws: NotSupported without MPI.
std::unique_ptr<HostLinks> make_mpi_links(Bootstrap& bootstrap, const LinkGroup& group);

}  // namespace gantry
