#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <list>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <gantry/collectives/collective_mismatch.hpp>

#include "collectives/host/links/links.hpp"
#include "collectives/selection/descriptor.hpp"

namespace gantry {

// Bytes of 0, which take memory only once they are touched: a rank has buffers for all ranks, and
// hears from few of them.
class UntouchedBytes {
 public:
  UntouchedBytes() = default;
  explicit UntouchedBytes(std::size_t count)
      : data_(static_cast<std::byte*>(std::calloc(count, 1))), count_(count) {
    if (data_ == nullptr && count > 0) throw std::bad_alloc();
  }

  std::byte* data() const { return data_.get(); }
  std::size_t size() const { return count_; }
  operator std::span<std::byte>() const { return {data_.get(), count_}; }

 private:
  struct Free {
    void operator()(std::byte* data) const { std::free(data); }
  };

  std::unique_ptr<std::byte, Free> data_;
  std::size_t count_ = 0;
};

// Note [Entering an operation on the host]
// A collective begins with one message from every rank to every other. It holds the call, and the
// data if they are small. So every rank knows all calls before anything is written. All ranks find
// the same mismatch, no message is left on a link, and the group stays intact.
// Sends and receives are not ordered with collectives. A rank in a collective buffers messages that
// arrive for a later recv, as MPI's unexpected-message queue does. A rank that waits in a send or a
// receive may learn that its peer is in a collective. Its own call is then a mismatch. It enters
// the collective with its own call, so that all ranks throw.
//
// Note [Rejected messages]
// A receiver rejects a message that differs from its recv, and throws. The sender of a small
// message has gone on. It finds the answer in its next operation, and throws at the end of that.
// A send that waits for nothing does not throw its own: that would depend on the answer's speed.
// The receiver may have gone elsewhere, so that this operation is a collective that cannot begin.
// A sender that finds the answer but no entry behind it therefore leaves the collective. The other
// ranks have its entry, and its data if they are small: it leaves at once. Otherwise they would
// wait for its data: it gives the receiver two seconds. Where a rank entered with messages that are
// not answered yet, all ranks confirm that they go on, before they transfer large data. A rank that
// has left declines, and all ranks throw. Frames of a collective carry its number, by which a rank
// drops the frames of a collective that it has left.

// The header of every message, and of every chunk of a large one.
struct HostFrame {
  enum class Kind : std::uint32_t {
    entry,    // the call of a collective; the body holds its data, if they are small
    message,  // announces a send; the body holds its data, if they are small
    accept,   // to a sender: the receiver is ready for the data
    // To a sender: the receiver made another call, described by `what`. The body holds the sender's
    // Descriptor.
    reject,
    chunk,  // data of an accepted message, in the body
    // To all ranks, behind an entry: this rank goes on. With a body it has left the collective
    // instead, because rank `number` rejected its message. `what` is that rank's call, and the body
    // holds this rank's Descriptor.
    confirm,
  };

  Descriptor what;
  std::uint32_t magic = 0x47414e54;
  Kind kind = Kind::entry;
  std::uint32_t has_body = 0;
  // Entry: the sender withdraws the last message that it announced.
  std::uint32_t withdraws = 0;
  // Message: its number among the messages to its receiver. Answer: the number of its message.
  // Entry: the last message of its receiver that the sender has taken or rejected.
  std::uint64_t number = 0;
  // Entry, confirm: the number of the collective on these links.
  std::uint64_t collective = 0;
  // Entry: an operation on unequal blocks.
  std::uint32_t is_uneven = 0;
  // Entry: the sender has sent messages of which it does not know that they were taken.
  std::uint32_t is_unsettled = 0;
};
static_assert(sizeof(HostFrame) == 152);

// Exchanges HostFrames over links, and buffers unexpected messages.
class HostEntry {
 public:
  // Bodies have up to `body_limit` bytes.
  HostEntry(std::shared_ptr<HostLinks> links, int rank, int size, std::size_t body_limit);

  // The data that a rank sends with its entry: bodies[r] goes to rank r. May be empty.
  using Bodies = std::span<const std::span<const std::byte>>;
  // Waits until all ranks have entered, and compares their calls. Afterwards body(r) is the data
  // from rank r. `moves_data`: data follow that the entries do not hold. Throws:
  // CollectiveMismatch, on all ranks, or on this one if its message was rejected; PeerLostError,
  // TimeoutError.
  void enter(const Descriptor& what, Bodies bodies = {}, bool moves_data = false);
  std::span<const std::byte> body(int rank) const;
  // As enter(), for counts that differ between pairs. Also compares the counts of each pair.
  void enter_uneven(const Descriptor& what, std::span<const std::int64_t> send_counts,
                    std::span<const std::int64_t> recv_counts);

