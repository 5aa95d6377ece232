#pragma once

#include <cstddef>
#include <cstdint>

#include <gantry/collectives/window.hpp>
#include <gantry/core/export.hpp>
#include <gantry/core/macros.hpp>
#include <gantry/kernels/block.hpp>

namespace gantry {

namespace detail {

// The host's words by which a kernel that waits learns that it must leave, and reports it. They lie
// in page-locked memory, and are null in a group of one rank.
struct WaitWords {
  std::uint32_t* abort = nullptr;
  std::uint32_t* fault = nullptr;
  std::uint64_t* fault_call = nullptr;
  std::int32_t* fault_peer = nullptr;
  std::uint32_t* awaited = nullptr;  // [rank]: see Note [Waits of own kernels]
};

// Bits of `WaitWords::awaited`: the channel above a part of the number of the wait, which is not 0.
inline constexpr int kAwaitedNumberBits = 20;
GANTRY_HD constexpr std::uint32_t awaited_note(int channel, std::uint64_t number) {
  constexpr std::uint32_t kNumbers = 1U << (kAwaitedNumberBits - 1);
  return static_cast<std::uint32_t>(channel) << kAwaitedNumberBits | kNumbers |
         static_cast<std::uint32_t>(number % kNumbers);
}
// Values of the fault words.
inline constexpr std::uint32_t kClaimedFault = ~std::uint32_t{3};
inline constexpr std::uint32_t kAbortedFault = 1;
inline constexpr std::uint64_t kFaultOfMessage = std::uint64_t{1} << 40;

// Accesses to words that other ranks or the host see. The host's functions belong to simulated
// devices.
GANTRY_API std::uint64_t load_signal(const std::uint64_t* word);
GANTRY_API void store_signal(std::uint64_t* word, std::uint64_t value);
GANTRY_API std::uint64_t count_signal(std::uint64_t* counter);
GANTRY_API void load_packet(const std::uint64_t* packet, std::uint64_t (&halves)[2]);
GANTRY_API void store_packet(std::uint64_t* packet, const std::uint64_t (&halves)[2]);
GANTRY_API std::uint32_t load_host_word(const std::uint32_t* word);
GANTRY_API bool claim_fault(std::uint32_t* word);
GANTRY_API void pause_wait(std::uint32_t polls);
// Throws: InvalidArgument.
GANTRY_API void check_signal(int rank, int size, int channel);

}  // namespace detail

/// The memory of all ranks in a window, for kernels of the program. Window::view() makes it.
///
/// Trivially copyable: the functor of a launch() or parallel_for() holds it. The launch names the
/// window: `launch(stream, grid, block, uses(window, out), functor)`. The same source runs on GPUs
/// and on simulated devices. Valid as long as a handle of the window exists.
///
///     struct Shift {                        // every rank writes to the next one
///       PeerView view;
///       float* out;
///       GANTRY_HD void operator()(Block& block) const {
///         const int next = (view.rank() + 1) % view.size();
///         const auto i = static_cast<std::size_t>(block.flat_thread());
///         view.at<float>(next)[i] = static_cast<float>(view.rank());
///         if (!view.barrier(block)) return;  // a rank is lost
///         out[i] = view.at<float>(view.rank())[i];
///       }
///     };
///
/// Signals: each rank counts its signals to each rank on each channel, and its waits. wait() takes
/// one signal. Signals need not alternate with waits: several may be under way. They are no words
/// of Window::signal_pad(). Replays of a graph go on counting.
///
/// Failure: a wait for another rank never hangs. It returns false when a rank of the group is lost,
/// when it has waited for GANTRY_COLL_TIMEOUT seconds, or when the group is broken otherwise. The
/// kernel then returns. The next synchronizing call of the device throws, once, PeerLostError or a
/// TimeoutError that names the late rank. This holds in replays of graphs, too. A wait for a signal
/// of this rank to itself has no deadline in a group of one rank.
///
/// Blocks: a block that waits must be on the device together with the blocks that it waits for.
/// Every rank launches as many blocks as its GPU runs at once, or fewer. A simulated device runs
/// the blocks of a launch one after the other: a block waits there only for blocks of other ranks
/// with its own number, or a lower one. Threads of one block may wait for each other's peers.
/// @code
/// const Communicator world = Communicator::world();
/// const Window window = world.window(ones({4}, world.device()));
/// const PeerView view = window.view();  // for kernels
/// @endcode
/// @since 0.3
class PeerView {
 public:
  /// Channels for signals, and for barriers.
  static constexpr int kChannels = 1024;

