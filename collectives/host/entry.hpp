#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <gantry/collectives/collective_mismatch.hpp>

#include "collectives/descriptor.hpp"
#include "collectives/host/links.hpp"

namespace gantry {

// Note [Entering an operation on the host]
// A collective begins with one message from every rank to every other: its call, and the data
// itself where they are few. So every rank knows all calls before anything is written, all find the
// same mismatch, and nothing is left in the links: the group goes on. Sends and receives are no
// part of this order: what a rank sends to one that is in a collective is put aside. A rank that
// waits for a receiver or a sender and learns that this one is in a collective has called something
// else than the others, and says so by entering it with its own call.

// The first bytes of every message that is not a piece of data.
struct HostFrame {
  enum class Kind : std::uint32_t {
    entry,    // of a collective; the body holds data, if they are few
    message,  // of a send; the body holds the data, if they are few
    accept,   // to a sender: the data may come
    // To a sender: the receiver called something else, described by `what`; the body holds the
    // sender's own Descriptor.
    refuse,
    piece,  // of a message whose data may come; they are the body
  };

  Descriptor what;
  std::uint32_t magic = 0x47414e54;
  Kind kind = Kind::entry;
  std::uint32_t has_body = 0;
  // Entry: the sender no longer waits to be allowed to send the last message it announced.
  std::uint32_t withdraws = 0;
  // Message: its number among those of the pair. Answer: that of the message.
  std::uint64_t number = 0;
  // Entry of an all_to_all whose counts are the sender's own.
  std::uint64_t is_uneven = 0;
};
static_assert(sizeof(HostFrame) == 72);

// Carries HostFrames over links and keeps what arrived before its turn.
class HostEntry {
 public:
  // Bodies have up to `body_limit` bytes.
  HostEntry(std::shared_ptr<HostLinks> links, int rank, int size, std::size_t body_limit);

  // What a rank gives to the others with its entry: bodies[r] goes to rank r, none is fine.
  using Bodies = std::span<const std::span<const std::byte>>;
  // Waits until all ranks have entered and compares their calls. Afterwards body(r) is what rank r
  // gave. Throws: CollectiveMismatch, on all ranks; PeerLostError, TimeoutError.
  void enter(const Descriptor& what, Bodies bodies = {});
  std::span<const std::byte> body(int rank) const;
  // As enter(), for operations whose counts differ between pairs: also that what a rank sends is
  // what its peer expects.
  void enter_uneven(const Descriptor& what, std::span<const std::int64_t> send_counts,
                    std::span<const std::int64_t> recv_counts);

  // Announces a send, with its data or without; in the second case returns when these may follow.
  // Throws: CollectiveMismatch also if the receiver calls something else.
  void offer(const Descriptor& send, std::span<const std::byte> body, bool is_small);
  // The body of the next message from recv.root, valid until the next call; none: it follows.
  // Throws: CollectiveMismatch if it is not what `recv` describes; the sender throws too, if it
  // waits for the answer, or at the end of its next collective, if it does not.
  std::optional<std::span<const std::byte>> take(const Descriptor& recv);

  // For messages side by side, which nothing here waits for.

  // The frame that announces a send.
  HostFrame announce(const Descriptor& send, bool is_small);
  // Where the next frame of `rank` goes, and what it was. Throws: Error if it is none.
  std::span<std::byte> room(int rank);
  const HostFrame& note_frame(int rank, std::size_t bytes);
  // Keeps that frame for the operation that it belongs to. False: it enters a collective.
  bool keep_frame(int rank);
  struct Letter {
    HostFrame frame;
    std::vector<std::byte> body;
  };
  // The next message of `rank`, if one has come.
  std::optional<Letter> next_letter(int rank);
  // Enters the collective whose frame `rank` sent with the call `what`, of which all ranks then
  // throw. Receivers of `withdrawn` forget what was announced to them last.
  [[noreturn]] void enter_otherwise(const Descriptor& what, int rank,
                                    const std::vector<int>& withdrawn);
  // Throws what a receiver says of a message.
  [[noreturn]] static void throw_mismatch(int sender, const Descriptor& sent, int receiver,
                                          const Descriptor& received);

  // Throws what a receiver said about an earlier small message.
  void raise_refusal();

  HostLinks& links() { return *links_; }
  const std::shared_ptr<HostLinks>& shared_links() const { return links_; }
  std::size_t body_limit() const { return body_limit_; }

 private:
  const HostFrame& frame(int rank) const;
  // Receives one frame from each of `ranks` into its room.
  void receive(const std::vector<int>& ranks);
  void send(int rank, const HostFrame& frame, std::span<const std::byte> body = {});
  Letter letter(int rank) const;
  // Deals with a frame that is no entry, for whoever waits for one. False: it is one.
  bool put_aside(int rank);
  void note_refusal(int rank);
  void exchange_entries(const HostFrame& mine, Bodies bodies,
                        const std::vector<int>& withdrawn = {});
  void compare(const Descriptor& what) const;

  std::shared_ptr<HostLinks> links_;
  int rank_;
  int size_;
  std::size_t body_limit_;
  std::size_t stride_;
  std::vector<std::byte> rooms_;
  std::vector<std::size_t> received_;  // bytes in each room
  std::vector<std::deque<Letter>> letters_;
  std::vector<std::uint64_t> offered_;  // messages to each rank so far
  std::vector<std::optional<Letter>> early_entries_;
  std::vector<Descriptor> calls_;
  std::vector<bool> uneven_;
  Letter taken_;
  std::optional<CollectiveMismatch> refusal_;
};

}  // namespace gantry
