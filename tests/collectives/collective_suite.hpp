// Every operation of a communicator against the oracle, as one rank sees it.
#pragma once

#include <fmt/format.h>

#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <gantry/collectives/communicator.hpp>

#include "tests/collectives/collective_oracle.hpp"

namespace gantry::testing {

/// Runs operations on one rank of a group and throws std::runtime_error that describes a
/// difference. All ranks make the same calls. `skew` makes addresses odd; see tensor_of.
class CollectiveSuite {
 public:
  explicit CollectiveSuite(Communicator& group, std::uint32_t seed = 1)
      : group_(group), seed_(seed) {}

  /// Allocates later tensors of operations from `arena`, in a circle, except tensors whose sizes
  /// differ between ranks.
  void use_arena(const Tensor& arena) { arena_ = arena; }

  void all_reduce(ReduceOp op, DType dtype, std::int64_t count, std::int64_t skew = 0,
                  CollectiveOptions options = {}) {
    Tensor tensor = mine(dtype, count, skew);
    group_.all_reduce(tensor, op, options);
    expect(tensor, reduce_elements(op, dtype, everyones(dtype, count), options.scale), "all_reduce",
           op, dtype, count);
  }

  void reduce(ReduceOp op, DType dtype, std::int64_t count, int root, std::int64_t skew = 0,
              CollectiveOptions options = {}) {
    Tensor tensor = mine(dtype, count, skew);
    group_.reduce(tensor, root, op, options);
    const Bytes expected = group_.rank() == root
                               ? reduce_elements(op, dtype, everyones(dtype, count), options.scale)
                               : elements(group_.rank(), dtype, count);
    expect(tensor, expected, "reduce", op, dtype, count);
  }

  // Reductions into another tensor.
  void reductions_apart(ReduceOp op, DType dtype, std::int64_t count, int root,
                        std::int64_t skew = 0, CollectiveOptions options = {}) {
    const Tensor input = mine(dtype, count, skew);
    const Tensor output = blank(dtype, count, skew);
    group_.all_reduce(output, input, op, options);
    const Bytes expected = reduce_elements(op, dtype, everyones(dtype, count), options.scale);
    expect(output, expected, "all_reduce apart", op, dtype, count);
    expect(input, elements(group_.rank(), dtype, count), "all_reduce's input", op, dtype, count);
    const bool is_root = group_.rank() == root;
    const Tensor result = blank(dtype, count, skew);  // on every rank, as places in the arena
    group_.reduce(is_root ? result : Tensor(), input, root, op, options);
    if (is_root) expect(result, expected, "reduce apart", op, dtype, count);
    expect(input, elements(group_.rank(), dtype, count), "reduce's input", op, dtype, count);
  }

  void reduce_scatter(ReduceOp op, DType dtype, std::int64_t count, std::int64_t skew = 0) {
    const Tensor input = mine(dtype, count * group_.size(), skew);
    Tensor output = blank(dtype, count, skew);
    group_.reduce_scatter(output, input, op);
    const Bytes all = reduce_elements(op, dtype, everyones(dtype, count * group_.size()));
    expect(output, block(all, group_.rank(), group_.size()), "reduce_scatter", op, dtype, count);
  }

  // Operations whose output is this rank's slice of the input.
  void into_slices(ReduceOp op, DType dtype, std::int64_t count, int root, std::int64_t skew = 0) {
    const std::int64_t all_count = count * group_.size();
    const std::int64_t begin = count * group_.rank();
    const Tensor input = mine(dtype, all_count, skew);
    const Tensor slice = input.narrow(0, begin, count);
    group_.reduce_scatter(slice, input, op);
    const Bytes all = reduce_elements(op, dtype, everyones(dtype, all_count));
    expect(slice, block(all, group_.rank(), group_.size()), "reduce_scatter into a slice", op,
           dtype, count);
    const Tensor parts = mine(dtype, all_count, skew);  // on every rank, as places in the arena
    const Tensor own = parts.narrow(0, begin, count);
    group_.scatter(own, group_.rank() == root ? parts : Tensor(), root);
    const Bytes sent = elements(root, dtype, all_count);
    expect(own, block(sent, group_.rank(), group_.size()), "scatter into a slice", op, dtype,
           count);
    if (group_.rank() == root) expect(parts, sent, "scatter's input", op, dtype, all_count);
  }