  /// A view of no ranks.
  PeerView() = default;

  /// Rank of this process in the window's group.
  [[nodiscard]] GANTRY_HD int rank() const { return rank_; }
  /// Number of ranks.
  [[nodiscard]] GANTRY_HD int size() const { return size_; }
  /// The first element of the tensor of `rank`, as Window::peer_pointers(). Writes to it are
  /// visible to the rank's work after a wait for a later signal, or after a later barrier.
  template <class T>
  [[nodiscard]] GANTRY_HD T* at(int rank) const {
    return static_cast<T*>(data_[rank]);
  }

  /// Signals `rank` on `channel`: this thread's earlier writes are visible behind the wait. For
  /// writes of the whole block, call Block::barrier() first. One thread makes the call; other
  /// threads may signal the same rank and channel. `rank` may be this rank.
  /// A rank or channel that does not exist is not signalled: the next synchronizing call throws
  /// InvalidArgument.
  GANTRY_HD void signal(int rank, int channel = 0) const {
    if (!is_valid(rank, channel)) return;
    const std::size_t slot = slot_of(rank, channel);
    // Threads store their counts in the order of the counts.
    const std::uint64_t count = count_of(&words(rank_, kSent)[slot]);
    std::uint64_t* const stored = &words(rank_, kStored)[slot];
    for (std::uint32_t polls = 1; load(stored) != count; ++polls) pause(polls);
    store(&words(rank, kArrived)[slot_of(rank_, channel)], count + 1);
    store(stored, count + 1);
  }
  /// Waits for a signal of `rank` on `channel`, and takes it. Later work of this thread sees the
  /// writes before the signal; Block::barrier() passes them on to the block. One thread makes the
  /// call; others may wait for the same rank and channel, and take a signal each.
  /// Returns false if the group is lost or late, or for a rank or channel that does not exist,
  /// which is an InvalidArgument of the next synchronizing call. The kernel then returns.
  [[nodiscard]] GANTRY_HD bool wait(int rank, int channel = 0) const {
    if (!is_valid(rank, channel)) return false;
    const std::size_t slot = slot_of(rank, channel);
    const std::uint64_t number = count_of(&words(rank_, kAwaited)[slot]) + 1;
    return wait_for_count(&words(rank_, kArrived)[slot], number, rank, channel);
  }
  /// Waits until a block of every rank has made the call on `channel`. Writes before the call are
  /// visible to all these blocks after it. Every thread of the block calls it. One block of a rank
  /// uses a channel at a time.
  /// Returns false, in every thread of the block, as wait().
  [[nodiscard]] GANTRY_HD bool barrier(Block& block, int channel) const {
    if (!is_valid(rank_, channel)) return false;
    std::uint64_t* const counter = words(rank_, kBarriers) + channel;
    block.barrier();  // thread 0 has counted the barrier before
    const std::uint64_t number = load(counter) + 1;
    bool failed = false;
    const int step = static_cast<int>(threads_of(block));
    const int first = static_cast<int>(first_of(block));
    for (int peer = first; peer < size_; peer += step) {
      store(&words(peer, kMet)[slot_of(rank_, channel)], number);
    }
    for (int peer = first; peer < size_; peer += step) {
      failed =
          !wait_for_count(&words(rank_, kMet)[slot_of(peer, channel)], number, peer, channel) ||
          failed;
    }
    if (block.any(failed)) return false;
    if (first == 0) store(counter, number);
    return true;
  }
  /// As above, on the channel of the block's number in its grid: blocks with the same number meet.
  [[nodiscard]] GANTRY_HD bool barrier(Block& block) const {
    const Index3 at = block.index();
    const Index3 blocks = block.grid();
    return barrier(block, static_cast<int>(at.x + blocks.x * (at.y + blocks.y * at.z)));
  }
  /// Copies `n` elements of `from` to elements [offset, offset + n) of the tensor of `rank`, by all
  /// threads of the block, in 16 bytes where both addresses permit it. Does not wait, and signals
  /// nothing: call Block::barrier() and signal() behind it.
  template <class T>
  GANTRY_HD void put(Block& block, int rank, std::size_t offset, const T* from,
                     std::size_t n) const {
    const std::size_t step = threads_of(block);
    const std::size_t first = first_of(block);
    T* const to = at<T>(rank) + offset;
    std::size_t done = 0;
    if constexpr (16 % sizeof(T) == 0) {
      const auto both =
          reinterpret_cast<std::uintptr_t>(to) | reinterpret_cast<std::uintptr_t>(from);
      if (both % sizeof(Words16) == 0) {
        const std::size_t words = n * sizeof(T) / sizeof(Words16);
        for (std::size_t i = first; i < words; i += step) {
          reinterpret_cast<Words16*>(to)[i] = reinterpret_cast<const Words16*>(from)[i];
        }
        done = words * (sizeof(Words16) / sizeof(T));
      }
    }
    for (std::size_t i = done + first; i < n; i += step) to[i] = from[i];
  }

