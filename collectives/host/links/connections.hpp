#pragma once

#include <poll.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <list>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "collectives/host/links/handshake.hpp"
#include "collectives/host/links/links.hpp"

namespace gantry {

// Note [Connections between hosts]
// A job of n ranks has n² pairs, and most ranks never exchange a message. So a pair is connected
// when one of its ranks first needs that. At the start a rank has control connections to its
// neighbours only: to all ranks of a small group, and to a few at distances 1, 4, 16, … of a large
// one. A thread of each rank accepts and makes connections, so the other rank's program may be
// busy.
//
// Losses still reach every rank. A rank that learns why another one failed repeats that to all
// ranks to which it has a control connection, once. The neighbours join all ranks of the group.
// A rank never waits for another rank without a control connection to it: the wait first makes one.
//
// Two ranks may connect to each other at the same moment. The connection that the lower rank began
// is kept. The lower rank rejects the other connection, and the higher rank closes it.

// Why a group is broken.
struct LinkFailure {
  ControlMessage message;
  std::string text;  // details, where this rank found the failure
  int from = -1;     // the rank that reported it, −1 for this rank
};

// The descriptors of a rank's connections that exist from the start.
struct LinkDescriptors {
  std::vector<Socket> listeners;
  Socket wake;  // an eventfd that wakes the thread
  Socket news;  // an eventfd that wakes the rank
};

// A data connection that was made, and the tags of its messages.
struct NewData {
  int rank = 0;
  Socket socket;
  std::optional<DataTags> tags;  // none on a unix socket
};

// A rank's connections to the other ranks of its group, and the thread that makes and watches them.
//
// Thread safety: any thread.
class Connections final : public LinkMonitor {
 public:
  using Clock = std::chrono::steady_clock;

  // `addresses` are the texts of all ranks' ones; the listeners are at this rank's. Most of them
  // are never used. Throws: std::system_error.
  Connections(const LinkGroup& group, std::vector<std::string> addresses,
              LinkDescriptors descriptors);
  // Closes them. Ranks that wait for this one lose a peer.
  ~Connections() override;
  Connections(const Connections&) = delete;
  Connections& operator=(const Connections&) = delete;

  // Connects to the neighbours. Throws: Error naming the ranks that did not connect.
  void connect_neighbours(Clock::time_point deadline);

  // Readable after a change below; stays so until clear_news().
  int news() const { return descriptors_.news.get(); }
  void post_news() noexcept;
  void clear_news() noexcept;
  // Asks for the data connection to `rank`, which take_data() returns later.
  void request(int rank);
  // Takes the data connections that were made since the last call.
  std::vector<NewData> take_data();
  // Why the group is broken, as far as this rank knows.
  std::optional<LinkFailure> why_broken() const;
  // Waits until `rank` has left, the group is broken, or this rank has sent its last message.
  // Returns true if `rank` has left.
  bool await_end(int rank, Clock::time_point deadline);
  // Sends the last control message of this rank. Later ones are ignored.
  void notify(const ControlMessage& message) noexcept;

  void on_failure(std::function<void(std::exception_ptr)> callback) override;
  std::exception_ptr failure() const override;
  void set_progress(const RankProgress& progress) noexcept override;
  std::vector<std::optional<RankProgress>> probe() override;
  void report_late(int rank) noexcept override;
  void report_no_nccl() noexcept override;
  int rank_without_nccl() const noexcept override;

 private:
  // One connection of a pair.
  struct End {
    Socket socket;  // empty also once it is taken or closed
    bool is_made = false;
    bool is_own = false;  // this rank began it
    ConnectionKey key;
    Key acceptor_nonce{};

    LinkSide side() const { return is_own ? LinkSide::dialler : LinkSide::acceptor; }
  };
  struct Pair {
    End ends[kPurposes];
    bool is_wanted = false;  // its data connection
    bool has_left = false;
  };
  // An accepted connection whose Hello is on its way, or the confirmation of its rank. See Note
  // [Confirmed connections].
  struct Guest {
    Socket socket;
    PartialRead<Hello> reading;
    Clock::time_point deadline;
    // Of a rank that was welcomed, which has no deadline.
    std::optional<Hello> hello;
    ConnectionKey key;
    Key own_nonce{};
    PartialRead<LastWord> confirming;
  };

