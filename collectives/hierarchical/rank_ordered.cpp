#include "collectives/hierarchical/rank_ordered.hpp"

#include <algorithm>
#include <numeric>
#include <vector>

#include <gantry/extend/driver.hpp>
#include <gantry/streams/stream_guard.hpp>
#include <gantry/tensor/factories.hpp>

#include "collectives/hierarchical/transport.hpp"
#include "collectives/partition.hpp"
#include "collectives/slices.hpp"

namespace gantry {

namespace {

// One operation, in chunks.
class RankOrdered {
 public:
  RankOrdered(const CollectiveCall& call, const Membership& me, const Stream& stream,
              const MessageExchange& exchange, std::int64_t scratch_bytes)
      : call_(call),
        me_(me),
        stream_(stream),
        exchange_(exchange),
        width_(static_cast<std::int64_t>(element_size(call.what.dtype))),
        max_part_(std::max<std::int64_t>(1, scratch_bytes / width_ / me.size)),
        order_(static_cast<std::size_t>(me.size)) {
    std::iota(order_.begin(), order_.end(), 0);
  }

  void run() {
    const bool scatters = call_.what.kind == CollectiveKind::reduce_scatter;
    const std::int64_t chunk = scatters ? max_part_ : max_part_ * me_.size;
    for (std::int64_t begin = 0; begin < call_.what.count; begin += chunk) {
      const std::int64_t count = std::min(chunk, call_.what.count - begin);
      if (scatters) {
        scatter(begin, count);
      } else {
        reduce(begin, count);
      }
    }
  }

 private:
  // Element `at` of the arrays.
  const std::byte* in(std::int64_t at) const {
    return static_cast<const std::byte*>(call_.in) + at * width_;
  }
  std::byte* out(std::int64_t at) const { return static_cast<std::byte*>(call_.out) + at * width_; }

  Tensor scratch(std::int64_t count) const {
    return empty({count}, {.dtype = call_.what.dtype, .device = me_.device});
  }
  void copy(void* to, const void* from, std::int64_t count) const {
    if (count == 0 || to == from) return;
    driver().copy(to, from, static_cast<std::size_t>(count * width_), stream_.native());
  }

  void send(int peer, const void* from, std::int64_t count) {
    if (count == 0) return;
    messages_.emplace_back(
        CollectiveCall{.what = message(CollectiveKind::send, peer, count), .in = from}, me_.size);
  }
  void receive(int peer, void* to, std::int64_t count) {
    if (count == 0) return;
    messages_.emplace_back(
        CollectiveCall{.what = message(CollectiveKind::recv, peer, count), .out = to}, me_.size);
  }
  Descriptor message(CollectiveKind kind, int peer, std::int64_t count) const {
    return {.call = call_.what.call,
            .count = count,
            .root = peer,
            .kind = kind,
            .dtype = call_.what.dtype};
  }
  void exchange() {
    if (!messages_.empty()) exchange_(messages_);
    messages_.clear();
  }

  // Reduces this rank's part of all ranks' arrays. The part of rank p has count_of(p) elements from
  // element part_of(p) of `in`.
  template <class PartOf, class CountOf>
  Tensor reduce_part(PartOf part_of, CountOf count_of) {
    const std::int64_t count = count_of(me_.rank);
    const Tensor all = scratch(count * me_.size);
    const auto place = [&](int p) {
      return static_cast<std::byte*>(all.data()) + p * count * width_;
    };
    for (int turn = 1; turn < me_.size; ++turn) {
      // Each rank starts with a different peer.
      const int to = (me_.rank + turn) % me_.size;
      const int from = (me_.rank + me_.size - turn) % me_.size;
      send(to, in(part_of(to)), count_of(to));
      receive(from, place(from), count);
    }
    exchange();
    copy(place(me_.rank), in(part_of(me_.rank)), count);
    const Tensor result = scratch(count);
    reduce_ordered(result, all, order_, call_.what);
    return result;
  }

  void scatter(std::int64_t begin, std::int64_t count) {
    const Tensor result = reduce_part([&](int p) { return p * call_.what.count + begin; },
                                      [&](int) { return count; });
    copy(out(begin), result.data(), count);
  }

  void reduce(std::int64_t begin, std::int64_t count) {
    const auto part = [&](int p) { return partition(count, me_.size, p, 1); };
    const auto part_of = [&](int p) { return begin + part(p).begin; };
    const auto count_of = [&](int p) { return part(p).count; };
    const Tensor result = reduce_part(part_of, count_of);
    const Ranks receivers = two_shot_roles(call_.what.kind).receivers;
    const auto receives = [&](int p) { return includes(receivers, call_.what.root, p); };
    for (int turn = 1; turn < me_.size; ++turn) {
      const int to = (me_.rank + turn) % me_.size;
      const int from = (me_.rank + me_.size - turn) % me_.size;
      if (receives(to)) send(to, result.data(), count_of(me_.rank));
      if (receives(me_.rank)) receive(from, out(part_of(from)), count_of(from));
    }
    exchange();
    if (receives(me_.rank)) copy(out(part_of(me_.rank)), result.data(), count_of(me_.rank));
  }

  const CollectiveCall& call_;
  const Membership& me_;
  const Stream& stream_;
  const MessageExchange& exchange_;
  std::int64_t width_;
  std::int64_t max_part_;  // in elements
  std::vector<int> order_;
  std::vector<ResolvedCall> messages_;
};

}  // namespace

void reduce_in_rank_order(const CollectiveCall& call, const Membership& me, const Stream& stream,
                          const MessageExchange& exchange, std::int64_t scratch_bytes) {
  // Scratch memory belongs to the stream that uses it.
  const StreamGuard guard(stream);
  RankOrdered(call, me, stream, exchange, scratch_bytes).run();
}

}  // namespace gantry