  /// Bytes of the packets of `n` elements of T, twice their own, in put_ll().
  template <class T>
  [[nodiscard]] GANTRY_HD static constexpr std::size_t ll_bytes(std::size_t n) {
    return (n + Packed<T>::kCount - 1) / Packed<T>::kCount * 2 * sizeof(std::uint64_t);
  }
  /// Copies `n` elements of `from` to `rank` with the lowest latency: as packets of 8 bytes of data
  /// and 8 bytes of flags, which need no signal. They fill ll_bytes<T>(n) bytes of the tensor of
  /// `rank` from byte `offset` on, a multiple of 16. By all threads of the block.
  /// T: sizeof(T) is 1, 2, 4 or 8. `flag`: not 0, and not the flag of packets that were there
  /// before. The sender knows that the receiver has taken those.
  template <class T>
  GANTRY_HD void put_ll(Block& block, int rank, std::size_t offset, const T* from, std::size_t n,
                        std::uint32_t flag) const {
    static_assert(sizeof(T) <= 8 && 8 % sizeof(T) == 0, "a packet holds 8 bytes of whole elements");
    auto* const packets = reinterpret_cast<std::uint64_t*>(at<std::byte>(rank) + offset);
    for (std::size_t i = first_of(block); i * Packed<T>::kCount < n; i += threads_of(block)) {
      Packed<T> packed{};
      for (std::size_t k = 0; k < Packed<T>::kCount && i * Packed<T>::kCount + k < n; ++k) {
        packed.elements[k] = from[i * Packed<T>::kCount + k];
      }
      put_packet(packets + 2 * i, packed.data(), flag);
    }
  }
  /// Waits for the packets that `rank` puts at byte `offset` of this rank's tensor with `flag`, and
  /// writes their `n` elements to `to`. By all threads of the block; Block::barrier() passes the
  /// elements on. Returns false, in every thread of the block, as wait().
  template <class T>
  [[nodiscard]] GANTRY_HD bool get_ll(Block& block, int rank, std::size_t offset, T* to,
                                      std::size_t n, std::uint32_t flag) const {
    static_assert(sizeof(T) <= 8 && 8 % sizeof(T) == 0, "a packet holds 8 bytes of whole elements");
    const auto* const packets =
        reinterpret_cast<const std::uint64_t*>(at<std::byte>(rank_) + offset);
    bool failed = false;
    for (std::size_t i = first_of(block); i * Packed<T>::kCount < n && !failed;
         i += threads_of(block)) {
      std::uint64_t data = 0;
      const auto has_come = [&] { return get_packet(packets + 2 * i, flag, data); };
      failed = !wait_until(has_come, flag, rank, kChannels);
      const Packed<T> packed(data);
      for (std::size_t k = 0; k < Packed<T>::kCount && i * Packed<T>::kCount + k < n && !failed;
           ++k) {
        to[i * Packed<T>::kCount + k] = packed.elements[k];
      }
    }
    return !block.any(failed);
  }

 private:
  friend class Window;

