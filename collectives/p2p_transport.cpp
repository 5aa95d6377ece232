#include <algorithm>
#include <cstddef>
#include <vector>

#include <gantry/device/driver.hpp>

#include "collectives/partition.hpp"
#include "collectives/transport.hpp"
#include "collectives/workspace.hpp"

namespace gantry {

// Note [Fences]
// An operation is a sequence of turns of at most one staging slot each. In a turn every rank copies
// its part into its slot, passes a fence, and reads the others' slots. A fence records an
// interprocess event, announces it in the control block, waits on the host until every rank has
// announced the same fence, and makes the stream wait for all their events. No kernel spins.
//
// Two slots and two events suffice. Reads of turn t precede, in stream order, the first fence of
// turn t+1 on the reading rank, which the writing rank's stream waits for before it fills the slot
// again in turn t+2. And an event is recorded anew at fence f+2, which a rank reaches only after
// every rank announced f+1, that is, after every rank bound its waits for f.
//
// Calls may come on different streams: the lane event orders each with the one before.

namespace {

// Above this many bytes a reduction goes in two steps, so that each link carries the data twice
// instead of size-1 times.
constexpr std::int64_t kOneShotBytes = 256 << 10;

std::byte* at(void* data, std::int64_t offset) { return static_cast<std::byte*>(data) + offset; }

class P2pTransport final : public Transport {
 public:
  P2pTransport(const Membership& membership, Bootstrap& bootstrap, ControlBlock& control)
      : membership_(membership),
        control_(control),
        workspace_(bootstrap, membership.rank, membership.size, membership.device.index),
        lane_(driver().create_event(membership.device.index, {})) {}

  ~P2pTransport() override { driver().destroy_event(lane_); }

  std::string_view name() const override { return "p2p"; }

  void restart() override { turn_ = 0; }

  void all_reduce(void* data, const Descriptor& call, const Stream& stream) override {
    Operation operation(*this, call, stream);
    const Folding how = folding(call.op, call.dtype, membership_.size, "all_reduce");
    const auto width = static_cast<std::int64_t>(element_size(call.dtype));
    operation.for_each_turn(call.count, slot_elements(width), [&](Part piece, int slot) {
      std::byte* const mine = at(data, piece.begin * width);
      copy(workspace_.staging(rank(), slot), mine, piece.count * width, stream);
      operation.fence();
      if (piece.count * width <= kOneShotBytes || size() == 2) {
        fold(how, mine, slot, {0, piece.count}, call.dtype, stream);
        return;
      }
      const Part own = partition(piece.count, size(), rank());
      fold(how, workspace_.result(rank(), slot), slot, own, call.dtype, stream);
      operation.fence();
      pull_results(mine, piece.count, width, slot, stream);
    });
  }

  void broadcast(void* data, const Descriptor& call, const Stream& stream) override {
    Operation operation(*this, call, stream);
    const auto width = static_cast<std::int64_t>(element_size(call.dtype));
    operation.for_each_turn(call.count, slot_elements(width), [&](Part piece, int slot) {
      std::byte* const mine = at(data, piece.begin * width);
      void* const source = workspace_.staging(call.root, slot);
      if (rank() == call.root) copy(source, mine, piece.count * width, stream);
      operation.fence();
      if (piece.count * width <= kOneShotBytes || size() == 2) {
        if (rank() != call.root) copy(mine, source, piece.count * width, stream);
        return;
      }
      // Each rank fetches one part and passes it on: the root's link carries the data once.
      const Part own = partition(piece.count, size(), rank());
      copy(workspace_.result(rank(), slot), at(source, own.begin * width), own.count * width,
           stream);
      operation.fence();
      if (rank() != call.root) pull_results(mine, piece.count, width, slot, stream);
    });
  }

  void all_gather(void* out, const void* in, const Descriptor& call,
                  const Stream& stream) override {
    Operation operation(*this, call, stream);
    const auto width = static_cast<std::int64_t>(element_size(call.dtype));
    operation.for_each_turn(call.count, slot_elements(width), [&](Part piece, int slot) {
      copy(workspace_.staging(rank(), slot),
           static_cast<const std::byte*>(in) + piece.begin * width, piece.count * width, stream);
      operation.fence();
      for (int step = 0; step < size(); ++step) {
        // Every rank begins with another peer, so that no link is asked by all at once.
        const int peer = (rank() + step) % size();
        copy(at(out, (peer * call.count + piece.begin) * width), workspace_.staging(peer, slot),
             piece.count * width, stream);
      }
    });
  }

