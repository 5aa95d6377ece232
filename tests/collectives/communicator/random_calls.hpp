// Random collective calls, and calls that resemble them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gantry/collectives/communicator.hpp>
#include <gantry/tensor/factories.hpp>

namespace gantry::testing {

/// One tensor of a call, without its elements.
struct RandomOperand {
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;

  [[nodiscard]] std::int64_t numel() const {
    std::int64_t product = 1;
    for (const std::int64_t size : shape) product *= size;
    return product;
  }
  bool operator==(const RandomOperand&) const = default;
};

/// A call with all that ranks must agree on. `list` has one tensor unless the call is coalesced.
struct RandomCall {
  enum class Kind {
    all_reduce,
    coalesced,
    reduce,
    broadcast,
    all_gather,
    reduce_scatter,
    gather,
    scatter,
    all_to_all,
    uneven,  ///< an all_to_all of unequal blocks of rows; the operand is one row
  };
  Kind kind = Kind::all_reduce;
  std::vector<RandomOperand> list;

  bool operator==(const RandomCall&) const = default;
  [[nodiscard]] std::string str() const {
    std::string text = std::to_string(static_cast<int>(kind)) + ":";
    for (const RandomOperand& one : list) {
      text += " " + std::string(name(one.dtype)) + "[";
      for (const std::int64_t size : one.shape) text += std::to_string(size) + ",";
      text += "]";
    }
    return text;
  }
};

/// A source of calls; equal seeds give equal calls.
class RandomCalls {
 public:
  explicit RandomCalls(std::uint64_t seed) : random_(seed) {}

  int below(int n) { return std::uniform_int_distribution<int>(0, n - 1)(random_); }

  RandomCall call() {
    RandomCall result;
    // Half of the calls have lists.
    result.kind = below(2) == 0 ? RandomCall::Kind::coalesced : any_kind();
    const int count = result.kind == RandomCall::Kind::coalesced ? 1 + below(6) : 1;
    for (int i = 0; i < count; ++i) result.list.push_back(operand());
    return legal(std::move(result));
  }

  /// A call that a program could make by mistake in the place of `call`. It may equal it.
  RandomCall variant(RandomCall call) {
    RandomOperand& one = call.list[index(call.list)];
    switch (below(8)) {
      case 0:
        std::ranges::shuffle(call.list, random_);
        break;
      case 1: {  // two tensors in the place of one
        const std::int64_t numel = one.numel();
        const std::int64_t first = numel / 2;
        one.shape = {numel - first};
        if (call.kind == RandomCall::Kind::coalesced) call.list.push_back({one.dtype, {first}});
        break;
      }
      case 2:
        std::ranges::shuffle(one.shape, random_);
        break;
      case 3:
        if (one.shape.empty() || below(2) == 0) {
          one.shape.insert(one.shape.begin(), 1);
        } else {
          one.shape = {one.numel()};
        }
        break;
      case 4:
        one.dtype = dtype();
        break;
      case 5: {  // one flat tensor in the place of the list, or a list of one
        std::int64_t total = 0;
        for (const RandomOperand& each : call.list) total += each.numel();
        const bool is_list = call.kind == RandomCall::Kind::coalesced;
        call.kind = is_list ? RandomCall::Kind::all_reduce : RandomCall::Kind::coalesced;
        if (is_list) call.list = {{call.list.front().dtype, {total}}};
        break;
      }
      case 6:
        if (call.kind == RandomCall::Kind::coalesced) {
          call.list.insert(call.list.begin() + below(2), operand());
        } else {
          call.kind = any_kind();
        }
        break;
      default:
        if (!one.shape.empty()) ++one.shape[index(one.shape)];
    }
    if (call.kind != RandomCall::Kind::coalesced) call.list.resize(1);
    return legal(std::move(call));
  }

 private:
  template <class Items>
  std::size_t index(const Items& items) {
    return static_cast<std::size_t>(below(static_cast<int>(items.size())));
  }
  RandomCall::Kind any_kind() { return static_cast<RandomCall::Kind>(below(10)); }
  DType dtype() {
    constexpr DType kTypes[] = {f32, f16, bf16, f64, i64, i32, u8};
    return kTypes[below(3) == 0 ? below(7) : 0];
  }
  RandomOperand operand() {
    RandomOperand result{dtype(), {}};
    for (int dims = below(4); dims > 0; --dims) {
      result.shape.push_back(below(12) == 0 ? 0 : 1 + below(4));
    }
    return result;
  }
  // Blocks have rows.
  static RandomCall legal(RandomCall call) {
    const bool has_rows =
        call.kind == RandomCall::Kind::all_to_all || call.kind == RandomCall::Kind::uneven;
    if (has_rows && call.list.front().shape.empty()) call.list.front().shape = {1};
    if (call.kind == RandomCall::Kind::uneven) call.list.front().shape.front() = 1;
    return call;
  }