  GANTRY_HD static std::size_t first_of(const Block& block) {
    return static_cast<std::size_t>(block.flat_thread());
  }
  GANTRY_HD static std::size_t threads_of(const Block& block) {
    const Index3 size = block.size();
    return std::size_t{size.x} * size.y * size.z;
  }

  static constexpr int kMaxRanks = 32;
  // Polls between two looks at the host's words.
  static constexpr std::uint32_t kPollsPerCheck = 2048;

  struct [[gnu::may_alias]] alignas(16) Words16 {
    std::uint64_t halves[2];
  };

  // The words of a rank: arrays [channel][rank], then a count of barriers for each channel, and the
  // count of reported faults. Peers write the first two arrays, each word by one rank. The others
  // are private to the rank.
  enum Array { kArrived, kMet, kSent, kStored, kAwaited, kBarriers };
  [[nodiscard]] GANTRY_HD std::uint64_t* words(int rank, Array array) const {
    return words_[rank] +
           static_cast<std::size_t>(array) * kChannels * static_cast<std::size_t>(size_);
  }
  [[nodiscard]] static constexpr std::size_t words_for(int size) {
    return static_cast<std::size_t>(kBarriers) * kChannels * static_cast<std::size_t>(size) +
           kChannels + 1;
  }
  [[nodiscard]] GANTRY_HD std::size_t slot_of(int rank, int channel) const {
    return static_cast<std::size_t>(channel) * static_cast<std::size_t>(size_) +
           static_cast<std::size_t>(rank);
  }
  // A fault that names this rank is a wrong argument.
  [[nodiscard]] GANTRY_HD bool is_valid(int rank, int channel) const {
#ifndef __CUDA_ARCH__
    detail::check_signal(rank, size_, channel);
#endif
    if (rank >= 0 && rank < size_ && channel >= 0 && channel < kChannels) return true;
    report_fault(rank_);
    return false;
  }

  // Note [Waits of own kernels]
  // A kernel that waits for long notes in a word of the host for which rank it waits, on which
  // channel, and in which wait. Of several waits for one rank the first note stays until its wait
  // ends. The watchdog measures how long a note stays, so that deadlines need no events and hold in
  // graphs. It follows the notes from rank to rank: a rank that waits itself
  // is not late. The kernel also looks at the abort word, and leaves if it is set.
  template <class IsReady>
  GANTRY_HD bool wait_until(IsReady is_ready, std::uint64_t number, int peer, int channel) const {
    const std::uint32_t mine = detail::awaited_note(channel, number);
    bool is_long = false;
    for (std::uint32_t polls = 1; !is_ready(); ++polls) {
      if (polls % kPollsPerCheck == 0 && host_.abort != nullptr) {
        if (load_host(host_.abort) != 0) {
          report_fault(peer);
          return false;
        }
        is_long = true;
        if (load_host(&host_.awaited[peer]) == 0) note(peer, mine);
      }
      pause(polls);
    }
    if (is_long && load_host(&host_.awaited[peer]) == mine) note(peer, 0);
    return true;
  }
  GANTRY_HD bool wait_for_count(const std::uint64_t* word, std::uint64_t number, int peer,
                                int channel) const {
    const auto has_come = [&] { return static_cast<std::int64_t>(load(word) - number) >= 0; };
    return wait_until(has_come, number, peer, channel);
  }

