// An exchange in packets that carry data and flag together: no staging, no barrier.
#pragma once

#include <cstring>

#include "collectives/protocol/signal.hpp"
#include "kernels/impl/fold.inl"

namespace gantry::protocol {

// Note [Packets]
// A packet holds 8 bytes of payload and, beside each half, a flag made of the operation's number
// and the digest of the call, and is written by one 16-byte store. A reader takes a half when its
// flag is the one it expects, so nothing has to be ordered or cleared: what an earlier operation
// left has another number, and what a peer with another call sent never fits. (NCCL's LL protocol.)
// Rows of packets come twice; see Note [Signals] why two suffice.

// Packets that a thread waits for at once.
inline constexpr int kPacketBatch = 8;

struct Flags {
  std::uint32_t low;
  std::uint32_t high;
};
GANTRY_HD inline Flags flags_of(std::uint32_t sequence, std::uint32_t digest) {
  return {sequence, (digest & 0xffff0000u) | (sequence & 0xffffu)};
}

// The 8 bytes at `data` + 8 `index`, zero past `bytes`.
GANTRY_HD inline std::uint64_t load_word(const std::byte* data, std::int64_t index,
                                         std::int64_t bytes) {
  const std::byte* at = data + index * 8;
  if (index * 8 + 8 <= bytes && reinterpret_cast<std::uintptr_t>(at) % 8 == 0) {
    return *reinterpret_cast<const std::uint64_t*>(at);
  }
  std::uint64_t word = 0;
  for (int i = 0; i < 8 && index * 8 + i < bytes; ++i) {
    word |= static_cast<std::uint64_t>(at[i]) << (8 * i);
  }
  return word;
}

GANTRY_HD inline void store_word(std::byte* data, std::int64_t index, std::int64_t bytes,
                                 std::uint64_t word) {
  std::byte* at = data + index * 8;
  if (index * 8 + 8 <= bytes && reinterpret_cast<std::uintptr_t>(at) % 8 == 0) {
    *reinterpret_cast<std::uint64_t*>(at) = word;
    return;
  }
  for (int i = 0; i < 8 && index * 8 + i < bytes; ++i) {
    at[i] = static_cast<std::byte>(word >> (8 * i));
  }
}

GANTRY_HD inline std::int64_t words_of(std::int64_t bytes) { return (bytes + 7) / 8; }

// Folds one 8-byte word of elements per rank, as F does.
template <class F, class Block>
class WordFold {
 public:
  static constexpr int kElements = 8 / sizeof(typename F::Stored);

  GANTRY_HD explicit WordFold(const Combination& how) : how_(how) {}
  GANTRY_HD void add(std::uint64_t word, bool first) {
    typename F::Stored elements[kElements];
    memcpy(static_cast<void*>(elements), &word, sizeof word);
    for (int i = 0; i < kElements; ++i) {
      const auto value = Block::scaled(F::load(elements[i]), how_.scale);
      acc_[i] = first ? value : F::combine(acc_[i], value);
    }
  }
  GANTRY_HD std::uint64_t result() const {
    typename F::Stored elements[kElements];
    for (int i = 0; i < kElements; ++i) elements[i] = F::finish(acc_[i], how_.divisor);
    std::uint64_t word;
    memcpy(&word, elements, sizeof word);
    return word;
  }

 private:
  const Combination& how_;
  typename F::Acc acc_[kElements] = {};
};

template <class T, class Block>
class PacketShare {
 public:
  GANTRY_HD PacketShare(Block& block, const Exchange& plan, std::uint32_t sequence)
      : block_(block), plan_(plan), group_(plan.group), sequence_(sequence) {}

  // Tells all peers what is called. Nothing waits for it but who waits in vain, and the end.
  GANTRY_HD void announce() {
    if (block_.index() != 0) return;
    block_.for_each_rank(group_.size, [&](int p) {
      if (p == group_.rank) return;
      block_.post(&pad_of(group_, p).entry[sequence_ & 1][0][group_.rank],
                  signal(sequence_, plan_.digests[p]));
    });
  }

  GANTRY_HD void push() {
    if (plan_.offers_one) {
      std::int64_t most = 0;
      for (int p = 0; p < group_.size; ++p) {
        if (plan_.offer_bytes[p] > most) most = plan_.offer_bytes[p];
      }
      for_each_word(most, [&](std::int64_t i) {
        const std::uint64_t word = load_word(plan_.in + plan_.offer_at[group_.rank], i, most);
        for (int turn = 1; turn < group_.size; ++turn) {
          const int p = (group_.rank + turn) % group_.size;
          if (plan_.offer_bytes[p] > 0) send(p, i, word);
        }
      });
      return;
    }
    for (int turn = 1; turn < group_.size; ++turn) {
      const int p = (group_.rank + turn) % group_.size;
      const std::int64_t bytes = plan_.offer_bytes[p];
      for_each_word(bytes, [&](std::int64_t i) {
        send(p, i, load_word(plan_.in + plan_.offer_at[p], i, bytes));
      });
    }
  }

  // True if this rank takes something from everyone, so that packets alone tell it of any mismatch
  // before it writes a result.
  GANTRY_HD bool hears_all() const {
    for (int p = 0; p < group_.size; ++p) {
      if (plan_.take_bytes[p] == 0) return false;
    }
    return true;
  }

