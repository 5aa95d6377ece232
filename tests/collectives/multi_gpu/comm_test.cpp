#include <gantry/collectives/comm.hpp>

#include <gtest/gtest.h>

#include <gantry/core/error.hpp>
#include <gantry/streams/stream_guard.hpp>
#include <gantry/tensor/elementwise.hpp>
#include <gantry/tensor/factories.hpp>
#include <gantry/tensor/random.hpp>
#include <gantry/tensor/shape_ops.hpp>

#include "tests/collectives/reduce_oracle.hpp"
#include "tests/collectives/throws.hpp"
#include "tests/support/device_fixture.hpp"

namespace gantry {
namespace {

using testing::DeviceTest;
using testing::expect_throws;

class CommTest : public DeviceTest {
 protected:
  static std::vector<Device> all_devices() {
    std::vector<Device> devices;
    for (int i = 0; i < device_count(); ++i) devices.push_back(Device::cuda(i));
    return devices;
  }

  // Distinct values for each rank, exact in every dtype that tests use.
  static Tensor ramp(const Shape& shape, Device device, int rank, DType dtype = f32) {
    return (arange(shape.product(), {.dtype = i64}).remainder(97) + rank)
        .view(shape)
        .to(dtype)
        .to(device);
  }

  // The values as f64.
  static std::vector<double> values(const Tensor& tensor) { return tensor.to_vector<double>(); }
};

TEST_F(CommTest, BroadcastGivesEveryDeviceTheSameElements) {
  const std::vector<Device> devices = all_devices();
  for (const Shape& shape : {Shape{}, Shape{0}, Shape{1}, Shape{7, 3}, Shape{1000, 1000}}) {
    for (const DType dtype : {u8, f16, i64, f64}) {
      const Tensor source = ramp(shape, devices.back(), 3, dtype);
      const std::vector<Tensor> copies = comm::broadcast(source, devices);
      ASSERT_EQ(copies.size(), devices.size());
      for (std::size_t i = 0; i < devices.size(); ++i) {
        EXPECT_EQ(copies[i].device(), devices[i]);
        EXPECT_EQ(copies[i].dtype(), dtype);
        EXPECT_EQ(copies[i].sizes(), shape);
        EXPECT_EQ(values(copies[i]), values(source));
      }
      EXPECT_EQ(copies.back().data(), source.data()) << "the source's own entry is the source";
    }
  }
}

TEST_F(CommTest, BroadcastTakesCpuAndNonContiguousSources) {
  const Tensor host = ramp({6, 5}, Device::cpu(), 0);
  for (const Tensor& copy : comm::broadcast(host, all_devices())) {
    EXPECT_EQ(values(copy), values(host));
  }
  const Tensor transposed = host.to(Device::cuda(0)).t();
  for (const Tensor& copy : comm::broadcast(transposed, all_devices())) {
    EXPECT_EQ(copy.sizes(), Shape({5, 6}));
    EXPECT_EQ(values(copy), values(host.t()));
  }
}

TEST_F(CommTest, LargeBroadcastInPartsEqualsTheSource) {
  // Past the size from which receivers pass parts on; an odd length leaves uneven parts.
  const Tensor source = ramp({(9 << 20) / 4 + 13}, Device::cuda(0), 1);
  for (const Tensor& copy : comm::broadcast(source, all_devices())) {
    EXPECT_TRUE(copy.cpu().equal(source.cpu()));
  }
}

TEST_F(CommTest, BroadcastIntoWritesStridedOutputs) {
  const Tensor source = ramp({4, 6}, Device::cuda(0), 2);
  std::vector<Tensor> out;
  for (const Device device : all_devices()) {
    out.push_back(zeros({6, 4}, {.device = device}).t());
  }
  comm::broadcast(source, out);
  for (const Tensor& tensor : out) EXPECT_EQ(values(tensor), values(source));
}

TEST_F(CommTest, ReduceAddReducesInListOrder) {
  const std::vector<Device> devices = all_devices();
  for (const DType dtype : {bool_, u8, i8, i16, i32, i64, f16, bf16, f32, f64}) {
    for (const std::int64_t length : {0, 1, 7, 255, 4096, 70001}) {
      std::vector<Tensor> inputs;
      std::vector<std::vector<double>> host;
      for (std::size_t r = 0; r < devices.size(); ++r) {
        Generator generator(Device::cpu(), 100 + r);
        const Tensor made =
            is_floating_point(dtype)
                ? rand({length}, {}, &generator).sub(0.5).mul(1000).to(dtype)
                : randint(0, dtype == bool_ ? 2 : 120, {length}, {.dtype = dtype}, &generator);
        inputs.push_back(made.to(devices[r]));
        host.push_back(values(made));
      }
      const Tensor sum = comm::reduce_add(inputs, devices.back());
      EXPECT_EQ(sum.device(), devices.back());
      EXPECT_EQ(values(sum), testing::reduce_sum(host, dtype)) << dtype << " x " << length;
    }
  }
}

TEST_F(CommTest, ReduceAddGoesToAnyDestination) {
  const std::vector<Tensor> inputs{ramp({10}, Device::cuda(0), 0), ramp({10}, Device::cuda(0), 5)};
  std::vector<double> expected = values(inputs[0]);
  for (double& value : expected) value = 2 * value + 5;
  for (const Device device : all_devices()) {
    EXPECT_EQ(values(comm::reduce_add(inputs, device)), expected);
  }
  const Tensor host = comm::reduce_add(inputs, Device::cpu());
  Stream::current(Device::cuda(0)).synchronize();
  EXPECT_TRUE(host.is_pinned());
  EXPECT_EQ(values(host), expected);
}

TEST_F(CommTest, LargeReduceAddHasTheBitsOfTheSmallOne) {
  const std::vector<Device> devices = all_devices();
  const std::int64_t length = (5 << 20) / 4 + 11;
  std::vector<Tensor> inputs;
  for (std::size_t r = 0; r < devices.size(); ++r) {
    inputs.push_back(randn({length}, {.device = devices[r]}));
  }
  const Tensor whole = comm::reduce_add(inputs, Device::cuda(0)).cpu();
  std::vector<Tensor> pieces;
  for (std::int64_t begin = 0; begin < length; begin += 100'000) {
    std::vector<Tensor> slices;
    for (const Tensor& input : inputs) {
      slices.push_back(input.narrow(0, begin, std::min<std::int64_t>(100'000, length - begin)));
    }
    pieces.push_back(comm::reduce_add(slices, Device::cuda(0)).cpu());
  }
  EXPECT_TRUE(whole.equal(cat(pieces)));
}

TEST_F(CommTest, CoalescedFormsEqualTheSingleOnes) {
  const std::vector<Device> devices = all_devices();
  for (const std::size_t buffer : {std::size_t{64}, std::size_t{4096}, comm::kDefaultBufferBytes}) {
    std::vector<std::vector<Tensor>> lists(devices.size());
    for (std::size_t r = 0; r < devices.size(); ++r) {
      const int rank = static_cast<int>(r);
      lists[r] = {ramp({3, 4}, devices[r], rank),       ramp({5}, devices[r], rank, i32),
                  ramp({}, devices[r], rank),           ramp({0, 2}, devices[r], rank, f16),
                  ramp({40, 30}, devices[r], rank).t(), ramp({9}, devices[r], rank, i32)};
    }
    const std::vector<Tensor> sums = comm::reduce_add_coalesced(lists, devices[0], buffer);
    ASSERT_EQ(sums.size(), lists[0].size());
    for (std::size_t i = 0; i < sums.size(); ++i) {
      std::vector<Tensor> across;
      for (const auto& list : lists) across.push_back(list[i]);
      const Tensor single = comm::reduce_add(across, devices[0]);
      EXPECT_EQ(sums[i].dtype(), single.dtype());
      EXPECT_TRUE(sums[i].equal(single));
    }
    const auto copies = comm::broadcast_coalesced(lists[0], devices, buffer);
    ASSERT_EQ(copies.size(), devices.size());
    for (std::size_t d = 0; d < devices.size(); ++d) {
      for (std::size_t i = 0; i < lists[0].size(); ++i) {
        EXPECT_EQ(copies[d][i].device(), devices[d]);
        EXPECT_EQ(copies[d][i].sizes(), lists[0][i].sizes());
        EXPECT_EQ(values(copies[d][i]), values(lists[0][i]));
      }
    }
    EXPECT_EQ(copies[0][0].data(), lists[0][0].data());
  }
}

TEST_F(CommTest, ScatterAndGatherAreInverse) {
  const std::vector<Device> devices = all_devices();
  for (const Device home : {Device::cpu(), Device::cuda(0)}) {
    for (const int dim : {0, 1, -1}) {
      for (const std::int64_t extent : {0, 1, 5, 16}) {
        Shape shape{6, 3};
        shape[dim < 0 ? 1 : dim] = extent;
        const Tensor source = ramp(shape, home, 0);
        const std::vector<Tensor> pieces = comm::scatter(source, devices, {.dim = dim});
        ASSERT_EQ(pieces.size(), devices.size()) << "one chunk per device, empty ones included";
        for (std::size_t i = 0; i < devices.size(); ++i) {
          EXPECT_EQ(pieces[i].device(), devices[i]);
        }
        const Tensor joined = comm::gather(pieces, {.dim = dim, .destination = Device::cuda(0)});
        EXPECT_EQ(joined.sizes(), shape);
        EXPECT_EQ(values(joined), values(source));
        const Tensor host = comm::gather(pieces, {.dim = dim, .destination = Device::cpu()});
        for (const Device device : devices) synchronize(device);
        EXPECT_EQ(values(host), values(source));
      }
    }
  }
}

TEST_F(CommTest, ScatterHonoursChunkSizesStreamsAndTorchChunking) {
  GANTRY_REQUIRE_DEVICES(2);
  const std::vector<Device> devices{Device::cuda(0), Device::cuda(1), Device::cuda(0)};
  const Tensor source = ramp({7, 2}, Device::cuda(0), 0);
  const Stream side = Stream::from_pool(Device::cuda(1));
  const std::vector<Tensor> pieces =
      comm::scatter(source, devices, {.chunk_sizes = {1, 4, 2}, .streams = {std::nullopt, side}});
  EXPECT_EQ(pieces[0].sizes(), Shape({1, 2}));
  EXPECT_EQ(pieces[1].sizes(), Shape({4, 2}));
  EXPECT_TRUE(pieces[2].is_view_of(source)) << "a chunk on the source's device is a view";
  side.synchronize();
  EXPECT_EQ(values(pieces[1]), values(source.narrow(0, 1, 4)));
  const auto torch_like = comm::scatter(ramp({4}, Device::cpu(), 0), {"cuda:0", "cuda:1", "cuda:0"},
                                        {.torch_chunking = true});
  ASSERT_EQ(torch_like.size(), 2u) << "chunks of ceil(4/3) = 2 leave none for the third device";
  const auto empty_pieces =
      comm::scatter(ramp({0, 2}, Device::cpu(), 0), {"cuda:0", "cuda:1"}, {.torch_chunking = true});
  ASSERT_EQ(empty_pieces.size(), 2u);
  EXPECT_EQ(empty_pieces[1].sizes(), Shape({0, 2}));
}

TEST_F(CommTest, ResultsAreOrderedWithCurrentStreams) {
  GANTRY_REQUIRE_DEVICES(2);
  // Everything on side streams and nothing waited for: a missing event would show old elements.
  const Stream first = Stream::from_pool(Device::cuda(0));
  const Stream second = Stream::from_pool(Device::cuda(1));
  const StreamGuard guard_first(first);
  const StreamGuard guard_second(second);
  for (int round = 0; round < 20; ++round) {
    Tensor a = zeros({1 << 16}, {.device = "cuda:0"});
    Tensor b = zeros({1 << 16}, {.device = "cuda:1"});
    a.add_(round);
    b.add_(2 * round);
    const Tensor sum = comm::reduce_add({a, b}, Device::cuda(1));
    a.fill_(-1);
    b.fill_(-1);
    const Tensor back = comm::broadcast(sum, {Device::cuda(0)})[0];
    EXPECT_EQ(back.amin().item<int>(), 3 * round);
    EXPECT_EQ(back.amax().item<int>(), 3 * round);
  }
}

TEST_F(CommTest, AllReduceLeavesTheSumOnEveryDevice) {
  const std::vector<Device> devices = all_devices();
  for (const std::int64_t length : {0, 1, 1000, (5 << 20) / 4 + 3}) {
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::max, ReduceOp::avg}) {
      std::vector<Tensor> tensors;
      std::vector<std::vector<double>> host;
      for (std::size_t r = 0; r < devices.size(); ++r) {
        tensors.push_back(ramp({length}, devices[r], static_cast<int>(r * r)));
        host.push_back(values(tensors.back()));
      }
      comm::all_reduce(tensors, op);
      std::vector<double> expected(static_cast<std::size_t>(length));
      for (std::size_t i = 0; i < expected.size(); ++i) {
        for (std::size_t r = 0; r < host.size(); ++r) {
          expected[i] = op == ReduceOp::max
                            ? std::max(r == 0 ? host[r][i] : expected[i], host[r][i])
                            : expected[i] + host[r][i];
        }
        if (op == ReduceOp::avg) {
          expected[i] = static_cast<float>(expected[i]) / static_cast<float>(host.size());
        }
      }
      for (const Tensor& tensor : tensors) EXPECT_EQ(values(tensor), expected) << op;
    }
  }
}

TEST_F(CommTest, AllGatherReduceScatterAndAllToAllMoveTheRightBlocks) {
  const std::vector<Device> devices = all_devices();
  const auto n = static_cast<std::int64_t>(devices.size());
  std::vector<Tensor> inputs;
  std::vector<Tensor> gathered;
  std::vector<Tensor> exchanged;
  std::vector<Tensor> reduced;
  for (std::int64_t r = 0; r < n; ++r) {
    const Device device = devices[static_cast<std::size_t>(r)];
    inputs.push_back(ramp({2 * n, 3}, device, static_cast<int>(10 * r), i32));
    gathered.push_back(empty({2 * n * n, 3}, {.dtype = i32, .device = device}));
    exchanged.push_back(empty({2 * n, 3}, {.dtype = i32, .device = device}));
    reduced.push_back(empty({2, 3}, {.dtype = i32, .device = device}));
  }
  std::vector<Tensor> host;
  for (const Tensor& input : inputs) host.push_back(input.cpu());
  comm::all_gather(gathered, inputs);
  comm::all_to_all(exchanged, inputs);
  comm::reduce_scatter(reduced, inputs);
  for (std::int64_t d = 0; d < n; ++d) {
    const auto at = static_cast<std::size_t>(d);
    EXPECT_TRUE(gathered[at].cpu().equal(cat(host)));
    std::vector<Tensor> blocks;
    Tensor sum = zeros({2, 3}, {.dtype = i32});
    for (const Tensor& tensor : host) {
      blocks.push_back(tensor.narrow(0, 2 * d, 2));
      sum.add_(blocks.back());
    }
    EXPECT_TRUE(exchanged[at].cpu().equal(cat(blocks)));
    EXPECT_TRUE(reduced[at].cpu().equal(sum));
  }
}

TEST_F(CommTest, WholesMayBeStackedParts) {
  const std::vector<Device> devices = all_devices();
  const auto n = static_cast<std::int64_t>(devices.size());
  std::vector<Tensor> parts;
  std::vector<Tensor> stacked;
  std::vector<Tensor> host;
  for (std::int64_t r = 0; r < n; ++r) {
    const Device device = devices[static_cast<std::size_t>(r)];
    parts.push_back(ramp({2, 3}, device, static_cast<int>(10 * r), i32));
    stacked.push_back(empty({n, 2, 3}, {.dtype = i32, .device = device}));
    host.push_back(parts.back().cpu());
  }
  comm::all_gather(stacked, parts);
  for (const Tensor& whole : stacked) EXPECT_TRUE(whole.cpu().equal(stack(host)));
  comm::reduce_scatter(parts, stacked);
  for (std::int64_t r = 0; r < n; ++r) {
    const auto at = static_cast<std::size_t>(r);
    EXPECT_TRUE(parts[at].cpu().equal(host[at] * n));
  }
}

TEST_F(CommTest, BadInputIsAClearErrorAndChangesNothing) {
  const Tensor a = ramp({2, 3}, Device::cuda(0), 0);
  const Tensor host = a.cpu();
  Tensor out = zeros({9}, {.device = "cuda:0"});
  std::vector<Tensor> outs{out};
  const Tensor undefined;

  expect_throws<InvalidArgument>([&] { (void)comm::broadcast(a, std::vector<Device>{}); },
                                 "broadcast: expected at least one device, but got none");
  expect_throws<InvalidArgument>([&] { (void)comm::broadcast(a, {Device::cpu()}); },
                                 "broadcast: expected CUDA devices, but device at index 0 is cpu");
  expect_throws<InvalidArgument>([&] { (void)comm::broadcast(a, {Device::cuda(99)}); }, "cuda:99");
  expect_throws<InvalidArgument>([&] { (void)comm::broadcast(undefined, {Device::cuda(0)}); },
                                 "undefined tensor");
  expect_throws<ShapeError>([&] { comm::broadcast(a, outs); },
                            "output tensor at index 0 has shape [9]");
  expect_throws<InvalidArgument>([&] { (void)comm::reduce_add(std::vector<Tensor>{}); },
                                 "Expected at least one input");
  const Tensor number = ones({}, {.device = "cuda:0"});
  expect_throws<ShapeError>([&] { (void)comm::scatter(number, {Device::cuda(0)}); },
                            "scatter: expected tensors of at least one dimension");
  expect_throws<ShapeError>(
      [&] {
        (void)comm::gather({number, number});
      },
      "gather: expected tensors of at least one dimension");
  expect_throws<InvalidArgument>(
      [&] {
        (void)comm::reduce_add({a, host});
      },
      "reduce_add expects all inputs to be on GPUs, but input 1 is on cpu");
  expect_throws<ShapeError>(
      [&] {
        (void)comm::reduce_add({a, a.t()});
      },
      "input 1 has invalid size: got 3x2, but expected 2x3");
  std::vector<Tensor> on_host{a, host.clone()};
  expect_throws<InvalidArgument>([&] { comm::broadcast(a, on_host); },
                                 "broadcast: Expected all output tensors to be CUDA tensors, but "
                                 "output tensor at index 1 has device 'cpu'");
  expect_throws<InvalidArgument>([&] { comm::scatter(a, on_host); },
                                 "scatter: Expected all output tensors to be CUDA tensors, but "
                                 "output tensor at index 1 has device 'cpu'");
  expect_throws<DTypeError>(
      [&] {
        (void)comm::reduce_add({a, a.to(f64)});
      },
      "input tensor at index 1 has dtype f64, but expected f32");
  expect_throws<ShapeError>(
      [&] {
        (void)comm::reduce_add_coalesced({{a, a}, {a}});
      },
      "list 1 has 1 tensors and list 0 has 2");
  expect_throws<InvalidArgument>([&] { (void)comm::scatter(a, std::vector<Device>{}); },
                                 "Expected at least one device to scatter to");
  expect_throws<InvalidArgument>(
      [&] {
        (void)comm::scatter(a, {Device::cuda(0)}, {.chunk_sizes = {1, 1}});
      },
      "Expected devices and chunk_sizes to be of same length, but got len(devices) = 1 and "
      "len(chunk_sizes) = 2");
  expect_throws<ShapeError>(
      [&] { (void)comm::scatter(a, {Device::cuda(0)}, {.chunk_sizes = {5}}); },
      "chunk_sizes that add up to 2");
  expect_throws<ShapeError>(
      [&] {
        (void)comm::scatter(a, {Device::cuda(0), Device::cuda(0), Device::cuda(0)},
                            {.chunk_sizes = {INT64_MAX, INT64_MAX, 4}});
      },
      "chunk_sizes that add up to 2 (the size of dimension 0), but got 18446744073709551618");
  expect_throws<InvalidArgument>(
      [&] {
        (void)comm::scatter(a, {Device::cuda(0), Device::cuda(0)}, {.chunk_sizes = {-1, 3}});
      },
      "expected chunk_sizes >= 0, but got -1");
  expect_throws<IndexError>([&] { (void)comm::scatter(a, {Device::cuda(0)}, {.dim = 2}); },
                            "expected to be in range of [-2, 1], but got 2");
  expect_throws<InvalidArgument>([&] { (void)comm::gather(std::vector<Tensor>{}); },
                                 "Expected at least one tensor to gather from");
  expect_throws<InvalidArgument>([&] { (void)comm::gather({host}); },
                                 "tensor at index 0 has device cpu");
  expect_throws<ShapeError>(
      [&] {
        (void)comm::gather({a, ramp({2, 4}, Device::cuda(0), 0)});
      },
      "Input tensor at index 1 has invalid shape [2, 4], but expected [2, 3]");
  expect_throws<ShapeError>([&] { comm::gather({a}, out); },
                            "Expected out tensor to have shape [2, 3], but got [9]");
  std::vector<Tensor> twice{a, a};
  expect_throws<InvalidArgument>([&] { comm::all_reduce(twice); },
                                 "all_reduce: expected tensors that share no memory, but tensors 0 "
                                 "and 1, both on cuda:0, do");
  std::vector<Tensor> one{a};
  expect_throws<DTypeError>([&] { comm::all_reduce(one, ReduceOp::bxor); },
                            "expected an integer dtype or bool for bxor, but got f32");
  std::vector<Tensor> expanded{ones({1, 3}, {.device = "cuda:0"}).expand({2, 3})};
  expect_throws<InvalidArgument>([&] { comm::broadcast(a, expanded); }, "a place for each element");
  expect_throws<InvalidArgument>([&] { comm::gather({a.narrow(0, 0, 2)}, expanded[0]); },
                                 "a place for each element");
  expect_throws<InvalidArgument>([&] { comm::all_to_all(one, one); }, "share no memory");
  EXPECT_EQ(values(a), values(host));
  EXPECT_EQ(values(out), std::vector<double>(9, 0.0));
}

TEST_F(CommTest, ErrorsNameTheTensorThatDiffersFromTheInputs) {
  std::vector<Tensor> inputs{ramp({2, 3}, Device::cuda(0), 0), ramp({2, 3}, Device::cuda(0), 1)};
  const auto outputs = [](Shape first, Shape second) {
    return std::vector<Tensor>{zeros(first, {.device = "cuda:0"}),
                               zeros(second, {.device = "cuda:0"})};
  };
  std::vector<Tensor> wrong = outputs({5, 3}, {4, 3});
  expect_throws<ShapeError>(
      [&] { comm::all_gather(wrong, inputs); },
      "all_gather: expected outputs of shape [4, 3], but output 0 has [5, 3]");
  wrong = outputs({1, 3}, {2, 3});
  expect_throws<ShapeError>(
      [&] { comm::reduce_scatter(wrong, inputs); },
      "reduce_scatter: expected outputs of shape [1, 3], but output 1 has [2, 3]");
  wrong = outputs({3, 2}, {2, 3});
  expect_throws<ShapeError>(
      [&] { comm::all_to_all(wrong, inputs); },
      "all_to_all: expected outputs of shape [2, 3], but output 0 has [3, 2]");
  inputs = outputs({3, 2}, {3, 2});
  expect_throws<ShapeError>([&] { comm::reduce_scatter(wrong, inputs); },
                            "reduce_scatter: expected rows that divide into 2 blocks, but got "
                            "inputs of shape [3, 2]");
  inputs = outputs({}, {});
  expect_throws<ShapeError>([&] { comm::all_gather(wrong, inputs); },
                            "all_gather: expected rows, but got inputs of shape []");
  wrong[1] = wrong[1].to(f64);
  expect_throws<DTypeError>([&] { comm::all_to_all(wrong, inputs); },
                            "all_to_all: expected outputs of dtype f32, but output 1 has f64");
}

TEST_F(CommTest, ScatterCutsAsChunkDoes) {
  const std::vector<Device> devices(4, Device::cuda(0));
  for (const std::int64_t size : {0, 1, 4, 5, 9, 10, 13}) {
    const Tensor source = ramp({size}, Device::cuda(0), 0);
    const std::vector<Tensor> chunks = source.chunk(4);
    const std::vector<Tensor> pieces = comm::scatter(source, devices);
    ASSERT_EQ(pieces.size(), devices.size());
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      EXPECT_EQ(pieces[i].size(0), i < chunks.size() ? chunks[i].size(0) : 0) << size << ": " << i;
    }
    EXPECT_EQ(comm::scatter(source, devices, {.torch_chunking = true}).size(), chunks.size());
  }
}

TEST_F(CommTest, ASumOfOneTensorIsThatTensorWhereItIs) {
  const Tensor one = ramp({5}, Device::cuda(0), 0);
  const Tensor sum = comm::reduce_add({one}, Device::cuda(0));
  EXPECT_EQ(sum.data(), one.data());
  const Tensor host = comm::reduce_add({one}, Device::cpu());
  synchronize(Device::cuda(0));
  EXPECT_EQ(values(host), values(one));
  EXPECT_FALSE(comm::reduce_add_coalesced({{one}}, Device::cuda(0))[0].is_view_of(one));
}

TEST_F(CommTest, ScatterRejectsAStreamOfAnotherDevice) {
  GANTRY_REQUIRE_DEVICES(2);
  const Tensor a = ramp({2, 3}, Device::cuda(0), 0);
  expect_throws<InvalidArgument>(
      [&] {
        (void)comm::scatter(a, {Device::cuda(0)},
                            {.streams = {Stream::default_stream(Device::cuda(1))}});
      },
      "Expected the device associated with the stream at index 0 (was cuda:1) to match the device "
      "supplied at that index (expected cuda:0)");
}

}  // namespace
}  // namespace gantry