  // Sends a small message, or announces a large one and waits until the receiver accepts it.
  // Throws: CollectiveMismatch also if the receiver made another call.
  void send_message(const Descriptor& send, std::span<const std::byte> body, bool is_small);
  // Returns the body of the next message from recv.root, valid until the next call. Returns nullopt
  // if the message is large: its data follow. Throws: CollectiveMismatch if the message does not
  // match `recv`. The sender of a large message throws too; the sender of a small one throws at the
  // end of its next operation.
  std::optional<std::span<const std::byte>> receive_message(const Descriptor& recv);

  // For groups of messages. None of these blocks.

  // Returns the frame that announces a send.
  HostFrame announce(const Descriptor& send, bool is_small);
  // The receive buffer for the next frame of `rank`.
  std::span<std::byte> buffer(int rank);
  // Returns the frame that arrived there. Throws: Error if it is not a frame.
  const HostFrame& check_frame(int rank, std::size_t bytes);
  // The receiver `rank` has taken or rejected all messages up to this number.
  void settle(int rank, std::uint64_t number);
  // Buffers that frame for its operation. Returns false if it is the entry of a collective.
  bool keep_frame(int rank);
  struct UnexpectedMessage {
    HostFrame frame;
    std::vector<std::byte> body;
  };
  // True if the entry of `rank` in a collective that this rank has not entered is buffered.
  bool has_early_entry(int rank) const {
    return early_entries_[static_cast<std::size_t>(rank)].has_value();
  }
  // Takes the next buffered message of `rank`, if there is one.
  std::optional<UnexpectedMessage> take_unexpected(int rank);
  // Enters the collective that `rank` entered, with the mismatched call `what`: all ranks throw.
  // The receivers in `withdrawn` drop the last message that was announced to them.
  [[noreturn]] void enter_mismatched(const Descriptor& what, int rank,
                                     const std::vector<int>& withdrawn);
  // Throws the mismatch of a message.
  [[noreturn]] static void throw_mismatch(int sender, const Descriptor& sent, int receiver,
                                          const Descriptor& received);

  // Throws the mismatch of an earlier small message that its receiver rejected.
  void throw_rejection();
  // Takes the frames that have arrived from receivers of messages that are not answered yet, other
  // than the ranks in `except`. Does not wait for others.
  void take_answers(std::span<const int> except = {});
  // The text of a rejection that throw_rejection() would throw; empty if there is none.
  std::string rejection_text() const;

  HostLinks& links() { return *links_; }
  const std::shared_ptr<HostLinks>& shared_links() const { return links_; }
  std::size_t body_limit() const { return body_limit_; }

 private:
  const HostFrame& frame(int rank) const;
  // Receives one frame from each of `ranks` into its buffer.
  void receive(const std::vector<int>& ranks);
  void send(int rank, const HostFrame& frame, std::span<const std::byte> body = {});
  UnexpectedMessage copy_message(int rank) const;
  // Processes a frame while an entry is awaited. Returns false if the frame is an entry.
  bool buffer_unexpected(int rank);
  void record_rejection(int rank);
  // `moves_data`: as for enter().
  void exchange_entries(const HostFrame& mine, Bodies bodies, bool moves_data,
                        const std::vector<int>& withdrawn = {});
  // Ends this rank's part in the collective, to which the `absent` ranks have not come, and throws
  // the rejection.
  [[noreturn]] void leave_collective(const std::vector<int>& absent, bool moves_data);
  // Waits until all ranks confirm, if one of them awaits an answer. Throws: CollectiveMismatch, on
  // all ranks, if one has left.
  void confirm_entries();
  // Drops an entry of a collective that this rank has left. Returns false if it is another one.
  bool drop_old_entry(int rank);
  // Drops the message that `rank` withdraws with its entry, if it does.
  void drop_withdrawn(int rank, const HostFrame& entry);
  bool is_unsettled() const;
  // Waits a short time for the next message of `rank`. Returns false if there is none.
  bool is_coming(int rank) const;
  void compare(const Descriptor& what) const;

  std::shared_ptr<HostLinks> links_;
  int rank_;
  int size_;
  std::size_t body_limit_;
  std::size_t stride_;
  UntouchedBytes buffers_;
  std::vector<std::size_t> received_;                     // bytes in each buffer
  std::vector<std::list<UnexpectedMessage>> unexpected_;  // a list: empty, it allocates nothing
  std::vector<std::uint64_t> announced_;                  // messages announced to each rank
  std::vector<std::uint64_t> settled_;                    // of these, known as taken or rejected
  std::vector<std::uint64_t> taken_;                      // the last message of each rank, likewise
  std::uint64_t collectives_ = 0;                         // entered on these links
  bool is_any_unsettled_ = false;                         // in the last collective
  std::vector<std::optional<UnexpectedMessage>> early_entries_;
  std::vector<Descriptor> calls_;
  std::vector<bool> uneven_;
  UnexpectedMessage received_message_;
  struct Rejection {
    int receiver;
    Descriptor sent;
    Descriptor received;
  };
  std::optional<Rejection> rejection_;
};

}  // namespace gantry
