// Collectives through host memory and TCP, with ranks as threads.
#include "collectives/host/transport.hpp"

#include <gtest/gtest.h>

#include <numeric>

#include <gantry/core/error.hpp>

#include "tests/collectives/host/host_group.hpp"
#include "tests/support/device_fixture.hpp"

namespace gantry {
namespace {

using testing::Bytes;
using testing::host_ranks;
using testing::HostRank;
using testing::random_elements;
using testing::reduce_scalars;

std::vector<Bytes> inputs_of(int ranks, DType dtype, std::size_t count, std::uint32_t seed) {
  std::vector<Bytes> inputs;
  for (int r = 0; r < ranks; ++r) {
    inputs.push_back(random_elements(dtype, count, seed * 100 + static_cast<std::uint32_t>(r)));
  }
  return inputs;
}

Bytes slice(const Bytes& bytes, std::size_t first, std::size_t count) {
  const auto begin = bytes.begin() + static_cast<std::ptrdiff_t>(first);
  return {begin, begin + static_cast<std::ptrdiff_t>(count)};
}

Descriptor describe(CollectiveKind kind, std::size_t count, DType dtype, int root = -1,
                    ReduceOp op = ReduceOp::sum, double scale = 1) {
  return {.count = static_cast<std::int64_t>(count),
          .scale = scale,
          .root = root,
          .kind = kind,
          .op = op,
          .dtype = dtype};
}

const Bytes kUntouched(64, std::byte{0x5a});

void check_reductions(HostRank& self, DType dtype, ReduceOp op, std::size_t count,
                      double scale = 1) {
  const auto ranks = static_cast<std::size_t>(self.size);
  const std::size_t width = element_size(dtype);
  const int root = static_cast<int>(count % ranks);
  const auto inputs = inputs_of(self.size, dtype, count * ranks, 7);
  std::vector<Bytes> heads;
  for (const Bytes& input : inputs) heads.push_back(slice(input, 0, count * width));
  const Bytes expected = reduce_scalars(op, dtype, heads, 0, count, scale);
  const Bytes& mine = heads[static_cast<std::size_t>(self.rank)];

  SCOPED_TRACE(describe(CollectiveKind::all_reduce, count, dtype, -1, op, scale).str());
  EXPECT_EQ(self.run(describe(CollectiveKind::all_reduce, count, dtype, -1, op, scale), mine,
                     count * width),
            expected);
  const bool is_root = self.rank == root;
  const Bytes reduced = self.run(describe(CollectiveKind::reduce, count, dtype, root, op, scale),
                                 mine, is_root ? count * width : kUntouched.size());
  EXPECT_EQ(reduced, is_root ? expected : kUntouched);
  EXPECT_EQ(
      self.run(describe(CollectiveKind::reduce_scatter, count, dtype, -1, op, scale),
               inputs[static_cast<std::size_t>(self.rank)], count * width),
      reduce_scalars(op, dtype, inputs, static_cast<std::size_t>(self.rank) * count, count, scale));
}

void check_moves(HostRank& self, std::size_t count) {
  constexpr DType kType = DType::i16;
  SCOPED_TRACE(count);
  const auto ranks = static_cast<std::size_t>(self.size);
  const auto own = static_cast<std::size_t>(self.rank);
  const std::size_t bytes = count * element_size(kType);
  const int root = self.size - 1;
  const bool is_root = self.rank == root;
  const auto inputs = inputs_of(self.size, kType, count * ranks, 3);
  Bytes gathered, transposed;
  for (std::size_t r = 0; r < ranks; ++r) {
    const Bytes head = slice(inputs[r], 0, bytes);
    gathered.insert(gathered.end(), head.begin(), head.end());
    const Bytes block = slice(inputs[r], own * bytes, bytes);
    transposed.insert(transposed.end(), block.begin(), block.end());
  }
  const Bytes head = slice(inputs[own], 0, bytes);
  EXPECT_EQ(self.run(describe(CollectiveKind::broadcast, count, kType, root), head, bytes),
            slice(inputs[ranks - 1], 0, bytes));
  EXPECT_EQ(self.run(describe(CollectiveKind::all_gather, count, kType), head, bytes * ranks),
            gathered);
  EXPECT_EQ(self.run(describe(CollectiveKind::gather, count, kType, root), head,
                     is_root ? bytes * ranks : kUntouched.size()),
            is_root ? gathered : kUntouched);
  EXPECT_EQ(self.run(describe(CollectiveKind::scatter, count, kType, root), inputs[own], bytes),
            slice(inputs[ranks - 1], own * bytes, bytes));
  EXPECT_EQ(
      self.run(describe(CollectiveKind::all_to_all, count, kType), inputs[own], bytes * ranks),
      transposed);
}

TEST(HostTransportTest, ReducesEveryDTypeByEveryOpToTheBitsOfTheDefinition) {
  GANTRY_REQUIRE_DEVICES(1);
  for (const int size : {1, 2, 3, 5}) {
    host_ranks(size, [](HostRank& self) {
      for (const DType dtype : testing::kAllDTypes) {
        for (const ReduceOp op : testing::kAllOps) {
          if (!testing::is_defined(op, dtype)) continue;
          for (const std::size_t count : {0, 1, 7, 1031}) {
            check_reductions(self, dtype, op, count);
          }
        }
      }
    });
  }
}

TEST(HostTransportTest, ReducesArraysOfAllSizesAcrossSteps) {
  GANTRY_REQUIRE_DEVICES(1);
  for (const int size : {2, 3, 4}) {
    host_ranks(size, [](HostRank& self) {
      for (const DType dtype : {DType::f16, DType::f32}) {
        const std::size_t small = (std::size_t{32} << 10) / element_size(dtype);
        for (const std::size_t count : {small - 1, small, small + 1, std::size_t{30'001}}) {
          check_reductions(self, dtype, ReduceOp::sum, count);
        }
      }
      // More than one staging area of 8 MiB, and not a whole number of grains.
      if (self.size == 3) {
        check_reductions(self, DType::f64, ReduceOp::sum, (std::size_t{9} << 20) / 8 + 3);
      }
    });
  }
}

TEST(HostTransportTest, ScalesEveryInputInTheAccumulator) {
  GANTRY_REQUIRE_DEVICES(1);
  host_ranks(3, [](HostRank& self) {
    for (const DType dtype : {DType::f16, DType::bf16, DType::f32, DType::f64}) {
      for (const ReduceOp op : {ReduceOp::sum, ReduceOp::avg}) {
        for (const std::size_t count : {5, 40'000}) check_reductions(self, dtype, op, count, 0.3);
      }
    }
  });
}

TEST(HostTransportTest, MovesArraysOfAllSizes) {
  GANTRY_REQUIRE_DEVICES(1);
  for (const int size : {1, 2, 3, 4}) {
    host_ranks(size, [](HostRank& self) {
      for (const std::size_t count : {0, 1, 3, 16'384, 16'385, 1'200'007}) {
        check_moves(self, count);
      }
    });
  }
}

TEST(HostTransportTest, ExchangesBlocksOfUnequalSize) {
  GANTRY_REQUIRE_DEVICES(1);
  // Nothing at all, a few elements, more than one message.
  const std::int64_t sizes[] = {0, 5, 300'000};
  host_ranks(4, [&](HostRank& self) {
    const auto elements = [&](int from, int to) { return sizes[(from * 2 + to) % 3]; };
    std::vector<std::int64_t> sends, receives;
    for (int p = 0; p < self.size; ++p) {
      sends.push_back(elements(self.rank, p));
      receives.push_back(elements(p, self.rank));
    }
    const auto block = [&](int from, int to) {
      return random_elements(DType::i32, static_cast<std::size_t>(elements(from, to)),
                             static_cast<std::uint32_t>(from * 10 + to));
    };
    Bytes in, expected;
    for (int p = 0; p < self.size; ++p) {
      const Bytes out_block = block(self.rank, p);
      in.insert(in.end(), out_block.begin(), out_block.end());
      const Bytes in_block = block(p, self.rank);
      expected.insert(expected.end(), in_block.begin(), in_block.end());
    }
    const std::size_t total = std::accumulate(sends.begin(), sends.end(), std::size_t{0});
    EXPECT_EQ(self.run(describe(CollectiveKind::all_to_all, total, DType::i32), in, expected.size(),
                       sends, receives),
              expected);
  });
}

TEST(HostTransportTest, ReducesInPlaceBehindTheWorkOfItsStream) {
  GANTRY_REQUIRE_DEVICES(1);
  host_ranks(3, [](HostRank& self) {
    for (const std::size_t count : {16, 2'000'000}) {
      const auto inputs = inputs_of(3, DType::f32, count, 11);
      const Tensor tensor = self.on_device(Bytes(count * 4));
      // No synchronization between the copy and the operation.
      const Tensor source = self.on_device(inputs[static_cast<std::size_t>(self.rank)]);
      driver().copy(tensor.data(), source.data(), tensor.nbytes(), self.stream.native());
      Descriptor what = describe(CollectiveKind::all_reduce, count, DType::f32);
      what.call = ++self.calls;
      self.transport->run({{what, tensor.data(), tensor.data()}, self.size}, self.stream);
      self.transport->run({{what, tensor.data(), tensor.data()}, self.size}, self.stream);
      const Bytes once = reduce_scalars(ReduceOp::sum, DType::f32, inputs, 0, count);
      EXPECT_EQ(self.on_host(tensor),
                reduce_scalars(ReduceOp::sum, DType::f32, {once, once, once}, 0, count));
    }
  });
}

TEST(HostTransportTest, SendsSmallMessagesAtOnceAndLargeOnesWhenTheyAreReceived) {
  GANTRY_REQUIRE_DEVICES(1);
  host_ranks(2, [](HostRank& self) {
    const int peer = 1 - self.rank;
    const auto message = [](int from, std::size_t count) {
      return random_elements(DType::f32, count, static_cast<std::uint32_t>(from + 50));
    };
    // Both send first.
    for (const std::size_t count : {0, 1, 8192}) {
      self.run(describe(CollectiveKind::send, count, DType::f32, peer), message(self.rank, count),
               1);
      EXPECT_EQ(self.run(describe(CollectiveKind::recv, count, DType::f32, peer), {}, count * 4),
                message(peer, count));
    }
    for (const std::size_t count : {8193, 5'000'001}) {
      if (self.rank == 0) {
        self.run(describe(CollectiveKind::send, count, DType::f32, peer), message(0, count), 1);
      } else {
        EXPECT_EQ(self.run(describe(CollectiveKind::recv, count, DType::f32, peer), {}, count * 4),
                  message(0, count));
      }
    }
  });
}

TEST(HostTransportTest, SmallMessagesPassCollectives) {
  GANTRY_REQUIRE_DEVICES(1);
  host_ranks(3, [](HostRank& self) {
    const Bytes letter = random_elements(DType::u8, 100, 1);
    if (self.rank == 0) self.run(describe(CollectiveKind::send, 100, DType::u8, 2), letter, 1);
    check_reductions(self, DType::f32, ReduceOp::sum, 10);
    check_reductions(self, DType::f32, ReduceOp::sum, 100'000);
    if (self.rank == 2) {
      EXPECT_EQ(self.run(describe(CollectiveKind::recv, 100, DType::u8, 0), {}, 100), letter);
    }
  });
}

TEST(HostTransportTest, RefusesAStreamThatIsBeingCaptured) {
  GANTRY_REQUIRE_DEVICES(1);
  host_ranks(2, [](HostRank& self) {
    driver().begin_capture(self.stream.native(), CaptureMode::thread_local_);
    const Descriptor what = describe(CollectiveKind::barrier, 0, DType::u8);
    EXPECT_THROW(self.transport->run({{what}, self.size}, self.stream), CaptureError);
    driver().destroy_graph(driver().end_capture(self.stream.native()));
    self.transport->run({{what}, self.size}, self.stream);
  });
}

}  // namespace
}  // namespace gantry
