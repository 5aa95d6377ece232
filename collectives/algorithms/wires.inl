// How words of 8 bytes travel together with flags, so that nothing has to be ordered or cleared.
#pragma once

#include <cstring>

#include "collectives/protocol/signal.hpp"

namespace gantry::protocol {

// Note [Wires]
// A wire carries units of payload words and a flag, which is made of the operation's number and the
// digest of the call. A reader takes a unit whose flag is the one it expects: what an earlier
// operation left has another number, and what a peer with another call sent never fits. Units of
// one wire lie where those of no other lie, so that payload is never taken for a flag.
//
// Packets: one word, and half a flag beside each of its halves; one 16-byte store of one thread.
//   Half of what crosses the link is payload. (NCCL's LL.)
// Lines: 15 words and, last, a flag. On GPUs 8 neighbouring threads store 16 bytes each in one
//   instruction. Assumed of the link: these parts arrive in address order. NVLink keeps that order;
//   other links need not, so lines are for ranks whose links all are NVLinks. Not assumed: that a
//   line arrives whole, or that the 8 loads of a reader happen at one time. A reader therefore
//   polls the flag alone, and loads the line after all threads of the warp know that the flag is
//   there. (NCCL's LL128; since 2.17.1 it loads lines again after their flags.)
//
// A thread holds `kHeld` words of a unit, of which the last line's thread has one less. All threads
// of a warp go through a loop over units together: units that are not there are told apart by
// is_there(), and agree() asks them all.

template <class Unit>
GANTRY_HD bool is_aligned(const std::byte* at) {
  return reinterpret_cast<std::uintptr_t>(at) % sizeof(Unit) == 0;
}
// A word in as many accesses as it has units, all asked for before one is awaited.
template <class Unit>
GANTRY_HD std::uint64_t load_units(const std::byte* at, std::int64_t units) {
  constexpr int kUnits = 8 / sizeof(Unit);
  Unit loaded[kUnits];
  for (int i = 0; i < kUnits; ++i) {
    loaded[i] = i < units ? reinterpret_cast<const Unit*>(at)[i] : Unit{0};
  }
  std::uint64_t word = 0;
  for (int i = 0; i < kUnits; ++i) {
    word |= static_cast<std::uint64_t>(loaded[i]) << (8 * sizeof(Unit) * static_cast<unsigned>(i));
  }
  return word;
}
template <class Unit>
GANTRY_HD void store_units(std::byte* at, std::int64_t units, std::uint64_t word) {
  constexpr int kUnits = 8 / sizeof(Unit);
  for (int i = 0; i < kUnits && i < units; ++i) {
    reinterpret_cast<Unit*>(at)[i] =
        static_cast<Unit>(word >> (8 * sizeof(Unit) * static_cast<unsigned>(i)));
  }
}
// Up to 8 bytes at `at`, of any alignment; `bytes` may be negative. Words that are not aligned come
// in the elements that they may be made of.
GANTRY_NOINLINE GANTRY_HD inline std::uint64_t load_bytes(const std::byte* at, std::int64_t bytes) {
  if (bytes < 8 || !is_aligned<std::uint16_t>(at)) return load_units<std::uint8_t>(at, bytes);
  if (!is_aligned<std::uint32_t>(at)) return load_units<std::uint16_t>(at, 4);
  if (!is_aligned<std::uint64_t>(at)) return load_units<std::uint32_t>(at, 2);
  return *reinterpret_cast<const std::uint64_t*>(at);
}
GANTRY_NOINLINE GANTRY_HD inline void store_bytes(std::byte* at, std::int64_t bytes,
                                                  std::uint64_t word) {
  if (bytes < 8 || !is_aligned<std::uint16_t>(at))
    return store_units<std::uint8_t>(at, bytes, word);
  if (!is_aligned<std::uint32_t>(at)) return store_units<std::uint16_t>(at, 4, word);
  if (!is_aligned<std::uint64_t>(at)) return store_units<std::uint32_t>(at, 2, word);
  *reinterpret_cast<std::uint64_t*>(at) = word;
}

// The flag of an operation; `low` is not 0, so that zeroed memory holds none.
struct WireFlag {
  std::uint32_t low;
  std::uint32_t high;