  void reduce_scatter(void* out, const void* in, const Descriptor& call,
                      const Stream& stream) override {
    Operation operation(*this, call, stream);
    const Folding how = folding(call.op, call.dtype, membership_.size, "reduce_scatter");
    const auto width = static_cast<std::int64_t>(element_size(call.dtype));
    // A slot holds the same rows of every destination, one after the other.
    const std::int64_t per_turn =
        std::max<std::int64_t>(1, slot_elements(width) / size() / 16 * 16);
    operation.for_each_turn(call.count, per_turn, [&](Part piece, int slot) {
      for (int peer = 0; peer < size(); ++peer) {
        copy(at(workspace_.staging(rank(), slot), peer * per_turn * width),
             static_cast<const std::byte*>(in) + (peer * call.count + piece.begin) * width,
             piece.count * width, stream);
      }
      operation.fence();
      fold(how, at(out, piece.begin * width), slot, {rank() * per_turn, piece.count}, call.dtype,
           stream);
    });
  }

  void barrier(const Descriptor& call, const Stream& stream) override {
    Operation operation(*this, call, stream);
    operation.fence();
  }

 private:
  // One call: says what it is and orders it with the call before. Whoever made the call aborts the
  // group if it throws half-way, because the others would wait for it.
  class Operation {
   public:
    Operation(P2pTransport& transport, const Descriptor& call, const Stream& stream)
        : transport_(transport), call_(call), stream_(stream) {
      transport_.control_.describe(call);
      driver().wait_event(stream_.native(), transport_.lane_);
    }

    ~Operation() {
      try {
        driver().record_event(transport_.lane_, stream_.native());
      } catch (...) {
        transport_.control_.abort();
      }
    }

    void fence() {
      const auto index = static_cast<int>(transport_.control_.last_fence() % Workspace::kEvents);
      const Workspace& workspace = transport_.workspace_;
      driver().record_event(workspace.event(transport_.rank(), index), stream_.native());
      const std::uint64_t number = transport_.control_.announce();
      transport_.control_.await(number);
      for (int peer = 0; peer < transport_.size(); ++peer) {
        if (peer == transport_.rank()) continue;
        driver().wait_event(stream_.native(), workspace.event(peer, index));
      }
      if (verified_) return;
      verified_ = true;
      transport_.control_.verify(call_.sequence);
    }

    template <class Turn>
    void for_each_turn(std::int64_t count, std::int64_t per_turn, Turn turn) {
      if (count == 0) fence();  // Nothing to move, yet calls are compared.
      for (std::int64_t begin = 0; begin < count; begin += per_turn) {
        turn(Part{begin, std::min(per_turn, count - begin)}, transport_.next_slot());
      }
    }

   private:
    P2pTransport& transport_;
    const Descriptor& call_;
    const Stream& stream_;
    bool verified_ = false;
  };

  int rank() const { return membership_.rank; }
  int size() const { return membership_.size; }

  int next_slot() {
    turn_ ^= 1;
    return turn_;
  }

  static std::int64_t slot_elements(std::int64_t width) {
    return static_cast<std::int64_t>(Workspace::kSlotBytes) / width;
  }

  static void copy(void* dst, const void* src, std::int64_t bytes, const Stream& stream) {
    if (bytes > 0) driver().copy(dst, src, static_cast<std::size_t>(bytes), stream.native());
  }

  // out = fold over ranks of elements `where` of their staging slots.
  void fold(const Folding& how, void* out, int slot, Part where, DType dtype,
            const Stream& stream) {
    if (where.count == 0) return;
    const auto width = static_cast<std::int64_t>(element_size(dtype));
    std::vector<const void*> inputs;
    for (int peer = 0; peer < size(); ++peer) {
      inputs.push_back(at(workspace_.staging(peer, slot), where.begin * width));
    }
    kernels::fold(kernels::Target::on(stream), how.op, out, inputs, where.count, dtype,
                  how.divisor);
  }

  // Collects every rank's part of a piece of `count` elements from its result area.
  void pull_results(std::byte* out, std::int64_t count, std::int64_t width, int slot,
                    const Stream& stream) {
    for (int step = 0; step < size(); ++step) {
      const int peer = (rank() + step) % size();
      const Part theirs = partition(count, size(), peer);
      copy(out + theirs.begin * width, workspace_.result(peer, slot), theirs.count * width, stream);
    }
  }

  Membership membership_;
  ControlBlock& control_;
  Workspace workspace_;
  NativeEvent lane_;
  int turn_ = 0;
};

}  // namespace

std::unique_ptr<Transport> make_p2p_transport(const Membership& membership, Bootstrap& bootstrap,
                                              ControlBlock& control) {
  return std::make_unique<P2pTransport>(membership, bootstrap, control);
}

}  // namespace gantry
