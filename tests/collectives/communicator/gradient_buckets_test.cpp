// Gradients in buckets: the bits of one all_reduce each, in any order of ready(), beside other
// work.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <gantry/collectives/gradient_buckets.hpp>
#include <gantry/core/error.hpp>
#include <gantry/memory/stats.hpp>
#include <gantry/streams/graph.hpp>
#include <gantry/streams/stream_guard.hpp>
#include <gantry/tensor/factories.hpp>

#include "tests/collectives/communicator/local_group.hpp"
#include "tests/collectives/throws.hpp"
#include "tests/support/stream_hold.hpp"

namespace gantry {
namespace {

using testing::CollectiveSuite;
using testing::expect_throws;
using ::testing::HasSubstr;
using testing::StreamHold;

using Places = std::vector<std::size_t>;

class GradientBucketsTest : public testing::LocalGroupTest {
 protected:
  static int ranks() { return std::min(device_count(), 4); }

  template <class Body>
  static void on_groups(int count, Body body) {
    on_ranks(count, [&](CollectiveSuite&, Communicator& group) { body(group); });
  }
};

// Gradients of one step on one rank; equal seeds give equal shapes on every rank.
class RandomGradients {
 public:
  RandomGradients(Device device, std::uint64_t seed) : device_(device), random_(seed) {
    constexpr std::array kTypes{f32, f32, f16, bf16, f64};
    for (int i = 1 + below(9); i > 0; --i) {
      const DType dtype = kTypes[static_cast<std::size_t>(below(5))];
      const TensorOptions options{.dtype = dtype, .device = device};
      switch (below(4)) {
        case 0:
          tensors_.push_back(zeros({}, options));
          break;
        case 1:
          tensors_.push_back(zeros({below(3), 1 + below(40)}, options));  // often empty
          break;
        case 2:
          tensors_.push_back(zeros({1 + below(9), 1 + below(9)}, options).t());
          break;
        default:
          tensors_.push_back(zeros({1 + below(3000)}, options));
      }
    }
  }

  int below(int n) { return std::uniform_int_distribution<int>(0, n - 1)(random_); }
  const std::vector<Tensor>& tensors() const { return tensors_; }
  // Numbers of rank and step whose sums are rounded.
  Tensor value(std::size_t i, int rank, int step) const {
    const Tensor& tensor = tensors_[i];
    return (arange(0, tensor.numel(), 1, {.dtype = f64, .device = device_})
                .mul(0.37)
                .add(1.1 + 0.73 * rank + 10 * step))
        .to(tensor.dtype())
        .view(tensor.sizes());
  }