  GANTRY_HD static WireFlag of(std::uint32_t sequence, std::uint32_t digest) {
    return {sequence << 1 | 1, digest ^ sequence};
  }
};

template <class Block>
struct Packets {
  using Unit = Packet;
  static constexpr int kUnitWords = 1;
  static constexpr int kHeld = 1;
  static constexpr int kPhases = 1;  // that a sender has rows for
  // Whether the load that sees a flag has all of the unit, too.
  static constexpr bool kIsOneLoad = true;

  GANTRY_HD static std::uint32_t rows(const Group& group) { return group.layout.packets; }
  GANTRY_HD static std::uint32_t row_bytes(const Group&) { return kPacketRowBytes; }

  template <class F>
  GANTRY_HD static void for_each(Block& block, std::int32_t units, const F& f) {
    block.for_each(units, f);
  }
  GANTRY_HD static constexpr bool is_there(std::int64_t, std::int32_t) { return true; }
  GANTRY_HD static constexpr int first_word(const Block&) { return 0; }
  GANTRY_HD static bool agree(Block&, bool flag) { return flag; }

  GANTRY_HD static void send(Block& block, Unit* to, const std::uint64_t (&words)[kHeld],
                             WireFlag flag) {
    block.write(to, Packet{static_cast<std::uint32_t>(words[0]), flag.low,
                           static_cast<std::uint32_t>(words[0] >> 32), flag.high});
  }
  struct Seen {
    Packet packet;
  };
  GANTRY_HD static void look(Block& block, const Unit* from, Seen& seen) {
    seen.packet = block.read(from);
  }
  GANTRY_HD static bool has_come(Block&, bool is_awaited, const Seen& seen, WireFlag flag) {
    return is_awaited && seen.packet.low_flag == flag.low && seen.packet.high_flag == flag.high;
  }
  GANTRY_HD static void take(const Seen& seen, std::uint64_t (&words)[kHeld]) {
    words[0] = static_cast<std::uint64_t>(seen.packet.high) << 32 | seen.packet.low;
  }
};

template <class Block>
struct Lines {
  using Unit = Line;
  static constexpr int kUnitWords = kLineWords - 1;
  static constexpr int kHeld = Block::kLineWordsHeld;
  static constexpr int kPhases = kLinePhases;
  static constexpr bool kIsOneLoad = false;

  GANTRY_HD static std::uint32_t rows(const Group& group) {
    return lines_at(group.layout, group.size);
  }
  GANTRY_HD static std::uint32_t row_bytes(const Group& group) {
    return group.layout.line_row_bytes;
  }

  template <class F>
  GANTRY_HD static void for_each(Block& block, std::int32_t units, const F& f) {
    block.for_each_line(units, f);
  }
  GANTRY_HD static constexpr bool is_there(std::int64_t unit, std::int32_t units) {
    return unit < units;
  }
  GANTRY_HD static int first_word(const Block& block) { return block.first_line_word(); }
  GANTRY_HD static bool agree(Block& block, bool flag) { return block.any_of_warp(flag); }

  GANTRY_HD static void send(Block& block, Unit* to, const std::uint64_t (&words)[kHeld],
                             WireFlag flag) {
    std::uint64_t held[kHeld];
    for (int h = 0; h < kHeld; ++h) held[h] = words[h];
    if (holds_flag(block)) held[kHeld - 1] = word_of(flag);
    block.write_line(to, held);
  }
  struct Seen {
    std::uint64_t flag = 0;  // of the thread that holds it
  };
  GANTRY_HD static void look(Block& block, const Unit* from, Seen& seen) {
    if (holds_flag(block)) seen.flag = block.read_line_flag(from);
  }
  GANTRY_HD static bool has_come(Block& block, bool is_awaited, const Seen& seen, WireFlag flag) {
    return block.any_of_line(is_awaited && holds_flag(block) && seen.flag == word_of(flag));
  }
  // Of a unit that has come.
  GANTRY_HD static void load(Block& block, const Unit* from, std::uint64_t (&words)[kHeld]) {
    block.read_line(from, words);
  }

 private:
  GANTRY_HD static bool holds_flag(const Block& block) {
    return block.first_line_word() + kHeld == kLineWords;
  }
  GANTRY_HD static std::uint64_t word_of(WireFlag flag) {
    return static_cast<std::uint64_t>(flag.high) << 32 | flag.low;
  }
};

}  // namespace gantry::protocol
