#include "memory/symmetric_heap.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include <gantry/core/error.hpp>
#include <gantry/core/log.hpp>
#include <gantry/memory/caching_allocator.hpp>

#include "memory/driver_memory.hpp"
#include "memory/oom_report.hpp"
#include "memory/poison.hpp"
#include "memory/size_policy.hpp"
#include "streams/require_cuda.hpp"

namespace gantry::memory {
namespace {

constexpr std::string_view kPurpose = "a SymmetricPool";

// Adds a use, or raises the one that is known. Throws std::bad_alloc before it changes anything.
void note_use(std::vector<StreamUse>& uses, StreamClock& clock, std::uint64_t mark) {
  const auto known = std::ranges::find(uses, &clock, &StreamUse::clock);
  if (known != uses.end()) {
    if (known->mark != 0) known->mark = mark == 0 ? 0 : std::max(known->mark, mark);
    return;
  }
  uses.reserve(uses.size() + 2);
  uses.push_back({&clock, mark});
}

void forget_done(std::vector<StreamUse>& uses) noexcept {
  std::erase_if(uses, [](const StreamUse& use) { return use.mark <= use.clock->completed(); });
}

bool same_streams(const std::vector<StreamUse>& a, const std::vector<StreamUse>& b) noexcept {
  return a.size() == b.size() && std::ranges::all_of(a, [&b](const StreamUse& use) {
           return std::ranges::find(b, use.clock, &StreamUse::clock) != b.end();
         });
}

}  // namespace

SymmetricHeap::SymmetricHeap(int device, std::size_t bytes) {
  const std::string name = Device::cuda(device).str();
  if (bytes == 0) {
    throw InvalidArgument("SymmetricPool: at least one byte was expected, but got 0", name);
  }
  if (!driver().supports_virtual_memory(device)) {
    throw NotSupported(
        fmt::format("SymmetricPool: a device with virtual memory calls was expected, but got {}",
                    name),
        name);
  }
  bytes = round_up(bytes, std::max(kFineChunkBytes, driver().chunk_granularity(device)));
  if (bytes > driver().memory_info(device).total) throw_shortage(device, bytes, kPurpose);
  pieces_.push_back({.bytes = bytes, .uses = {}, .self = {}});
  pieces_.back().self = pieces_.begin();
  range_ = std::make_unique<AddressRange>(device, bytes);
  chunk_ = create_chunk_from_driver(device, bytes, kPurpose);
  try {
    const Chunk chunk{chunk_, bytes};
    range_->map(0, std::span(&chunk, 1));
  } catch (...) {
    try {
      driver().release_chunk(chunk_);
    } catch (...) {
      logging::warn("the memory of a symmetric pool could not be given back");
    }
    throw;
  }
}

SymmetricHeap::~SymmetricHeap() {
  try {
    for (const Piece& piece : pieces_) {
      for (const StreamUse& use : piece.uses) {
        try {
          use.clock->wait_for(use.mark);
        } catch (const IndexError& error) {  // its work is over all the same
          logging::error(std::string("while a symmetric pool ended: ") + error.what());
        }
      }
    }
    if (poisons_device_memory()) unpoison_now(base(), bytes());
    static_cast<void>(range_->unmap(0, bytes()));
    driver().release_chunk(chunk_);
  } catch (const std::exception& error) {
    logging::warn(std::string("a symmetric pool kept its memory: ") + error.what());
    // Nobody may get the addresses while something is behind them.
    static_cast<void>(range_.release());
  }
}

void SymmetricHeap::abandon(SymmetricHeap* heap) noexcept {
  if (heap == nullptr || in_bad_fork()) return;
  {
    const std::lock_guard lock(heap->mutex_);
    heap->abandoned_ = true;
    if (heap->live_ > 0) return;
  }
  delete heap;
}

Block SymmetricHeap::place(std::size_t bytes, const Stream& stream, Holder holder) {
  if (in_bad_fork()) static_cast<void>(driver());  // throws
  const NativeStream& native = stream.native();
  if (native.device != device()) {
    throw InvalidArgument(
        fmt::format("SymmetricPool: a stream of cuda:{} was expected, but got one of cuda:{}",
                    device(), native.device));
  }
  Block block{.data = nullptr,
              .bytes = bytes,
              .device = Device::cuda(native.device),
              .allocator = nullptr,
              .handle = nullptr};
  if (bytes == 0) return block;
  if (driver().is_capturing(native)) {
    throw CaptureError(
        fmt::format("SymmetricPool: a stream that is not being captured was expected, but got "
                    "stream {} of cuda:{}, which is; allocate before the capture",
                    stream.id(), device()),
        Device::cuda(device()).str());
  }
  const std::size_t size = block_bytes(bytes);
  StreamClock& clock = StreamClock::of(stream);
  Pieces fresh(1);
  Piece& made = fresh.back();
  made.self = fresh.begin();
  made.bytes = size;
  made.holder = holder;
  made.clock = &clock;
  made.uses.reserve(1);

  std::unique_lock lock(mutex_);
  std::size_t largest = 0;
  const std::optional<Place> found = find(size, holder, largest);
  if (!found) {
    lock.unlock();
    report_full(size, holder, largest);
  }
  order(*found, size, clock);
  take(*found, fresh);
  ++live_;
  if (holder == Holder::symmetric) {
    symmetric_end_ = std::max(symmetric_end_, made.offset + size);
    count_step(1, made);
  }
  lock.unlock();
  block.data = base() + made.offset;
  block.allocator = this;
  block.handle = &made;
  unpoison(block.data, bytes, native);
  return block;
}

// Looks through the free runs of this end, then at the one between the ends. `largest`: the longest
// of them.
std::optional<SymmetricHeap::Place> SymmetricHeap::find(std::size_t bytes, Holder holder,
                                                        std::size_t& largest) {
  std::optional<Place> best;
  std::size_t best_bytes = ~std::size_t{0};
  std::optional<Place> middle;
  for (auto it = pieces_.begin(); it != pieces_.end();) {
    if (it->holder != Holder::nobody) {
      ++it;
      continue;
    }
    const auto first = it;
    std::size_t run = 0;
    for (; it != pieces_.end() && it->holder == Holder::nobody; ++it) run += it->bytes;
    const bool in_middle = first->offset == symmetric_end_;
    if (!in_middle && (first->offset < symmetric_end_) != (holder == Holder::symmetric)) continue;
    largest = std::max(largest, run);
    if (run < bytes || (!in_middle && run >= best_bytes)) continue;
    Place place{first, first->offset};
    if (holder == Holder::local) {
      place.offset += run - bytes;
      while (place.first->offset + place.first->bytes <= place.offset) ++place.first;
    }
    if (in_middle) {
      middle = place;
    } else {
      best = place;
      best_bytes = run;
    }
  }
  return best ? best : middle;
}

// Makes `clock`'s stream wait for those who had the memory: one wait for each other stream.
void SymmetricHeap::order(const Place& place, std::size_t bytes, StreamClock& clock) {
  std::vector<StreamUse> before;
  for (auto it = place.first; it != pieces_.end() && it->offset < place.offset + bytes; ++it) {
    for (const StreamUse& use : it->uses) note_use(before, *use.clock, use.mark);
  }
  for (const StreamUse& use : before) {
    if (use.clock->order_before(clock, use.mark)) continue;
    throw CaptureError(
        fmt::format("SymmetricPool: memory whose last stream is not being captured was expected, "
                    "but stream {} of cuda:{}, which freed it, is",
                    use.clock->id(), use.clock->device()),
        Device::cuda(device()).str());
  }
}

// Puts the piece in `fresh` to where it belongs, in place of what lies there.
void SymmetricHeap::take(const Place& place, Pieces& fresh) noexcept {
  Piece& made = fresh.front();
  made.offset = place.offset;
  const std::size_t end = made.offset + made.bytes;
  auto it = place.first;
  if (it->offset < made.offset) {  // the upper part of it, or all behind its lower part
    it->bytes = made.offset - it->offset;
    ++it;
  }
  while (it != pieces_.end() && it->offset + it->bytes <= end) it = pieces_.erase(it);
  if (it != pieces_.end() && it->offset < end) {
    it->bytes -= end - it->offset;
    it->offset = end;
  }
  pieces_.splice(it, fresh);
}

void SymmetricHeap::deallocate(Block& block) noexcept {
  if (block.handle == nullptr || in_bad_fork()) {
    block = {};
    return;
  }
  Piece& freed = *static_cast<Piece*>(block.handle);
  block = {};
  bool last = false;
  {
    const std::lock_guard lock(mutex_);
    StreamClock& clock = *freed.clock;
    // Other streams may still work with the block while its own one is here.
    if (freed.uses.empty()) poison(base() + freed.offset, freed.bytes, clock.native());
    for (StreamUse& use : freed.uses) {
      if (use.mark == 0) use.mark = use.clock->ticket();
    }
    freed.uses.push_back({&clock, clock.ticket()});
    const Holder holder = std::exchange(freed.holder, Holder::nobody);
    --live_;
    if (holder == Holder::symmetric) {
      count_step(2, freed);
      if (freed.offset + freed.bytes == symmetric_end_) {
        auto below = freed.self;
        while (below != pieces_.begin() && std::prev(below)->holder != Holder::symmetric) --below;
        symmetric_end_ = below->offset;
      }
    }
    forget_done(freed.uses);
    const auto self = freed.self;
    join_next(self);
    if (self != pieces_.begin()) join_next(std::prev(self));
    last = abandoned_ && live_ == 0;
  }
  if (last) delete this;
}

// Joins a piece with the one behind it if both are free and the same streams used them.
void SymmetricHeap::join_next(Pieces::iterator piece) noexcept {
  const auto next = std::next(piece);
  if (next == pieces_.end() || piece->holder != Holder::nobody || next->holder != Holder::nobody) {
    return;
  }
  forget_done(piece->uses);
  forget_done(next->uses);
  if (!same_streams(piece->uses, next->uses)) return;
  for (StreamUse& use : piece->uses) {
    const auto its = std::ranges::find(next->uses, use.clock, &StreamUse::clock);
    use.mark = std::max(use.mark, its->mark);
  }
  piece->bytes += next->bytes;
  pieces_.erase(next);
}

void SymmetricHeap::note(const Block& block, const Stream& stream, bool until_now) {
  if (block.handle == nullptr) return;
  if (in_bad_fork()) static_cast<void>(driver());  // throws
  Piece& piece = *static_cast<Piece*>(block.handle);
  StreamClock& clock = StreamClock::of(stream);
  if (&clock == piece.clock) return;
  const std::lock_guard lock(mutex_);
  note_use(piece.uses, clock, until_now ? clock.ticket() : 0);
}

void SymmetricHeap::count_step(std::uint64_t what, const Piece& piece) noexcept {
  for (const std::uint64_t word : {what, std::uint64_t{piece.offset}, std::uint64_t{piece.bytes}}) {
    // The finalizer of MurmurHash3 over what was there and the next word.
    std::uint64_t mixed = (sequence_ ^ word) + 0x9e3779b97f4a7c15U;
    mixed = (mixed ^ (mixed >> 33)) * 0xff51afd7ed558ccdU;
    mixed = (mixed ^ (mixed >> 33)) * 0xc4ceb9fe1a85ec53U;
    sequence_ = mixed ^ (mixed >> 33);
  }
}

SymmetricUsage SymmetricHeap::usage() const {
  const std::lock_guard lock(mutex_);
  SymmetricUsage usage{.symmetric_end = symmetric_end_, .local_begin = bytes()};
  for (const Piece& piece : pieces_) {
    if (piece.holder == Holder::symmetric) usage.symmetric_bytes += piece.bytes;
    if (piece.holder != Holder::local) continue;
    usage.local_bytes += piece.bytes;
    usage.local_begin = std::min(usage.local_begin, piece.offset);
  }
  return usage;
}

void SymmetricHeap::report_full(std::size_t requested, Holder holder, std::size_t largest) const {
  const NativeMemoryInfo info = driver().memory_info(device());
  const SymmetricUsage used = usage();
  MemoryBreakdown told;
  told.requested = signed_bytes(requested);
  told.total = signed_bytes(info.total);
  told.free = signed_bytes(info.free);
  told.allocated = signed_bytes(used.symmetric_bytes + used.local_bytes);
  told.reserved = told.limit = told.private_pools = signed_bytes(bytes());
  told.largest_free = signed_bytes(largest);
  throw OutOfMemoryError(
      fmt::format("SymmetricPool: room for {} {} was expected, but the largest free place at that "
                  "end has {}. Of the pool's {} on cuda:{}, {} are in symmetric blocks and {} in "
                  "local ones. Make the pool larger.",
                  format_bytes(told.requested), holder == Holder::local ? "local" : "symmetric",
                  format_bytes(told.largest_free), format_bytes(told.reserved), device(),
                  format_bytes(signed_bytes(used.symmetric_bytes)),
                  format_bytes(signed_bytes(used.local_bytes))),
      told, Device::cuda(device()).str());
}

}  // namespace gantry::memory