  void broadcast(DType dtype, std::int64_t count, int root, std::int64_t skew = 0) {
    Tensor tensor = mine(dtype, count, skew);
    group_.broadcast(tensor, root);
    expect(tensor, elements(root, dtype, count), "broadcast", ReduceOp::sum, dtype, count);
  }

  void all_gather(DType dtype, std::int64_t count, std::int64_t skew = 0) {
    const Tensor input = mine(dtype, count, skew);
    Tensor output = blank(dtype, count * group_.size(), skew);
    group_.all_gather(output, input);
    expect(output, joined(dtype, count), "all_gather", ReduceOp::sum, dtype, count);
  }

  void gather(DType dtype, std::int64_t count, int root, std::int64_t skew = 0) {
    const Tensor input = mine(dtype, count, skew);
    Tensor output;
    if (group_.rank() == root) output = blank_apart(dtype, count * group_.size(), skew);
    group_.gather(output, input, root);
    if (group_.rank() != root) return;
    expect(output, joined(dtype, count), "gather", ReduceOp::sum, dtype, count);
  }

  void scatter(DType dtype, std::int64_t count, int root, std::int64_t skew = 0) {
    Tensor input;
    if (group_.rank() == root) input = apart(dtype, count * group_.size(), skew);
    Tensor output = blank(dtype, count, skew);
    group_.scatter(output, input, root);
    const Bytes all = elements(root, dtype, count * group_.size());
    expect(output, block(all, group_.rank(), group_.size()), "scatter", ReduceOp::sum, dtype,
           count);
  }

  void all_to_all(DType dtype, std::int64_t count, std::int64_t skew = 0) {
    const Tensor input = mine(dtype, count * group_.size(), skew);
    Tensor output = blank(dtype, count * group_.size(), skew);
    group_.all_to_all(output, input);
    Bytes expected;
    for (int rank = 0; rank < group_.size(); ++rank) {
      append(expected,
             block(elements(rank, dtype, count * group_.size()), group_.rank(), group_.size()));
    }
    expect(output, expected, "all_to_all", ReduceOp::sum, dtype, count);
  }

  /// Rank i sends (i + 2 j) % 5 * `unit` elements to rank j.
  void uneven_all_to_all(DType dtype, std::int64_t unit) {
    const int n = group_.size();
    const auto count = [&](int from, int to) { return (from + 2 * to) % 5 * unit; };
    std::vector<std::int64_t> sent;
    std::vector<std::int64_t> received;
    for (int p = 0; p < n; ++p) {
      sent.push_back(count(group_.rank(), p));
      received.push_back(count(p, group_.rank()));
    }
    const Tensor input =
        apart(dtype, std::accumulate(sent.begin(), sent.end(), std::int64_t{0}), 0);
    Tensor output =
        blank_apart(dtype, std::accumulate(received.begin(), received.end(), std::int64_t{0}), 0);
    group_.all_to_all(output, input, received, sent);
    Bytes expected;
    for (int p = 0; p < n; ++p) {
      std::int64_t before = 0;
      std::int64_t total = 0;
      for (int q = 0; q < n; ++q) {
        if (q < group_.rank()) before += count(p, q);
        total += count(p, q);
      }
      const Bytes theirs = elements(p, dtype, total);
      const auto width = static_cast<std::int64_t>(element_size(dtype));
      append(expected, Bytes(theirs.begin() + before * width,
                             theirs.begin() + (before + count(p, group_.rank())) * width));
    }
    expect(output, expected, "uneven all_to_all", ReduceOp::sum, dtype, unit);
  }