  // A packet is two halves: 4 bytes of data below the flag each, so that a half is whole or absent.
  GANTRY_HD static void put_packet(std::uint64_t* packet, std::uint64_t data, std::uint32_t flag) {
    const std::uint64_t high = std::uint64_t{flag} << 32;
    const std::uint64_t halves[2] = {high | (data & 0xffff'ffff), high | data >> 32};
    store_packet(packet, halves);
  }
  GANTRY_HD static bool get_packet(const std::uint64_t* packet, std::uint32_t flag,
                                   std::uint64_t& data) {
    std::uint64_t halves[2];
    load_packet(packet, halves);
    data = (halves[0] & 0xffff'ffff) | halves[1] << 32;
    return halves[0] >> 32 == flag && halves[1] >> 32 == flag;
  }
  // The elements of a packet.
  template <class T>
  struct Packed {
    static constexpr std::size_t kCount = sizeof(std::uint64_t) / sizeof(T);
    T elements[kCount];

    Packed() = default;
    GANTRY_HD explicit Packed(std::uint64_t data) {
      __builtin_memcpy(elements, &data, sizeof data);
    }
    [[nodiscard]] GANTRY_HD std::uint64_t data() const {
      std::uint64_t data = 0;
      __builtin_memcpy(&data, elements, sizeof data);
      return data;
    }
  };

#ifdef __CUDA_ARCH__
  __device__ static std::uint64_t load(const std::uint64_t* word) {
    std::uint64_t value;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
    return value;
  }
  __device__ static void store(std::uint64_t* word, std::uint64_t value) {
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
  }
  __device__ static std::uint64_t count_of(std::uint64_t* counter) {
    return atomicAdd(reinterpret_cast<unsigned long long*>(counter), 1ULL);
  }
  __device__ static void store_packet(std::uint64_t* packet, const std::uint64_t (&halves)[2]) {
    asm volatile("st.volatile.global.v2.u64 [%0], {%1, %2};" ::"l"(packet), "l"(halves[0]),
                 "l"(halves[1])
                 : "memory");
  }
  __device__ static void load_packet(const std::uint64_t* packet, std::uint64_t (&halves)[2]) {
    asm volatile("ld.volatile.global.v2.u64 {%0, %1}, [%2];"
                 : "=l"(halves[0]), "=l"(halves[1])
                 : "l"(packet)
                 : "memory");
  }
  __device__ static std::uint32_t load_host(const std::uint32_t* word) {
    return *static_cast<const volatile std::uint32_t*>(word);
  }
  __device__ void note(int peer, std::uint32_t value) const {
    *static_cast<volatile std::uint32_t*>(&host_.awaited[peer]) = value;
  }
  __device__ void report_fault(int peer) const {
    if (host_.fault == nullptr || load_host(host_.fault) != 0) return;
    if (atomicCAS_system(host_.fault, 0U, detail::kClaimedFault) != 0) return;
    *static_cast<volatile std::int32_t*>(host_.fault_peer) = peer;
    *static_cast<volatile std::uint64_t*>(host_.fault_call) = detail::kFaultOfMessage;
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(host_.fault), "r"(next_fault())
                 : "memory");
  }
  __device__ static void pause(std::uint32_t) {}
#else
  static std::uint64_t load(const std::uint64_t* word) { return detail::load_signal(word); }
  static void store(std::uint64_t* word, std::uint64_t value) { detail::store_signal(word, value); }
  static std::uint64_t count_of(std::uint64_t* counter) { return detail::count_signal(counter); }
  static void store_packet(std::uint64_t* packet, const std::uint64_t (&halves)[2]) {
    detail::store_packet(packet, halves);
  }
  static void load_packet(const std::uint64_t* packet, std::uint64_t (&halves)[2]) {
    detail::load_packet(packet, halves);
  }
  static std::uint32_t load_host(const std::uint32_t* word) { return detail::load_host_word(word); }
  void note(int peer, std::uint32_t value) const {
    __atomic_store_n(&host_.awaited[peer], value, __ATOMIC_RELEASE);
  }
  void report_fault(int peer) const {
    if (host_.fault == nullptr || !detail::claim_fault(host_.fault)) return;
    __atomic_store_n(host_.fault_peer, peer, __ATOMIC_RELAXED);
    __atomic_store_n(host_.fault_call, detail::kFaultOfMessage, __ATOMIC_RELAXED);
    __atomic_store_n(host_.fault, next_fault(), __ATOMIC_RELEASE);
  }
  static void pause(std::uint32_t polls) { detail::pause_wait(polls); }
#endif
  // A fault word of its own for each report: the host drops repetitions of one report.
  [[nodiscard]] GANTRY_HD std::uint32_t next_fault() const {
    const std::uint64_t number = count_of(words(rank_, kBarriers) + kChannels);
    return (1U << 28 | static_cast<std::uint32_t>(number % (1 << 28))) << 2 | detail::kAbortedFault;
  }

  int rank_ = 0;
  int size_ = 0;
  detail::WaitWords host_;
  void* data_[kMaxRanks] = {};
  std::uint64_t* words_[kMaxRanks] = {};
};

}  // namespace gantry
