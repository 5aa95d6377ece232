// An operation of NCCL's interface that a test draws, and its result by the simplest loop.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "tests/compat/nccl_functions.hpp"

namespace gantry::testing {

/// An operation on whole numbers of 4 bytes. All ranks of a group use equal ones.
class DrawnOperation {
 public:
  /// The most elements of a rank's part.
  static constexpr std::size_t kMost = 600;

  /// The input of a rank: for each of `size` ranks kMost elements.
  static std::vector<std::int32_t> inputs(int rank, int size) {
    std::vector<std::int32_t> all;
    for (std::size_t i = 0; i < kMost * static_cast<std::size_t>(size); ++i) {
      all.push_back(input(rank, i));
    }
    return all;
  }

  template <class Generator>
  explicit DrawnOperation(Generator& draw)
      : kind_(static_cast<Kind>(draw() % kKinds)),
        count_(draw() % (kMost + 1)),
        op_(static_cast<Op>(draw() % kOps)),
        root_(static_cast<int>(draw() % 64)),
        type_(draw() % 2 == 0 ? ncclInt32 : ncclUint32) {}

  /// True if ranks send and receive.
  [[nodiscard]] bool is_message() const { return kind_ == Kind::shift; }

  /// Calls for one rank of a group of `size`; each result goes to `expect`.
  template <class Expect>
  void submit(int rank, int size, const void* in, void* out, ncclComm_t comm, cudaStream_t stream,
              Expect expect) const {
    const int root = root_ % size;
    ncclRedOp_t op = op_ == Op::max ? ncclMax : op_ == Op::min ? ncclMin : ncclSum;
    const bool has_factor = reduces() && op_ == Op::triple;
    std::int32_t factor = 3;
    if (has_factor) {
      expect(ncclRedOpCreatePreMulSum(&op, &factor, type_, ncclScalarHostImmediate, comm));
    }
    switch (kind_) {
      case Kind::all_reduce:
        expect(ncclAllReduce(in, out, count_, type_, op, comm, stream));
        break;
      case Kind::reduce:
        expect(ncclReduce(in, out, count_, type_, op, root, comm, stream));
        break;
      case Kind::broadcast:
        expect(ncclBroadcast(in, out, count_, type_, root, comm, stream));
        break;
      case Kind::all_gather:
        expect(ncclAllGather(in, out, count_, type_, comm, stream));
        break;
      case Kind::reduce_scatter:
        expect(ncclReduceScatter(in, out, count_, type_, op, comm, stream));
        break;
      case Kind::gather:
        expect(ncclGather(in, out, count_, type_, root, comm, stream));
        break;
      case Kind::scatter:
        expect(ncclScatter(in, out, count_, type_, root, comm, stream));
        break;
      case Kind::all_to_all:
        expect(ncclAlltoAll(in, out, count_, type_, comm, stream));
        break;
      case Kind::shift:
        expect(ncclGroupStart());
        expect(ncclSend(in, count_, type_, (rank + 1) % size, comm, stream));
        expect(ncclRecv(out, count_, type_, (rank + size - 1) % size, comm, stream));
        expect(ncclGroupEnd());
        break;
    }
    if (has_factor) expect(ncclRedOpDestroy(op, comm));
  }

  /// The first elements of the output of `rank`, whose group has the given `ranks`, by the numbers
  /// that their inputs were made with. Empty where nothing is received.
  [[nodiscard]] std::vector<std::int32_t> expected(int rank, const std::vector<int>& ranks) const {
    const int size = static_cast<int>(ranks.size());
    const int root = root_ % size;
    const auto at = static_cast<std::size_t>(rank);
    const bool is_root = rank == root;
    std::vector<std::int32_t> all;
    const auto add_from = [&](int other, std::size_t begin) {
      for (std::size_t i = 0; i < count_; ++i) {
        all.push_back(input(ranks[static_cast<std::size_t>(other)], begin + i));
      }
    };
    switch (kind_) {
      case Kind::all_reduce:
        return reduced(ranks, 0);
      case Kind::reduce:
        return is_root ? reduced(ranks, 0) : all;
      case Kind::reduce_scatter:
        return reduced(ranks, at * count_);
      case Kind::broadcast:
        add_from(root, 0);
        break;
      case Kind::scatter:
        add_from(root, at * count_);
        break;
      case Kind::gather:
      case Kind::all_gather:
        if (kind_ == Kind::gather && !is_root) break;
        for (int other = 0; other < size; ++other) add_from(other, 0);
        break;
      case Kind::all_to_all:
        for (int other = 0; other < size; ++other) add_from(other, at * count_);
        break;
      case Kind::shift:
        add_from((rank + size - 1) % size, 0);
        break;
    }
    return all;
  }

  [[nodiscard]] std::string describe() const {
    return "kind " + std::to_string(static_cast<int>(kind_)) + ", count " + std::to_string(count_) +
           ", operator " + std::to_string(static_cast<int>(op_)) + ", root " +
           std::to_string(root_);
  }

 private:
  enum class Kind {
    all_reduce,
    reduce,
    broadcast,
    all_gather,
    reduce_scatter,
    gather,
    scatter,
    all_to_all,
    shift,
  };
  static constexpr int kKinds = 9;
  enum class Op { sum, max, min, triple };
  static constexpr int kOps = 4;

  static std::int32_t input(int rank, std::size_t i) {
    return static_cast<std::int32_t>((static_cast<std::size_t>(rank) * 31 + i * 7) % 1009);
  }
  [[nodiscard]] bool reduces() const {
    return kind_ == Kind::all_reduce || kind_ == Kind::reduce || kind_ == Kind::reduce_scatter;
  }
  [[nodiscard]] std::vector<std::int32_t> reduced(const std::vector<int>& ranks,
                                                  std::size_t begin) const {
    std::vector<std::int32_t> all;
    for (std::size_t i = begin; i < begin + count_; ++i) {
      std::int32_t value = input(ranks[0], i);
      for (std::size_t other = 1; other < ranks.size(); ++other) {
        const std::int32_t next = input(ranks[other], i);
        if (op_ == Op::max) {
          value = std::max(value, next);
        } else if (op_ == Op::min) {
          value = std::min(value, next);
        } else {
          value += next;
        }
      }
      all.push_back(op_ == Op::triple ? value * 3 : value);
    }
    return all;
  }

  Kind kind_;
  std::size_t count_;
  Op op_;
  int root_;
  ncclDataType_t type_;
};

}  // namespace gantry::testing