  static End& end_of(Pair& pair, Purpose purpose) {
    return pair.ends[static_cast<std::size_t>(purpose)];
  }
  Pair& pair(int rank) { return pairs_[static_cast<std::size_t>(rank)]; }
  Secrecy secrecy_to(int rank) const;
  void run();
  // All of these require the lock.
  int prepare_poll();
  void handle_events();
  // A bounded number: other connections have their turn, too.
  void accept_guests();
  // Makes room by the guest that came first without a greeting; a rank of the group dials again.
  // False if there is none, or if it is welcome.
  bool drop_oldest_guest();
  std::size_t most_guests() const;
  std::size_t fixed_descriptors() const { return 1 + descriptors_.listeners.size(); }
  // Returns false once the connection needs no further look.
  bool greet(Guest& guest);
  bool await_confirmation(Guest& guest);
  // True if a guest of that rank is welcome.
  bool is_expected(int rank, Purpose purpose) const;
  std::optional<Answer> answer_to(const Hello& hello, const ConnectionKey& key);
  void dial(int rank, Purpose purpose, Clock::time_point give_up);
  std::list<Dial>::iterator dial_of(int rank, Purpose purpose);
  // Returns false once the attempt is over.
  bool advance(Dial& dial);
  void install(int rank, Purpose purpose, End made);
  // Dials what a wanted pair lacks.
  void connect_pair(int rank);
  void read_control(int rank);
  // Takes a message that is not the last one. Returns false for another message.
  bool take_passing(const End& end, int rank, const ControlMessage& message);
  static void send_word(const End& end, const ControlMessage& message) noexcept;
  // Repeats the report that `rank` has no NCCL to all ranks, once.
  void spread_no_nccl(int rank) noexcept;
  // Calls the callback of a broken group.
  void report_failure(std::unique_lock<std::mutex>& lock);
  // `rank` stops, and says why.
  void take_last(int rank, const ControlMessage& message);
  void fail(const ControlMessage& message, std::string text, int from) noexcept;
  void fail_without_descriptors(const std::string& what) noexcept;
  void send_last(const ControlMessage& message) noexcept;
  void publish() noexcept;
  std::string missing_text() const;

  const LinkGroup group_;
  const std::vector<std::string> addresses_;
  const Key key_;              // of the group
  const std::string machine_;  // of this rank
  const bool is_unix_;         // its listener
  const std::vector<int> neighbours_;
  const LinkDescriptors descriptors_;
  const int owner_;  // the process

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::vector<Pair> pairs_;   // by rank
  std::vector<int> watched_;  // ranks with a control connection, and some that had one
  std::list<Guest> guests_;
  std::set<Key> nonces_;  // of the authentic greetings
  std::list<Dial> dials_;
  std::vector<int> new_data_;  // ranks
  std::optional<LinkFailure> failure_;
  bool has_caused_it_ = false;          // after this rank's last message, on which others end
  std::optional<ControlMessage> last_;  // of this rank
  std::string trouble_;                 // of this process with its descriptors, or of a dial
  bool is_deaf_ = false;                // there is no descriptor for the next connection
  std::optional<Clock::time_point> deaf_since_;
  bool stops_ = false;
  RankProgress progress_;                             // of this rank
  std::uint64_t token_ = 0;                           // of the last probe
  std::vector<std::optional<RankProgress>> replies_;  // to it
  int rank_without_nccl_ = -1;
  std::function<void(std::exception_ptr)> on_failure_;

  std::mutex probing_;         // held for one probe at a time, and taken before mutex_
  std::mutex callback_mutex_;  // held while the callback runs, likewise

  std::vector<pollfd> polled_;     // of the thread
  std::vector<int> polled_ranks_;  // ranks of the control connections
  std::thread thread_;
};

// Opens the descriptors, and sets `address` to the listeners' address. Throws: as
// listen_for_ranks().
LinkDescriptors open_descriptors(RankAddress& address,
                                 Neighbourhood where = Neighbourhood::machines);

}  // namespace gantry