 private:
  Device device_;
  std::mt19937_64 random_;
  std::vector<Tensor> tensors_;
};

std::vector<std::uint8_t> bytes_of(const Tensor& tensor) {
  return tensor.contiguous().view({tensor.numel()}).view(u8).to_vector<std::uint8_t>();
}

// A difference between the buckets and one all_reduce each; throws it, as other threads run.
void run_steps(const Communicator& group, std::uint64_t seed) {
  RandomGradients gradients(group.device(), seed);
  const std::vector<Tensor>& tensors = gradients.tensors();
  const bool averages = gradients.below(3) > 0;
  const GradientBucketOptions options{.bucket_bytes = std::size_t{1} << (3 + gradients.below(12)),
                                      .op = averages ? ReduceOp::avg : ReduceOp::sum,
                                      .collective = {.scale = gradients.below(2) == 0 ? 1.0 : 0.5}};
  GradientBuckets buckets(group, tensors, options);
  // Every rank has an order of its own.
  std::mt19937_64 random(seed * 31 + static_cast<std::uint64_t>(group.rank()));
  for (int step = 0; step < 3; ++step) {
    std::vector<Tensor> expected;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      expected.push_back(gradients.value(i, group.rank(), step));
      group.all_reduce(expected.back(), options.op, options.collective);
    }
    Places order(tensors.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::shuffle(order, random);
    for (const std::size_t i : order) {
      tensors[i].copy_(gradients.value(i, group.rank(), step));
      if (random() % 2 == 0) {
        buckets.ready(i);
      } else {
        buckets.ready(tensors[i].alias());
      }
    }
    buckets.finish();
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      if (bytes_of(tensors[i]) == bytes_of(expected[i])) continue;
      throw std::runtime_error(fmt::format("seed {}, step {}: gradient {} differs: {}", seed, step,
                                           i, tensors[i].str()));
    }
  }
}

TEST_F(GradientBucketsTest, GivesTheBitsOfOneAllReduceForEachGradient) {
  for (int count = 1; count <= ranks(); ++count) {
    on_groups(count, [&](const Communicator& group) {
      for (std::uint64_t seed = 1; seed <= 12; ++seed) {
        run_steps(group, seed + 100 * static_cast<std::uint64_t>(count));
      }
    });
  }
}

TEST_F(GradientBucketsTest, GivesTheSameBitsOverTheHost) {
  GANTRY_REQUIRE_DEVICES(2);
  setenv("GANTRY_COLL_ALGO", "host", 1);
  on_groups(2, [](const Communicator& group) {
    for (std::uint64_t seed = 1; seed <= 4; ++seed) run_steps(group, seed);
  });
}

TEST_F(GradientBucketsTest, FillsBucketsFromTheLastGradientOn) {
  GANTRY_REQUIRE_DEVICES(1);
  const Communicator group = Communicator::local({Device::cuda(0)}).front();
  const auto tensor = [](std::int64_t count, DType dtype = f32) {
    return zeros({count}, {.dtype = dtype, .device = Device::cuda(0)});
  };
  const std::vector<Tensor> gradients{tensor(2), tensor(100), tensor(1, f16), tensor(3), tensor(4)};
  const GradientBuckets small(group, gradients, {.bucket_bytes = 28});
  EXPECT_EQ(small.buckets(), (std::vector<Places>{{4, 3}, {2}, {1}, {0}}));
  const GradientBuckets large(group, gradients);
  EXPECT_EQ(large.buckets(), (std::vector<Places>{{4, 3, 1, 0}, {2}}));
  ASSERT_EQ(large.gradients().size(), gradients.size());
  EXPECT_EQ(large.gradients()[1].data(), gradients[1].data());
}

TEST_F(GradientBucketsTest, ReducesWhileTheStreamComputes) {
  GANTRY_REQUIRE_DEVICES(2);
  on_groups(2, [](const Communicator& group) {
    const Stream computes = Stream::from_pool(group.device());
    const Stream reads = Stream::from_pool(group.device());
    const Tensor gradient = zeros({50'000}, {.device = group.device()});
    gradient.record_stream(computes);
    gradient.record_stream(reads);
    // CUDA loads a kernel at its first launch, which may wait for the held stream.
    EXPECT_EQ(gradient.amin().item<float>(), gradient.amax().item<float>());
    computes.wait(Stream::current(group.device()));
    GradientBuckets buckets(group, {gradient});
    std::unique_ptr<StreamHold> rest;
    {
      const StreamGuard guard(computes);
      gradient.fill_(group.rank() + 1);
      buckets.ready(0);
      rest = std::make_unique<StreamHold>(computes);  // the rest of the backward pass
    }
    const StreamGuard guard(reads);
    buckets.finish();
    reads.synchronize();  // would hang behind the rest
    EXPECT_EQ(gradient.amin().item<float>(), 1.5F);
    EXPECT_EQ(gradient.amax().item<float>(), 1.5F);
    EXPECT_FALSE(computes.query());
    rest.reset();
    computes.synchronize();
  });
}

TEST_F(GradientBucketsTest, WaitsForEveryStreamThatWrites) {
  GANTRY_REQUIRE_DEVICES(2);
  on_groups(2, [](const Communicator& group) {
    const Device device = group.device();
    const std::array streams{Stream::from_pool(device), Stream::from_pool(device)};
    const std::vector<Tensor> gradients{zeros({300}, {.device = device}),
                                        zeros({500}, {.device = device})};
    const Stream first = Stream::current(device);
    for (const std::size_t i : {0, 1}) gradients[i].record_stream(streams[i]);
    GradientBuckets buckets(group, gradients);
    for (int round = 1; round <= 20; ++round) {
      const auto late = static_cast<std::size_t>(round % 2);
      std::unique_ptr<StreamHold> hold;
      for (const std::size_t i : {0, 1}) {
        streams[i].wait(first);
        if (i == late) hold = std::make_unique<StreamHold>(streams[i]);
        const StreamGuard guard(streams[i]);
        gradients[i].fill_(2 * round * (group.rank() + 1));
        buckets.ready(i);
      }
      buckets.finish();
      streams[1 - late].synchronize();
      EXPECT_FALSE(first.query());
      hold.reset();
      for (const Tensor& gradient : gradients) {
        EXPECT_EQ(gradient.amin().item<int>(), 3 * round);
        EXPECT_EQ(gradient.amax().item<int>(), 3 * round);
      }
    }
  });
}

TEST_F(GradientBucketsTest, TheMemoryIsReusedOnlyAfterTheReduction) {
  GANTRY_REQUIRE_DEVICES(2);
  on_groups(2, [](const Communicator& group) {
    constexpr std::int64_t kLarge = 2'000'000;  // a free block of this size is reused at once
    const Device device = group.device();
    for (int round = 1; round <= 3; ++round) {
      const Stream writes = Stream::from_pool(device);
      std::unique_ptr<StreamHold> hold;
      {
        const Tensor gradient = zeros({kLarge}, {.device = device});
        writes.wait(Stream::current(device));
        const StreamGuard guard(writes);
        hold = std::make_unique<StreamHold>(writes);
        GradientBuckets buckets(group, {gradient});
        buckets.ready(0);
      }
      // The reduction would overwrite it.
      const Tensor other = full({kLarge}, round + group.rank(), {.device = device});
      Stream::current(device).synchronize();
      hold.reset();
      synchronize(device);
      EXPECT_EQ(other.amin().item<int>(), round + group.rank());
      EXPECT_EQ(other.amax().item<int>(), round + group.rank());
    }
  });
}

TEST_F(GradientBucketsTest, LaterStepsAllocateNothingFromTheDevice) {
  GANTRY_REQUIRE_DEVICES(2);
  on_groups(2, [](const Communicator& group) {
    std::vector<Tensor> gradients;
    for (int i = 0; i < 6; ++i) {
      gradients.push_back(zeros({40'000 + i}, {.device = group.device()}));
    }
    GradientBuckets buckets(group, gradients, {.bucket_bytes = 400'000});
    const auto step = [&] {
      for (std::size_t i = gradients.size(); i-- > 0;) {
        gradients[i].fill_(group.rank());
        buckets.ready(i);
      }
      buckets.finish();
    };
    step();
    synchronize(group.device());
    group.host_barrier();
    const auto before = memory::stats_map(group.device());
    for (int i = 0; i < 5; ++i) {
      step();
      synchronize(group.device());
    }
    const auto after = memory::stats_map(group.device());
    for (const char* key : {"segment.all.allocated", "reserved_bytes.all.allocated"}) {
      EXPECT_EQ(after.at(key), before.at(key)) << key;
    }
    EXPECT_EQ(gradients[0].amax().item<float>(), 0.5F);
  });
}

TEST_F(GradientBucketsTest, AStepRunsInAGraph) {
  GANTRY_REQUIRE_DEVICES(2);
  on_groups(2, [](const Communicator& group) {
    const TensorOptions options{.device = group.device()};
    const std::vector<Tensor> gradients{zeros({70}, options), zeros({5000}, options)};
    const Tensor source = zeros({1}, options);
    GradientBuckets buckets(group, gradients, {.bucket_bytes = 64});
    const auto step = [&] {
      for (const std::size_t i : {1, 0}) {
        gradients[i].copy_(source.expand({gradients[i].numel()}));
        buckets.ready(i);
      }
      buckets.finish();
    };
    step();
    Graph graph;
    {
      GraphCapture capture(graph);
      step();
      capture.end();
    }
    group.host_barrier();
    for (int round = 1; round < 4; ++round) {
      source.fill_(round + group.rank());
      graph.replay();
      for (const Tensor& gradient : gradients) {
        EXPECT_EQ(gradient.amin().item<double>(), round + 0.5);
        EXPECT_EQ(gradient.amax().item<double>(), round + 0.5);
      }
    }
    synchronize(group.device());
    group.host_barrier();
  });
}

TEST_F(GradientBucketsTest, RefusesGradientsThatCannotBeReduced) {
  GANTRY_REQUIRE_DEVICES(1);
  const Communicator group = Communicator::local({Device::cuda(0)}).front();
  const auto making = [&](std::vector<Tensor> gradients, GradientBucketOptions options = {}) {
    return [&group, gradients = std::move(gradients), options] {
      const GradientBuckets buckets(group, gradients, options);
    };
  };
  const TensorOptions here{.device = Device::cuda(0)};
  const Tensor good = zeros({4}, here);
  expect_throws<InvalidArgument>(making({}), "GradientBuckets: expected at least one gradient");
  expect_throws<InvalidArgument>(making({good, Tensor()}), "'gradients[1]'");
  expect_throws<DeviceMismatchError>(making({good, zeros({4})}), "gradients[1]");
  expect_throws<InvalidArgument>(making({good, good.narrow(0, 1, 2)}), "GradientBuckets: ");
  expect_throws<InvalidArgument>(making({good.narrow(0, 0, 1).expand({3})}), "several share one");
  expect_throws<DTypeError>(making({zeros({4}, {.dtype = i32, .device = Device::cuda(0)})}),
                            "GradientBuckets: expected a floating dtype for avg, but got i32");
  expect_throws<InvalidArgument>(making({good}, {.bucket_bytes = 0}),
                                 "GradientBuckets: expected buckets of 1 byte or more, but got 0");
  expect_throws<InvalidArgument>([&] { const GradientBuckets none(Communicator(), {good}); },
                                 "GradientBuckets: expected a defined communicator");
  if (device_count() < 2) return;
  expect_throws<DeviceMismatchError>(making({zeros({4}, {.device = Device::cuda(1)})}), "cuda:1");
}

TEST_F(GradientBucketsTest, RefusesWrongCallsAndGoesOn) {
  GANTRY_REQUIRE_DEVICES(2);
  on_groups(2, [](const Communicator& group) {
    const TensorOptions options{.device = group.device()};
    const std::vector<Tensor> gradients{zeros({3}, options), zeros({2, 2}, options),
                                        zeros({5}, options)};
    GradientBuckets buckets(group, gradients, {.bucket_bytes = 16});
    for (int step = 0; step < 2; ++step) {
      for (const Tensor& gradient : gradients) gradient.fill_(group.rank());
      expect_throws<InvalidArgument>([&] { buckets.finish(); },
                                     "GradientBuckets::finish: expected every gradient to be "
                                     "ready, but got gradient 0, f32[3], which is not");
      buckets.ready(2);
      buckets.ready(0);
      expect_throws<InvalidArgument>([&] { buckets.ready(2); },
                                     "GradientBuckets::ready: expected each gradient once a step, "
                                     "but got gradient 2, f32[5] twice");
      expect_throws<InvalidArgument>([&] { buckets.ready(gradients[2]); }, "gradient 2");
      expect_throws<InvalidArgument>(
          [&] { buckets.ready(3); },
          "GradientBuckets::ready: expected an index below 3, but got 3");
      expect_throws<InvalidArgument>(
          [&] { buckets.ready(zeros({3}, options)); },
          "expected one of the 3 gradients, but got another tensor f32[3]");
      expect_throws<InvalidArgument>([&] { buckets.ready(gradients[1].t()); }, "another tensor");
      expect_throws<InvalidArgument>([&] { buckets.ready(gradients[1].narrow(0, 0, 1)); },
                                     "another tensor");
      expect_throws<InvalidArgument>([&] { buckets.ready(Tensor()); }, "undefined tensor");
      expect_throws<InvalidArgument>([&] { buckets.finish(); }, "gradient 1, f32[2, 2]");
      buckets.ready(gradients[1]);
      buckets.finish();
      for (const Tensor& gradient : gradients) EXPECT_EQ(gradient.amax().item<float>(), 0.5F);
      for (const Tensor& gradient : gradients) EXPECT_EQ(gradient.amin().item<float>(), 0.5F);
    }
  });
}

TEST_F(GradientBucketsTest, RanksWithOtherGradientsAreAMismatch) {
  GANTRY_REQUIRE_DEVICES(2);
  on_groups(2, [](const Communicator& group) {
    const TensorOptions options{.device = group.device()};
    const std::vector<Tensor> gradients{zeros({3 + group.rank()}, options), zeros({2}, options)};
    GradientBuckets buckets(group, gradients);
    const auto step = [&] {
      buckets.ready(1);
      buckets.ready(0);
      buckets.finish();
      synchronize(group.device());
    };
    expect_throws<CollectiveMismatch>(
        step,
        "rank 0 called all_reduce_coalesced avg f32[2]+f32[3] and rank 1 called "
        "all_reduce_coalesced avg f32[2]+f32[4]");
    // The group is intact, and so are the buckets' places.
    const std::vector<Tensor> equal{zeros({3}, options)};
    equal[0].fill_(group.rank());
    GradientBuckets others(group, equal);
    others.ready(0);
    others.finish();
    EXPECT_EQ(equal[0].amax().item<float>(), 0.5F);
  });
}

}  // namespace
}  // namespace gantry