  // A thread that waits in vain gives up, and says why.
  GANTRY_HD void take() {
    std::int64_t most = 0;
    for (int p = 0; p < group_.size; ++p) {
      if (plan_.take_bytes[p] > most) most = plan_.take_bytes[p];
    }
    bool complete = true;
    if constexpr (kCombines<T>) {
      kernels::with_fold<T>(plan_.how.op, [&](auto folder) {
        using F = typename decltype(folder)::type;
        if constexpr (F::kIsDefined) {
          for_each_word(most, [&](std::int64_t i) { complete = complete && fold_word<F>(i); });
        }
      });
    } else {
      for_each_word(most, [&](std::int64_t i) { complete = complete && copy_word(i); });
    }
  }

 private:
  template <class F>
  GANTRY_HD void for_each_word(std::int64_t bytes, F f) {
    const std::int64_t words = words_of(bytes);
    // Neighbouring blocks take neighbouring runs, so that stores of a run travel together.
    const std::int64_t run = (words + block_.count() - 1) / block_.count();
    const std::int64_t first = run * block_.index();
    const std::int64_t count = clipped(words, first, run);
    block_.for_each(count, [&](std::int64_t i) { f(first + i); });
  }

  GANTRY_HD Packet* packets_at(int owner, int sender) const {
    const Layout& layout = group_.layout;
    const std::int64_t row = static_cast<std::int64_t>(sequence_ & 1) * group_.size + sender;
    return reinterpret_cast<Packet*>(group_.workspaces[owner] + layout.packets +
                                     row * layout.packet_stride);
  }

  GANTRY_HD void send(int p, std::int64_t i, std::uint64_t word) {
    const Flags flags = flags_of(sequence_, plan_.digests[p]);
    block_.write(&packets_at(p, group_.rank)[i],
                 Packet{static_cast<std::uint32_t>(word), flags.low,
                        static_cast<std::uint32_t>(word >> 32), flags.high});
  }

  // Word i of ranks first … first + kPacketBatch - 1, as far as they are and have one.
  GANTRY_HD bool receive(int first, std::int64_t i, std::uint64_t (&words)[kPacketBatch]) {
    bool waiting[kPacketBatch];
    for (int k = 0; k < kPacketBatch; ++k) {
      const int p = first + k;
      waiting[k] = p < group_.size && p != group_.rank && i < words_of(plan_.take_bytes[p]);
    }
    for (std::uint32_t spins = 1;; ++spins) {
      Packet seen[kPacketBatch];
      for (int k = 0; k < kPacketBatch; ++k) {
        if (waiting[k]) seen[k] = block_.read(&packets_at(group_.rank, first + k)[i]);
      }
      bool any = false;
      for (int k = 0; k < kPacketBatch; ++k) {
        if (!waiting[k]) continue;
        const Flags flags = flags_of(sequence_, plan_.expected[first + k]);
        if (seen[k].low_flag == flags.low && seen[k].high_flag == flags.high) {
          words[k] = static_cast<std::uint64_t>(seen[k].high) << 32 | seen[k].low;
          waiting[k] = false;
        } else {
          any = true;
        }
      }
      if (!any) return true;
      if (spins % kPollsPerLook == 0 && !look_at(first, waiting)) return false;
      block_.pause(spins);
    }
  }

  GANTRY_HD bool look_at(int first, const bool (&waiting)[kPacketBatch]) {
    for (int k = 0; k < kPacketBatch; ++k) {
      if (!waiting[k]) continue;
      const int p = first + k;
      const Outcome outcome = look(block_, group_, p, plan_.call, sequence_, plan_.expected[p]);
      if (outcome == Outcome::done) continue;
      fail(block_, group_, outcome, p, plan_.call, sequence_);
      return false;
    }
    return true;
  }

  GANTRY_HD bool copy_word(std::int64_t i) {
    for (int first = 0; first < group_.size; first += kPacketBatch) {
      std::uint64_t words[kPacketBatch];
      if (!receive(first, i, words)) return false;
      for (int k = 0; k < kPacketBatch; ++k) {
        const int p = first + k;
        if (p >= group_.size || i >= words_of(plan_.take_bytes[p])) continue;
        const std::int64_t bytes = plan_.take_bytes[p];
        if (p == group_.rank) words[k] = load_word(plan_.in + plan_.offer_at[p], i, bytes);
        store_word(plan_.out + plan_.take_at[p], i, bytes, words[k]);
      }
    }
    return true;
  }

  template <class F>
  GANTRY_HD bool fold_word(std::int64_t i) {
    const std::int64_t bytes = plan_.take_bytes[group_.rank];
    WordFold<F, Block> folded(plan_.how);
    for (int first = 0; first < group_.size; first += kPacketBatch) {
      std::uint64_t words[kPacketBatch];
      if (!receive(first, i, words)) return false;
      for (int k = 0; k < kPacketBatch; ++k) {
        const int p = first + k;
        if (p >= group_.size) continue;
        if (p == group_.rank) words[k] = load_word(plan_.in + plan_.offer_at[p], i, bytes);
        folded.add(words[k], p == 0);
      }
    }
    store_word(plan_.out, i, bytes, folded.result());
    return true;
  }

  Block& block_;
  const Exchange& plan_;
  const Group& group_;
  std::uint32_t sequence_;
};

template <class T, class Block>
GANTRY_HD void exchange_packets(Block& block, const Exchange& plan) {
  const std::uint32_t sequence = begin(block, plan.group);
  PacketShare<T, Block> share(block, plan, sequence);
  share.announce();
  share.push();
  const auto all_entered = [&] {
    return await_entries(block, plan.group, plan.call, 0, sequence,
                         [&](int p) { return plan.expected[p]; });
  };
  if (share.hears_all()) {
    // Those who have no packets to wait for wait for the entries meanwhile.
    share.take();
    if (block.index() == 0) all_entered();
  } else if (all_entered()) {
    share.take();
  }
  end(block, plan.group, plan.call, sequence);
}

}  // namespace gantry::protocol