  /// The other operations on blocks of unequal sizes, some of them empty.
  void uneven(DType dtype, std::int64_t unit, int root) {
    std::vector<std::int64_t> rows;
    for (int p = 0; p < group_.size(); ++p) rows.push_back((p + 1) % 3 * unit + p / 3);
    uneven(dtype, rows, root, ReduceOp::sum);
  }
  void uneven(DType dtype, const std::vector<std::int64_t>& rows, int root, ReduceOp op,
              CollectiveOptions options = {}) {
    const auto at = static_cast<std::size_t>(group_.rank());
    const std::int64_t total = std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
    const std::int64_t before =
        std::accumulate(rows.begin(), rows.begin() + group_.rank(), std::int64_t{0});
    const auto width = static_cast<std::int64_t>(element_size(dtype));
    const auto own = [&](const Bytes& all) {
      return Bytes(all.begin() + before * width, all.begin() + (before + rows[at]) * width);
    };
    const bool is_root = group_.rank() == root;
    const Tensor mine = apart(dtype, rows[at], 0);
    const Tensor whole = apart(dtype, total, 0);
    Bytes joined;
    for (int p = 0; p < group_.size(); ++p) {
      append(joined, elements(p, dtype, rows[static_cast<std::size_t>(p)]));
    }
    Tensor all = blank_apart(dtype, total, 0);
    group_.all_gather(all, mine, rows);
    expect(all, joined, "uneven all_gather", op, dtype, total);
    all = blank_apart(dtype, total, 0);
    group_.gather(is_root ? all : Tensor(), mine, rows, root);
    if (is_root) expect(all, joined, "uneven gather", op, dtype, total);
    Tensor part = blank_apart(dtype, rows[at], 0);
    group_.scatter(part, is_root ? whole : Tensor(), rows, root);
    expect(part, own(elements(root, dtype, total)), "uneven scatter", op, dtype, total);
    part = blank_apart(dtype, rows[at], 0);
    group_.reduce_scatter(part, whole, rows, op, options);
    expect(part, own(reduce_elements(op, dtype, everyones(dtype, total), options.scale)),
           "uneven reduce_scatter", op, dtype, total);
    group_.all_reduce(whole, op, options);
    expect(part, bytes_of(whole.narrow(0, before, rows[at])), "uneven reduce_scatter, all_reduce",
           op, dtype, total);
  }

  /// Every rank sends to the next one, the even ones first.
  void ring(DType dtype, std::int64_t count) {
    const int n = group_.size();
    if (n == 1) return;
    const int next = (group_.rank() + 1) % n;
    const int previous = (group_.rank() + n - 1) % n;
    const Tensor out = mine(dtype, count, 0);
    Tensor in = blank(dtype, count, 0);
    if (group_.rank() % 2 == 0) {
      group_.send(out, next);
      group_.recv(in, previous);
    } else {
      group_.recv(in, previous);
      group_.send(out, next);
    }
    expect(in, elements(previous, dtype, count), "send and recv", ReduceOp::sum, dtype, count);
  }

  /// The same at once, on one stream: as one call, and as a group.
  void ring_at_once(DType dtype, std::int64_t count) {
    const int n = group_.size();
    const int next = (group_.rank() + 1) % n;
    const int previous = (group_.rank() + n - 1) % n;
    const Tensor out = mine(dtype, count, 0);
    Tensor in = blank(dtype, count, 0);
    group_.send_recv(out, next, in, previous);
    expect(in, elements(previous, dtype, count), "send_recv", ReduceOp::sum, dtype, count);
    Tensor again = blank(dtype, count, 0);
    {
      const auto messages = group_.group();
      group_.send(out, next);
      group_.recv(again, previous);
    }
    expect(again, elements(previous, dtype, count), "group", ReduceOp::sum, dtype, count);
  }

