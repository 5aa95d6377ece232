// The file in shared memory through which the ranks of one machine watch each other. It outlives
// them, so that glaunch can tell what each was doing.
//
//   Header | Rank × ranks | one page of Words per rank | Entry × kRing per rank
//   | BlockCounts × block_counts_kept() per rank | Mailbox per rank
//
// Plain words only; other versions of the project read it as long as kVersion stays.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "job/operands.hpp"

namespace gantry::flight {

inline constexpr std::uint64_t kMagic = 0x3154'4847'494c'4647;  // "GFLIGHT1"
inline constexpr std::uint32_t kVersion = 7;
inline constexpr std::size_t kRing = 1024;
inline constexpr std::size_t kPieceBytes = 4032;
inline constexpr const char* kSuffix = ".flight";

/// The state of a rank in the group.
enum class State : std::uint32_t { running, finished, aborted };

/// Why a group is unusable.
enum class Reason : std::uint8_t { none, died, left, aborted, timed_out, lost, mismatch };

/// How the text of a call is built; bits.
enum Style : std::uint8_t { kBare = 0, kTyped = 1, kReduces = 2, kRooted = 4, kTo = 8, kFrom = 16 };

/// The names that numbers in this file stand for.
struct Name {
  char text[15];
  std::uint8_t style;
};

/// One call of a collective, laid out as collectives' Descriptor.
struct Call {
  std::int64_t number;
  std::int64_t count;
  double scale;
  std::uint64_t window_offset;
  std::int32_t root;
  std::uint8_t kind;
  std::uint8_t op;
  std::uint8_t dtype;
  std::uint8_t reproducible;
  std::uint8_t algorithm;  ///< that the caller wants, and blocks; 0: none
  std::uint8_t blocks;
  std::uint8_t ends_condition;  ///< 1: of a graph, behind a body that has operations of the group
  std::uint8_t reserved[5];
  Operands operands;
};
static_assert(sizeof(Call) == 112);

/// Call::window_offset: the begin, in registered memory, of the tensor that other ranks access. It
/// packs the number of the registration, from 1, and a byte offset. 0: the tensor is not
/// registered.
[[nodiscard]] constexpr std::uint64_t pack_window_offset(std::uint64_t registration,
                                                         std::uint64_t offset) {
  return registration << 48 | offset;
}
[[nodiscard]] constexpr std::uint64_t registration_of(std::uint64_t window_offset) {
  return window_offset >> 48;
}
[[nodiscard]] constexpr std::uint64_t offset_of(std::uint64_t window_offset) {
  return window_offset << 16 >> 16;
}

/// One call with its circumstances.
struct Record {
  Call call;
  std::int64_t bytes;
  std::uint64_t stream;
  std::int64_t enqueued_ns;  ///< CLOCK_MONOTONIC
  std::uint8_t algorithm;
  std::uint8_t is_grouped;  ///< 1: a message that runs beside others of its group
  std::uint8_t reserved[2];
  std::uint32_t timeout_ms;  ///< deadline of this call; 0: the group's
  char tag[32];              ///< of the caller, for people; not always null-terminated
};
static_assert(sizeof(Record) == 176);

/// A place for a Record that one thread writes while others may read.
class Entry {
 public:
  /// Overwrites the entry; `ticket` is 1 or more.
  void put(std::uint64_t ticket, const Record& record) noexcept;
  /// The record, unless `ticket` is not or no longer here.
  [[nodiscard]] std::optional<Record> get(std::uint64_t ticket) const noexcept;
  /// Takes the record away.
  void clear() noexcept { ticket_.store(0, std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> ticket_;  ///< first: copies of entries are compared by it
  std::atomic<std::uint64_t> words_[sizeof(Record) / 8];
};

/// Elements that one rank sends to each rank (first) and expects of each, in an operation on blocks
/// of unequal sizes. One thread writes a place while others may read.
class BlockCounts {
 public:
  /// Of `words` words, see words_for().
  explicit BlockCounts(std::atomic<std::uint64_t>* words) : words_(words) {}
  static constexpr std::size_t words_for(int ranks) {
    return 1 + 2 * static_cast<std::size_t>(ranks);
  }

  /// Overwrites the place by the counts of call `number`, 1 or more.
  void put(std::uint64_t number, std::span<const std::int64_t> sends,
           std::span<const std::int64_t> receives) noexcept;
  /// The counts of call `number`; nullopt if they were never put, or are overwritten.
  [[nodiscard]] std::optional<std::vector<std::int64_t>> get(std::uint64_t number, int ranks) const;

 private:
  std::atomic<std::uint64_t>* words_;
};

/// Numbers of sends and receives carry this bit: the others' stay in step on all ranks.
inline constexpr std::uint64_t kMessageBit = std::uint64_t{1} << 40;

/// Calls of one queue run one after the other; calls of different queues run side by side.
enum class Queue : std::uint8_t { collective, send, recv };
inline constexpr int kQueues = 3;

/// A graph runs one call again and again. The device tells which run it is above the call's number.
inline constexpr unsigned kRunShift = 41;

/// The last started and the last finished call of a queue, as the device reported them. The device
/// does not report calls that finish quickly.
struct Progress {
  std::uint64_t started = 0;
  std::uint64_t finished = 0;
  std::uint32_t run = 0;  ///< of the one that began
  std::uint32_t finished_run = 0;

  [[nodiscard]] bool is_under_way() const { return started != finished || run != finished_run; }
};

/// One rank's words that its device writes, laid out as collectives' DeviceWords.
struct Words {
  std::uint32_t abort;
  std::uint32_t reserved[15];
  std::uint64_t started;
  std::uint64_t finished;
  std::uint64_t message_started[2];
  std::uint64_t message_finished[2];
  std::uint64_t fault_call;
  std::int32_t fault_peer;
  std::uint32_t fault;
  std::uint32_t awaited[32];

  [[nodiscard]] Progress progress(Queue queue) const noexcept;
};
static_assert(sizeof(Words) == 256);

/// One rank's words that its host writes.
struct alignas(64) Rank {
  std::int32_t pid;
  std::uint32_t job_rank;  ///< rank in glaunch's job, plus 1; 0: unknown
  std::uint64_t start_time;
  char host[72];
  char device[96];
  std::atomic<std::int64_t> heartbeat_ns;  ///< CLOCK_MONOTONIC; written by its watchdog
  std::atomic<std::int64_t> died_ns;       ///< when its end was seen; 0: it was not
  /// Bytes of its device's memory that its process allocated and reserved; 0: not published.
  std::atomic<std::int64_t> allocated_bytes, reserved_bytes;
  char uuid[40];  ///< of its device, not always null-terminated; empty: not published
  alignas(64) std::atomic<std::uint64_t> fence;
  std::atomic<std::uint64_t> recorded;  ///< ticket of its newest entry
  std::atomic<std::uint32_t> state;
  std::atomic<std::uint32_t> closed;  ///< 1: it has let go of the other ranks' memory
  /// By the fence's number modulo 2: what the rank called that made it announce the fence, see
  /// collectives' HostCall (8 bits), and how many collectives before (56 bits).
  std::atomic<std::uint64_t> host_calls[2];
  /// The Detail of the diagnosis that this rank wrote or was about to write. Nobody reads it before
  /// Header::diagnosis names this rank as the author.
  char detail[448];
};
static_assert(sizeof(Rank) % 64 == 0);

/// One rank's place for messages to others, which go in pieces.
struct alignas(64) Mailbox {
  /// Which piece lies here (48 bits), and how many have read it (16 bits).
  std::atomic<std::uint64_t> piece;
  std::uint64_t total_bytes;
  std::byte reserved[48];
  std::byte data[kPieceBytes];
};
static_assert(sizeof(Mailbox) == 4096);

struct alignas(64) Header {
  std::atomic<std::uint64_t> magic;  ///< written last
  std::uint32_t version;
  std::int32_t ranks;
  std::uint64_t bytes;
  std::uint64_t page_bytes;
  std::uint64_t ranks_at, words_at, rings_at, block_counts_at, mailboxes_at;
  std::int64_t created_ns;  ///< CLOCK_REALTIME
  std::int64_t timeout_ms;
  char boot[40];
  char job[64];
  char group[64];
  char path[160];  ///< empty: the file has no name
  Name kinds[16];
  Name ops[16];
  Name algorithms[16];
  alignas(64) std::atomic<std::uint64_t> diagnosis;  ///< see Diagnosis
  std::atomic<std::uint32_t> finished;               ///< ranks that left in order
};

class View;

/// The rank that made the group unusable, set once by a compare-and-swap of one word.
struct Diagnosis {
  Reason reason = Reason::none;
  int rank = -1;
  std::uint64_t call = 0;  ///< collective under way somewhere at that time; 0: none
  int author = 0;          ///< the rank that wrote this, and the text in its Rank::detail

  /// Calls after the 2^36th are not named.
  [[nodiscard]] std::uint64_t pack() const;
  [[nodiscard]] static Diagnosis unpack(std::uint64_t word);
};

/// The details of a Diagnosis in Rank::detail of its author: a text for people, and its subject.
/// Fields stand behind each other, each with a null byte behind it.
struct Detail {
  std::string text{};
  std::vector<int> ranks{};  ///< that did not come, or whose calls differ
  /// For Reason::mismatch the call of each rank; for Reason::timed_out what the others wait in, and
  /// one of kLate….
  std::vector<std::string> calls{};

  /// The fields for Rank::detail; long ones are cut.
  [[nodiscard]] std::string pack() const;
  /// Empty if the author wrote none.
  [[nodiscard]] static Detail of(const View& view, const Diagnosis& diagnosis);
};

/// The missing step of a late rank: called, finished, received, sent.
inline constexpr const char* kLateToCall = "call";
inline constexpr const char* kLateToFinish = "finish";
inline constexpr const char* kLateToReceive = "receive";
inline constexpr const char* kLateToSend = "send";

/// A mapped file.
class View {
 public:
  View() = default;
  explicit View(void* base) : base_(static_cast<std::byte*>(base)) {}

  /// Writes the offsets for `ranks` ranks and pages of `page_bytes`; returns the file's size.
  static std::size_t lay_out(Header& header, int ranks, std::size_t page_bytes);
  /// True if `bytes` mapped bytes hold a whole file of this version.
  static bool is_valid(const void* base, std::size_t bytes);

  [[nodiscard]] Header& header() const { return *reinterpret_cast<Header*>(base_); }
  [[nodiscard]] Rank& rank(int rank) const { return at<Rank>(header().ranks_at, rank); }
  [[nodiscard]] Words& words(int rank) const {
    return *reinterpret_cast<Words*>(base_ + header().words_at +
                                     static_cast<std::size_t>(rank) * header().page_bytes);
  }
  [[nodiscard]] Entry* ring(int rank) const {
    return &at<Entry>(header().rings_at, rank * static_cast<int>(kRing));
  }
  /// The place where `rank` puts the counts of call `number`; an earlier call may have the same.
  [[nodiscard]] BlockCounts block_counts(int rank, std::uint64_t number) const;
  [[nodiscard]] Mailbox& mailbox(int rank) const {
    return at<Mailbox>(header().mailboxes_at, rank);
  }

  /// The newest record of `rank`.
  [[nodiscard]] std::optional<Record> newest(int rank) const;
  /// The number of the newest call that `rank` recorded in a queue; 0 if there is none.
  [[nodiscard]] std::uint64_t newest_number(int rank, Queue queue) const;
  /// The newest record of `rank` with this number in a queue.
  [[nodiscard]] std::optional<Record> find(int rank, Queue queue, std::uint64_t number) const;
  /// The newest record of `rank` in a queue of messages with `peer`.
  [[nodiscard]] std::optional<Record> find_message(int rank, Queue queue, int peer) const;
  /// "all_reduce sum f32[4096]".
  [[nodiscard]] std::string text(const Call& call) const;
  /// The same with the caller's tag: "all_reduce sum f32[4096] tag=loss".
  [[nodiscard]] std::string text(const Record& record) const;
  [[nodiscard]] Queue queue(const Call& call) const;

 private:
  template <class Matches>
  [[nodiscard]] std::optional<Record> find_newest(int rank, Matches matches) const;
  [[nodiscard]] std::uint8_t style(const Call& call) const;
  template <class T>
  [[nodiscard]] T& at(std::uint64_t offset, int index) const {
    return reinterpret_cast<T*>(base_ + offset)[index];
  }

  std::byte* base_ = nullptr;
};

/// The ranks of glaunch's job that these ranks of a group are, where that is known.
[[nodiscard]] std::vector<int> job_ranks(const View& view, const std::vector<int>& ranks);

/// "all_reduce sum f32[4096]" or "all_reduce_coalesced sum f32[3]+f32[5]" from the names of kind,
/// op and wanted algorithm.
[[nodiscard]] std::string call_text(std::string_view kind, std::uint8_t style, std::string_view op,
                                    std::string_view algorithm, const Call& call);

/// Whether a call is a send or receive, which are numbered apart.
[[nodiscard]] constexpr bool is_message(std::uint64_t number) {
  return (number & kMessageBit) != 0;
}

/// A call's number as people count.
[[nodiscard]] constexpr std::uint64_t plain_number(std::uint64_t number) {
  return number & ~kMessageBit;
}

/// Where this user's files are: a folder in GANTRY_FLIGHT_DIR, by default /dev/shm. See Note [A
/// flight folder of another user].
[[nodiscard]] std::string folder();
/// CLOCK_MONOTONIC.
[[nodiscard]] std::int64_t monotonic_ns() noexcept;

}  // namespace gantry::flight