  std::mt19937_64 random_;
};

/// One rank's part of a call: its tensors, whose elements are the rank plus one.
class RandomRank {
 public:
  /// `layout` chooses strides, which need not match.
  RandomRank(const Communicator& group, const RandomCall& call, int layout)
      : group_(group), call_(call), root_(group.size() - 1) {
    for (const RandomOperand& one : call.list) tensors_.push_back(filled(one, layout));
  }

  Work run() {
    using Kind = RandomCall::Kind;
    const Tensor& tensor = tensors_.front();
    const auto ranks = static_cast<std::int64_t>(group_.size());
    switch (call_.kind) {
      case Kind::all_reduce:
        return group_.all_reduce(tensor);
      case Kind::coalesced:
        return group_.all_reduce_coalesced(tensors_);
      case Kind::reduce:
        return group_.reduce(tensor, root_);
      case Kind::broadcast:
        return group_.broadcast(tensor, root_);
      case Kind::all_gather:
        return group_.all_gather(joined(ranks), tensor);
      case Kind::reduce_scatter:
        return group_.reduce_scatter(tensor, joined(ranks));
      case Kind::gather:
        return group_.gather(joined(ranks), tensor, root_);
      case Kind::scatter:
        return group_.scatter(tensor, joined(ranks), root_);
      case Kind::all_to_all:
        return group_.all_to_all(rows(ranks * tensor.size(0)), rows(ranks * tensor.size(0)));
      case Kind::uneven: {
        std::vector<std::int64_t> counts;
        std::int64_t total = 0;
        for (int peer = 0; peer < group_.size(); ++peer) {
          counts.push_back((group_.rank() + peer) % 3);
          total += counts.back();
        }
        return group_.all_to_all(rows(total), rows(total), counts, counts);
      }
    }
    __builtin_unreachable();
  }

  /// True if no tensor has changed.
  [[nodiscard]] bool is_unchanged() const { return has(group_.rank() + 1); }
  /// True if the tensors hold what the call gives, where the test knows it.
  [[nodiscard]] bool is_right() const {
    using Kind = RandomCall::Kind;
    const int sum = group_.size() * (group_.size() + 1) / 2;
    switch (call_.kind) {
      case Kind::all_reduce:
      case Kind::coalesced:
        return has(sum);
      case Kind::reduce:
        return has(group_.rank() == root_ ? sum : group_.rank() + 1);
      case Kind::broadcast:
      case Kind::scatter:
        return has(root_ + 1);
      case Kind::reduce_scatter:
        return has(sum);
      case Kind::all_gather:
      case Kind::gather:
      case Kind::all_to_all:
      case Kind::uneven:
        return true;
    }
    __builtin_unreachable();
  }

 private:
  Tensor filled(const RandomOperand& one, int layout) const {
    const TensorOptions options{.dtype = one.dtype, .device = group_.device()};
    const int value = group_.rank() + 1;
    if (layout == 0 || one.shape.size() < 2) return full(Shape(one.shape), value, options);
    std::vector<std::int64_t> reversed(one.shape.rbegin(), one.shape.rend());
    Tensor tensor = full(Shape(reversed), value, options);
    const int last = static_cast<int>(one.shape.size()) - 1;
    for (int i = 0; i < last - i; ++i) tensor = tensor.transpose(i, last - i);
    return tensor;
  }
  // The larger array of the call, either joined along dim 0 or stacked.
  Tensor joined(std::int64_t ranks) const {
    std::vector<std::int64_t> shape = call_.list.front().shape;
    if (shape.empty() || group_.rank() % 2 == 0) {
      shape.insert(shape.begin(), ranks);
    } else {
      shape.front() *= ranks;
    }
    return filled({call_.list.front().dtype, shape}, 0);
  }
  Tensor rows(std::int64_t count) const {
    std::vector<std::int64_t> shape = call_.list.front().shape;
    shape.front() = count;
    return filled({call_.list.front().dtype, shape}, 0);
  }
  [[nodiscard]] bool has(int value) const {
    return std::ranges::all_of(tensors_, [&](const Tensor& tensor) {
      return tensor.numel() == 0 ||
             (tensor.amin().item<int>() == value && tensor.amax().item<int>() == value);
    });
  }

  const Communicator& group_;
  const RandomCall& call_;
  int root_;
  std::vector<Tensor> tensors_;
};

}  // namespace gantry::testing