  /// All operations once, for one dtype and size.
  void all(DType dtype, std::int64_t count, std::int64_t skew = 0) {
    ++seed_;
    const int last = group_.size() - 1;
    const bool floating = is_floating_point(dtype);
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::prod, ReduceOp::min, ReduceOp::max}) {
      all_reduce(op, dtype, count, skew);
    }
    for (const ReduceOp op : {ReduceOp::band, ReduceOp::bor, ReduceOp::bxor}) {
      if (!floating) all_reduce(op, dtype, count, skew);
    }
    if (floating) {
      all_reduce(ReduceOp::avg, dtype, count, skew);
      all_reduce(ReduceOp::sum, dtype, count, skew, {.scale = 0.3});
    }
    reduce(ReduceOp::sum, dtype, count, 0, skew);
    reduce(ReduceOp::max, dtype, count, last, skew);
    if (floating) {
      reduce(ReduceOp::avg, dtype, count, last / 2, skew);
      reduce(ReduceOp::sum, dtype, count, last, skew, {.scale = 0.3});
    }
    reduce_scatter(ReduceOp::sum, dtype, count, skew);
    reductions_apart(ReduceOp::sum, dtype, count, last, skew);
    into_slices(ReduceOp::sum, dtype, count, last / 2, skew);
    if (floating) reductions_apart(ReduceOp::avg, dtype, count, 0, skew, {.scale = 0.3});
    moves(dtype, count, skew);
  }

  void moves(DType dtype, std::int64_t count, std::int64_t skew = 0) {
    const int last = group_.size() - 1;
    broadcast(dtype, count, 0, skew);
    broadcast(dtype, count, last, skew);
    all_gather(dtype, count, skew);
    gather(dtype, count, last, skew);
    scatter(dtype, count, 0, skew);
    all_to_all(dtype, count, skew);
    group_.barrier();
    uneven_all_to_all(dtype, count);
    uneven(dtype, count, last);
    ring(dtype, count);
    ring_at_once(dtype, count);
  }

 private:
  Bytes elements(int rank, DType dtype, std::int64_t count) const {
    return make_elements(rank, count, dtype, seed_);
  }
  // Tensors whose sizes differ between ranks.
  Tensor apart(DType dtype, std::int64_t count, std::int64_t skew) const {
    return tensor_of(elements(group_.rank(), dtype, count), dtype, group_.device(), skew);
  }
  Tensor mine(DType dtype, std::int64_t count, std::int64_t skew) {
    return in_arena(apart(dtype, count, skew), skew);
  }
  Tensor blank(DType dtype, std::int64_t count, std::int64_t skew) {
    return in_arena(blank_apart(dtype, count, skew), skew);
  }
  Tensor blank_apart(DType dtype, std::int64_t count, std::int64_t skew) const {
    const Bytes zeros(static_cast<std::size_t>(count) * element_size(dtype));
    return tensor_of(zeros, dtype, group_.device(), skew);
  }
  Tensor in_arena(const Tensor& tensor, std::int64_t skew) {
    if (!arena_.defined()) return tensor;
    const DType dtype = tensor.dtype();
    const std::int64_t count = tensor.numel();
    // Begins at a word, or not.
    constexpr std::int64_t kWord = 16;
    const auto width = static_cast<std::int64_t>(element_size(dtype));
    const std::int64_t size = (count + skew) * width;
    if (next_ + size > static_cast<std::int64_t>(arena_.nbytes())) next_ = 0;
    Tensor place =
        Tensor::from_storage(arena_.storage(), {count}, {1}, next_ / width + skew, dtype);
    next_ += (size + kWord - 1) / kWord * kWord;
    place.copy_(tensor);
    return place;
  }
  std::vector<Bytes> everyones(DType dtype, std::int64_t count) const {
    std::vector<Bytes> all;
    for (int rank = 0; rank < group_.size(); ++rank) all.push_back(elements(rank, dtype, count));
    return all;
  }
  Bytes joined(DType dtype, std::int64_t count) const {
    Bytes all;
    for (const Bytes& one : everyones(dtype, count)) append(all, one);
    return all;
  }
  static Bytes block(const Bytes& all, int index, int blocks) {
    const auto size = static_cast<std::ptrdiff_t>(all.size()) / blocks;
    return Bytes(all.begin() + index * size, all.begin() + (index + 1) * size);
  }
  static void append(Bytes& to, const Bytes& from) {
    to.insert(to.end(), from.begin(), from.end());
  }

  void expect(const Tensor& tensor, const Bytes& expected, std::string_view what, ReduceOp op,
              DType dtype, std::int64_t count) const {
    const Bytes got = bytes_of(tensor);
    if (got == expected) return;
    std::size_t at = 0;
    while (at < got.size() && at < expected.size() && got[at] == expected[at]) ++at;
    throw std::runtime_error(fmt::format("rank {} of {}: {} {} {}[{}] differs at byte {} of {}",
                                         group_.rank(), group_.size(), what, name(op), name(dtype),
                                         count, at, expected.size()));
  }

  Communicator& group_;
  std::uint32_t seed_;
  Tensor arena_;
  std::int64_t next_ = 0;  // bytes of it that are used
};

}  // namespace gantry::testing
