// Every operation of a communicator on tensors that stay, and what they must hold afterwards.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include <gantry/collectives/communicator.hpp>
#include <gantry/tensor/factories.hpp>

namespace gantry::testing {

/// Operations of one rank: run() submits them, set() writes inputs, check() reads the results.
/// Threads or captures of the other ranks do the same.
class CapturedOperations {
 public:
  /// Tensors with `count` elements a rank, in `memory` if it is defined: registered memory.
  CapturedOperations(const Communicator& group, std::int64_t count, const Tensor& memory = {})
      : group_(group), count_(count), memory_(memory) {
    const std::int64_t all = count * group.size();
    reduced_ = make(count);
    rooted_ = make(count);
    spread_ = make(count);
    own_ = make(count);
    gathered_ = make(all);
    parts_ = make(all);
    part_ = make(count);
    blocks_ = make(all);
    exchanged_ = make(all);
    passed_ = make(count);
  }

  void run() const {
    group_.all_reduce(reduced_);
    group_.reduce(rooted_, last());
    group_.broadcast(spread_, last());
    group_.all_gather(gathered_, own_);
    group_.reduce_scatter(part_, parts_);
    group_.all_to_all(exchanged_, blocks_);
    group_.send_recv(own_, next(1), passed_, next(-1));
    group_.barrier();
  }

  /// Writes the inputs of a round.
  void set(int round) const {
    for (const Tensor* input : {&reduced_, &rooted_, &spread_, &own_}) {
      input->copy_(input_of(round, group_.rank(), count_));
    }
    for (const Tensor* input : {&parts_, &blocks_}) {
      input->copy_(input_of(round, group_.rank(), count_ * group_.size()));
    }
    for (const Tensor* output : {&gathered_, &part_, &exchanged_, &passed_}) output->fill_(-1);
  }

  /// Throws std::runtime_error unless the tensors hold the results of a round.
  void check(int round) const {
    const int me = group_.rank();
    const auto sum = [&](std::int64_t i) {
      std::int32_t total = 0;
      for (int rank = 0; rank < group_.size(); ++rank) total += value(round, rank, i);
      return total;
    };
    expect("all_reduce", reduced_, sum);
    expect("reduce", rooted_,
           [&](std::int64_t i) { return me == last() ? sum(i) : value(round, me, i); });
    expect("broadcast", spread_, [&](std::int64_t i) { return value(round, last(), i); });
    expect("all_gather", gathered_,
           [&](std::int64_t i) { return value(round, static_cast<int>(i / count_), i % count_); });
    expect("reduce_scatter", part_, [&](std::int64_t i) { return sum(me * count_ + i); });
    expect("all_to_all", exchanged_, [&](std::int64_t i) {
      return value(round, static_cast<int>(i / count_), me * count_ + i % count_);
    });
    expect("send_recv", passed_, [&](std::int64_t i) { return value(round, next(-1), i); });
  }

 private:
  static std::int32_t value(int round, int rank, std::int64_t i) {
    return static_cast<std::int32_t>(1000 * round + 100 * rank + i % 97);
  }
  [[nodiscard]] int last() const { return group_.size() - 1; }
  [[nodiscard]] int next(int step) const {
    return (group_.rank() + step + group_.size()) % group_.size();
  }
  Tensor make(std::int64_t count) {
    if (!memory_.defined()) return empty({count}, {.dtype = i32, .device = group_.device()});
    constexpr std::int64_t kAlignment = 512;
    const std::int64_t first = used_;
    used_ += (count * 4 + kAlignment - 1) / kAlignment * kAlignment;
    return memory_.narrow(0, first, count * 4).view(i32);
  }
  static Tensor input_of(int round, int rank, std::int64_t count) {
    std::vector<std::int32_t> values(static_cast<std::size_t>(count));
    for (std::int64_t i = 0; i < count; ++i) {
      values[static_cast<std::size_t>(i)] = value(round, rank, i);
    }
    return tensor(values);
  }
  template <class Expected>
  void expect(const char* operation, const Tensor& result, Expected expected) const {
    const auto values = result.to_vector<std::int32_t>();
    for (std::int64_t i = 0; i < result.numel(); ++i) {
      const std::int32_t got = values[static_cast<std::size_t>(i)];
      if (got == expected(i)) continue;
      throw std::runtime_error(std::string(operation) + " of rank " +
                               std::to_string(group_.rank()) + ", element " + std::to_string(i) +
                               ": expected " + std::to_string(expected(i)) + ", but got " +
                               std::to_string(got));
    }
  }

  const Communicator& group_;
  std::int64_t count_;
  Tensor memory_;
  std::int64_t used_ = 0;
  Tensor reduced_, rooted_, spread_, own_, gathered_, parts_, part_, blocks_, exchanged_, passed_;
};

}  // namespace gantry::testing
