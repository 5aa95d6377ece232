// Reductions of comm::* over more tensors than one kernel takes, and into given tensors.
#include <gantry/collectives/comm.hpp>

#include <gtest/gtest.h>

#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/extend/driver.hpp>

#include "tests/collectives/collective_oracle.hpp"
#include "tests/collectives/multi_gpu/comm_fixture.hpp"
#include "tests/collectives/throws.hpp"

namespace gantry {
namespace {

using testing::all_tunings;
using testing::Bytes;
using testing::bytes_of;
using testing::expect_throws;
using testing::make_elements;
using testing::reduce_elements;
using testing::tensor_of;
using testing::TuningScope;

// Around one pass of 64, two passes, and more.
constexpr int kCounts[] = {2, 64, 65, 127, 128, 200};

class CommManyInputsTest : public testing::CommFixture {
 protected:
  // The elements of each input, and the inputs: over all devices in turn.
  struct Inputs {
    std::vector<Bytes> host;
    std::vector<Tensor> tensors;
  };
  static Inputs made(int count, std::int64_t length, DType dtype) {
    Inputs inputs;
    for (int i = 0; i < count; ++i) {
      inputs.host.push_back(make_elements(i, length, dtype, 3));
      const auto device = static_cast<std::size_t>(i) % devices().size();
      inputs.tensors.push_back(tensor_of(inputs.host.back(), dtype, devices()[device]));
    }
    return inputs;
  }
  static Bytes sum_of(const Inputs& inputs, DType dtype) {
    return reduce_elements(ReduceOp::sum, dtype, inputs.host);
  }
};

TEST_F(CommManyInputsTest, SumsHaveTheBitsOfTheListOrder) {
  for (const CommTuning& tuning : all_tunings()) {
    const TuningScope scope(tuning);
    for (const int count : kCounts) {
      for (const DType dtype : {bool_, u8, i16, i64, f16, bf16, f32, f64}) {
        for (const std::int64_t length : {0, 1, 700}) {
          SCOPED_TRACE(::testing::Message() << count << " x " << dtype << "[" << length << "]");
          const Inputs inputs = made(count, length, dtype);
          const Bytes expected = sum_of(inputs, dtype);
          EXPECT_EQ(bytes_of(comm::reduce_add(inputs.tensors, devices().back())), expected);
          const Tensor host = comm::reduce_add(inputs.tensors, Device::cpu());
          synchronize(inputs.tensors.front().device());
          EXPECT_EQ(bytes_of(host), expected);
        }
      }
    }
  }
}

TEST_F(CommManyInputsTest, EveryOperationTakesThem) {
  for (const ReduceOp op : {ReduceOp::sum, ReduceOp::avg, ReduceOp::prod, ReduceOp::min,
                            ReduceOp::max, ReduceOp::bxor}) {
    for (const DType dtype : {f16, bf16, f32, f64, i32}) {
      if (op == ReduceOp::avg && !is_floating_point(dtype)) continue;
      if (op == ReduceOp::bxor && is_floating_point(dtype)) continue;
      for (const int count : {64, 65, 130}) {
        SCOPED_TRACE(::testing::Message() << name(op) << " of " << count << " x " << dtype);
        Inputs inputs = made(count, 130, dtype);
        const Bytes expected = reduce_elements(op, dtype, inputs.host);
        std::vector<Tensor> shares;
        for (const Tensor& tensor : inputs.tensors)
          shares.push_back(tensor.new_empty({130 / count}));
        if (130 % count == 0) {
          comm::reduce_scatter(shares, inputs.tensors, op);
          Bytes joined;
          for (const Tensor& share : shares) {
            const Bytes part = bytes_of(share);
            joined.insert(joined.end(), part.begin(), part.end());
          }
          EXPECT_EQ(joined, expected);
        }
        comm::all_reduce(inputs.tensors, op);
        for (const Tensor& tensor : inputs.tensors) ASSERT_EQ(bytes_of(tensor), expected);
      }
    }
  }
}

TEST_F(CommManyInputsTest, SixteenBitsAreWidenedInChunks) {
  // Longer than the chunk of 262,144 elements.
  const Inputs inputs = made(66, 262'144 + 100, bf16);
  EXPECT_EQ(bytes_of(comm::reduce_add(inputs.tensors, Device::cuda(0))), sum_of(inputs, bf16));
}

TEST_F(CommManyInputsTest, CoalescedSumsHaveTheBitsOfSingleOnes) {
  for (const CommTuning& tuning : all_tunings()) {
    const TuningScope scope(tuning);
    for (const std::vector<DType>& dtypes : {std::vector{f32, i16}, std::vector{f32, f16}}) {
      std::vector<std::vector<Tensor>> lists;
      for (int d = 0; d < 70; ++d) {
        const Device device = devices()[static_cast<std::size_t>(d) % devices().size()];
        std::vector<Tensor>& list = lists.emplace_back();
        for (const DType dtype : dtypes) {
          list.push_back(tensor_of(make_elements(d, 333, dtype, 5), dtype, device));
          list.push_back(tensor_of({}, dtype, device));
        }
      }
      const std::vector<Tensor> sums = comm::reduce_add_coalesced(lists, devices().back());
      std::vector<Tensor> out;
      for (const Tensor& sum : sums) out.push_back(sum.new_empty(sum.sizes()).fill_(1));
      comm::reduce_add_coalesced(lists, out);
      for (std::size_t i = 0; i < sums.size(); ++i) {
        std::vector<Tensor> across;
        for (const std::vector<Tensor>& list : lists) across.push_back(list[i]);
        EXPECT_EQ(bits(sums[i]), bits(comm::reduce_add(across, devices().back())));
        EXPECT_EQ(bits(out[i]), bits(sums[i]));
      }
      // Into inputs of the first, and of a later pass.
      for (const std::size_t d : {std::size_t{1}, std::size_t{67}}) {
        std::vector<std::vector<Tensor>> own;
        for (const std::vector<Tensor>& list : lists) {
          std::vector<Tensor>& copy = own.emplace_back();
          for (const Tensor& tensor : list) copy.push_back(tensor.clone());
        }
        comm::reduce_add_coalesced(own, own[d]);
        for (std::size_t i = 0; i < sums.size(); ++i) EXPECT_EQ(bits(own[d][i]), bits(sums[i]));
      }
    }
  }
}

TEST_F(CommManyInputsTest, GraphsReduceThemAgain) {
  const DeviceGuard guard(Device::cuda(0));
  const std::vector<Stream> streams = side_streams();
  const MultiStreamGuard current(streams);
  for (const DType dtype : {f16, f32}) {
    std::vector<Tensor> inputs;
    for (int i = 0; i < 100; ++i) {
      const auto device = static_cast<std::size_t>(i) % devices().size();
      inputs.push_back(ones({50}, {.dtype = dtype, .device = devices()[device]}));
    }
    Tensor out = zeros({50}, {.dtype = dtype, .device = Device::cuda(0)});
    Tensor sum;
    driver().begin_capture(streams[0].native(), CaptureMode::relaxed);
    for (std::size_t i = 1; i < streams.size(); ++i) streams[i].wait(streams[0]);
    sum = comm::reduce_add(inputs, Device::cuda(0));
    comm::reduce_add(inputs, out);
    for (std::size_t i = 1; i < streams.size(); ++i) streams[0].wait(streams[i]);
    const NativeGraph graph = driver().end_capture(streams[0].native());
    for (int round = 1; round < 4; ++round) {
      for (Tensor& input : inputs) input.fill_(round);
      for (std::size_t i = 1; i < streams.size(); ++i) streams[0].wait(streams[i]);
      driver().launch_graph(graph, streams[0].native());
      for (std::size_t i = 1; i < streams.size(); ++i) streams[i].wait(streams[0]);
      for (const Tensor& result : {sum, out}) {
        EXPECT_EQ(result.amin().item<int>(), 100 * round);
        EXPECT_EQ(result.amax().item<int>(), 100 * round);
      }
    }
    driver().destroy_graph(graph);
  }
}

TEST_F(CommManyInputsTest, SumsGoIntoGivenTensors) {
  for (const CommTuning& tuning : all_tunings()) {
    const TuningScope scope(tuning);
    for (const int count : {1, 2, 5, 80}) {
      for (const DType dtype : {f32, f16, i32}) {
        SCOPED_TRACE(::testing::Message() << count << " x " << dtype);
        const auto fresh = [&] { return made(count, 600, dtype); };
        const Inputs inputs = fresh();
        const Bytes expected = sum_of(inputs, dtype);
        for (const Device device : {Device::cuda(0), devices().back(), Device::cpu()}) {
          Tensor out = zeros({600}, {.dtype = dtype, .device = device});
          comm::reduce_add(inputs.tensors, out);
          EXPECT_EQ(bytes_of(out), expected);
        }
        Tensor pinned = zeros({600}, {.dtype = dtype, .pinned = true});
        comm::reduce_add(inputs.tensors, pinned);
        synchronize(inputs.tensors.front().device());
        EXPECT_EQ(bytes_of(pinned), expected);
        const Tensor wide = zeros({600, 2}, {.dtype = dtype, .device = Device::cuda(0)});
        Tensor column = wide.select(1, 1);
        comm::reduce_add(inputs.tensors, column);
        EXPECT_EQ(bytes_of(column), expected);
        EXPECT_EQ(wide.select(1, 0).abs().amax().item<int>(), 0);
        // Each input may receive the sum.
        for (const int own : {0, count / 2, count - 1}) {
          Inputs changed = fresh();
          Tensor out = changed.tensors[static_cast<std::size_t>(own)];
          comm::reduce_add(changed.tensors, out);
          EXPECT_EQ(bytes_of(out), expected);
        }
      }
    }
  }
}

TEST_F(CommManyInputsTest, CastsInputsToTheFirstOneAndTheSumToTheOutput) {
  const Device device = Device::cuda(0);
  const std::vector<Tensor> inputs{full({3}, 1.75, {.dtype = f32, .device = device}),
                                   full({3}, 2, {.dtype = i64, .device = devices().back()})};
  Tensor out = zeros({3}, {.dtype = i32, .device = device});
  comm::reduce_add(inputs, out, {.allow_cast = true});
  EXPECT_EQ(out.to_vector<int>(), (std::vector<int>{3, 3, 3}));
  std::vector<Tensor> outs{zeros({3}, {.dtype = f16, .device = Device::cpu()})};
  comm::reduce_add_coalesced({{inputs[0]}, {inputs[1]}}, outs, {.allow_cast = true});
  EXPECT_EQ(outs[0].to_vector<float>(), (std::vector<float>{3.75, 3.75, 3.75}));
}

TEST_F(CommManyInputsTest, BadOutputsChangeNothing) {
  const TensorOptions options{.dtype = f32, .device = Device::cuda(0)};
  const std::vector<Tensor> inputs{ones({4}, options), ones({4}, options)};
  const auto refuses = [&](auto type, Tensor out, const std::string& text) {
    using Exception = typename decltype(type)::type;
    expect_throws<Exception>([&] { comm::reduce_add(inputs, out); }, "reduce_add: " + text);
    std::vector<Tensor> outs{out};
    const std::vector<std::vector<Tensor>> lists{{inputs[0]}, {inputs[1]}};
    expect_throws<Exception>([&] { comm::reduce_add_coalesced(lists, outs); },
                             "reduce_add_coalesced: ");
    for (const Tensor& input : inputs) EXPECT_EQ(input.sum().item<float>(), 4);
  };
  refuses(std::type_identity<ShapeError>(), zeros({5}, options),
          "Expected out tensor to have shape [4], but got [5]");
  refuses(std::type_identity<DTypeError>(), zeros({4}, {.dtype = f16, .device = "cuda:0"}),
          "expected out of dtype f32, but got f16");
  refuses(std::type_identity<InvalidArgument>(), Tensor(), "expected a defined tensor");
  refuses(std::type_identity<InvalidArgument>(), zeros({1}, options).expand({4}),
          "expected output 0 to have a place for each element");
  const Tensor whole = ones({6}, options);
  Tensor shifted = whole.narrow(0, 2, 4);
  expect_throws<InvalidArgument>(
      [&] {
        comm::reduce_add({whole.narrow(0, 0, 4), inputs[0]}, shifted);
      },
      "reduce_add: expected outputs that share memory with no other input, but output 0 shares "
      "input 0's");
  std::vector<Tensor> swapped{inputs[1], inputs[0]};
  expect_throws<InvalidArgument>(
      [&] {
        comm::reduce_add_coalesced({inputs, inputs}, swapped);
      },
      "reduce_add_coalesced: expected outputs that share memory with no other input, but output 1 "
      "shares input 0's");
  std::vector<Tensor> twice{whole.narrow(0, 0, 4), shifted};
  expect_throws<InvalidArgument>(
      [&] {
        comm::reduce_add_coalesced({inputs, inputs}, twice);
      },
      "expected tensors that share no memory, but tensors 0 and 1");
  std::vector<Tensor> one{inputs[0]};
  expect_throws<InvalidArgument>(
      [&] {
        comm::reduce_add_coalesced({inputs, inputs}, one);
      },
      "reduce_add_coalesced: expected 2 outputs, one per tensor of a list, but got 1");
  EXPECT_EQ(whole.sum().item<float>(), 6);
}

}  // namespace
}  // namespace gantry
