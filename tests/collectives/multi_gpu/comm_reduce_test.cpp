// Reductions of comm::*: every threshold gives the bits of the scalar reduction in list order.
#include <gantry/collectives/comm.hpp>

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include <gantry/core/error.hpp>
#include <gantry/tensor/random.hpp>
#include <gantry/tensor/shape_ops.hpp>

#include "tests/collectives/multi_gpu/comm_fixture.hpp"
#include "tests/collectives/reduce_oracle.hpp"
#include "tests/collectives/throws.hpp"
#include "tests/support/fault_driver.hpp"

namespace gantry {
namespace {

using testing::all_tunings;
using testing::expect_throws;
using testing::FaultDriver;
using testing::TuningScope;

class CommReduceTest : public testing::CommFixture {
 protected:
  static constexpr DType kDTypes[] = {bool_, u8,  i8,  i16, i32, i64,    f16,   bf16,
                                      f32,   f64, u16, u32, u64, f8e4m3, f8e5m2};

  // Values with rounding in every step; every 17th is special.
  static Tensor made(std::int64_t length, DType dtype, std::size_t rank, bool special) {
    Generator generator(Device::cpu(), 100 + rank);
    if (!is_floating_point(dtype)) {
      const bool is_data = !computes(dtype);
      return randint(is_data || dtype == u8 || dtype == bool_ ? 0 : -120,
                     is_data          ? 60'000
                     : dtype == bool_ ? 2
                                      : 120,
                     {length}, {.dtype = is_data ? i64 : dtype}, &generator)
          .to(dtype);
    }
    Tensor values = rand({length}, {.dtype = f64}, &generator).sub(0.5).mul(1000).to(dtype);
    if (!special) return values;
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    const double specials[] = {std::nan(""), kInfinity, -kInfinity, -0.0, 0.0, 1e-40, 6e-8, 65504};
    for (std::int64_t i = 0; i < length; i += 17) {
      const std::size_t which = (static_cast<std::size_t>(i) / 17 + rank * 3) % std::size(specials);
      values[i].copy_(tensor(specials[which]));
    }
    return values;
  }

  // Equal as values of the dtype: NaN like NaN, and zeros by their signs.
  static void expect_equal(const Tensor& tensor, const std::vector<double>& expected) {
    const std::vector<double> values = tensor.to_vector<double>();
    ASSERT_EQ(values.size(), expected.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      const bool same =
          std::isnan(values[i])
              ? std::isnan(expected[i])
              : values[i] == expected[i] && std::signbit(values[i]) == std::signbit(expected[i]);
      ASSERT_TRUE(same) << "element " << i << ": " << values[i] << " is not " << expected[i];
    }
  }
};

TEST_F(CommReduceTest, EveryWayGivesTheBitsOfTheListOrder) {
  for (const CommTuning& tuning : all_tunings()) {
    const TuningScope scope(tuning);
    for (const int count : {1, 2, 3, 5, 8}) {
      const std::vector<Device> from = devices(count);
      for (const DType dtype : kDTypes) {
        for (const std::int64_t length : {0, 1, 3, 7, 8, 255, 257, 4095, 4097}) {
          std::vector<Tensor> inputs;
          std::vector<std::vector<double>> host;
          for (std::size_t r = 0; r < from.size(); ++r) {
            const Tensor values = made(length, dtype, r, true);
            host.push_back(values.to_vector<double>());
            inputs.push_back(values.to(from[r]));
          }
          SCOPED_TRACE(::testing::Message()
                       << from.size() << " devices, " << length << " x " << dtype);
          const std::vector<double> expected = testing::reduce_sum(host, dtype);
          expect_equal(comm::reduce_add(inputs, from.back()), expected);
          expect_equal(comm::reduce_add(inputs, devices().back()), expected);
        }
      }
    }
  }
}

TEST_F(CommReduceTest, NaNResultsHaveOneBitPattern) {
  GANTRY_REQUIRE_DEVICES(2);  // the sum of one tensor is the tensor
  const Tensor strange =
      tensor({static_cast<std::int64_t>(0xffc12345u) - (std::int64_t{1} << 32), std::int64_t{1}})
          .to(i32);
  for (const CommTuning& tuning : all_tunings()) {
    const TuningScope scope(tuning);
    std::vector<Tensor> inputs;
    for (const Device device : devices()) {
      const Tensor raw = strange.to(device);
      inputs.push_back(Tensor::from_storage(raw.storage(), {2}, {1}, 0, f32));
    }
    const Tensor sum = comm::reduce_add(inputs, Device::cuda(0)).cpu();
    EXPECT_EQ(std::bit_cast<std::uint32_t>(sum.data_ptr<float>()[0]), 0x7fc00000u);
  }
}

TEST_F(CommReduceTest, ListsMayRepeatDevicesAndTensors) {
  for (const CommTuning& tuning : all_tunings()) {
    const TuningScope scope(tuning);
    std::vector<Tensor> inputs;
    std::vector<std::vector<double>> host;
    for (std::size_t r = 0; r < 2 * devices().size(); ++r) {
      const Tensor values = made(3000, f32, r, false);
      host.push_back(values.to_vector<double>());
      inputs.push_back(values.to(devices()[r % devices().size()]));
    }
    inputs.push_back(inputs.front());
    host.push_back(host.front());
    expect_equal(comm::reduce_add(inputs, Device::cuda(0)), testing::reduce_sum(host, f32));
  }
}

TEST_F(CommReduceTest, StridedInputsGiveTheBitsOfContiguousOnes) {
  for (const CommTuning& tuning : all_tunings()) {
    const TuningScope scope(tuning);
    std::vector<Tensor> dense;
    std::vector<Tensor> strided;
    for (std::size_t r = 0; r < devices().size(); ++r) {
      const Tensor values = made(60 * 50, f16, r, true).view({60, 50}).to(devices()[r]);
      dense.push_back(values.t().contiguous());
      strided.push_back(values.t());
    }
    EXPECT_EQ(bits(comm::reduce_add(strided, Device::cuda(0))),
              bits(comm::reduce_add(dense, Device::cuda(0))));
  }
}

TEST_F(CommReduceTest, InputsMayBeOverwrittenAtOnceOnTheirOwnStreams) {
  GANTRY_REQUIRE_DEVICES(2);  // the sum of one tensor is the tensor
  for (const CommTuning& tuning : all_tunings()) {
    const TuningScope scope(tuning);
    const std::vector<Stream> streams = side_streams();
    const MultiStreamGuard guard(streams);
    const auto n = static_cast<int>(devices().size());
    for (int round = 0; round < 12; ++round) {
      const std::int64_t length = round % 2 == 0 ? 100 : 6000;
      std::vector<Tensor> inputs;
      for (int r = 0; r < n; ++r) {
        inputs.push_back(zeros({length}, {.device = devices()[static_cast<std::size_t>(r)]}));
        inputs.back().add_(round * (r + 1));
      }
      Tensor sum = comm::reduce_add(inputs, devices().back());
      for (Tensor& input : inputs) input.fill_(-1);
      sum.add_(1);
      const int expected = round * n * (n + 1) / 2 + 1;
      EXPECT_EQ(sum.amin().item<int>(), expected);
      EXPECT_EQ(sum.amax().item<int>(), expected);
    }
  }
}

TEST_F(CommReduceTest, TheOldOwnerOfTheOutputsMemoryIsWaitedFor) {
  for (const CommTuning& tuning : all_tunings()) {
    const TuningScope scope(tuning);
    const std::vector<Stream> streams = side_streams();
    const MultiStreamGuard guard(streams);
    std::vector<Tensor> inputs;
    for (const Device device : devices()) inputs.push_back(ones({6000}, {.device = device}));
    for (int round = 0; round < 10; ++round) {
      {
        // Freed with pending work, on the owner stream of the next output.
        Tensor busy = zeros({6000}, {.device = "cuda:0"});
        for (int i = 0; i < 3; ++i) busy.add_(1);
      }
      const Tensor sum = comm::reduce_add(inputs, Device::cuda(0));
      EXPECT_EQ(sum.amin().item<int>(), device_count());
      EXPECT_EQ(sum.amax().item<int>(), device_count());
    }
  }
}

TEST_F(CommReduceTest, AllReduceHasTheBitsOfReduceAdd) {
  for (const CommTuning& tuning : all_tunings()) {
    const TuningScope scope(tuning);
    for (const int count : {1, 2, 3, 8}) {
      for (const DType dtype : {f16, bf16, f32, i32}) {
        for (const std::int64_t length : {0, 1, 7, 300, 5000}) {
          std::vector<Tensor> tensors;
          for (std::size_t r = 0; r < devices(count).size(); ++r) {
            tensors.push_back(made(length, dtype, r, true).to(devices()[r]));
          }
          const std::vector<std::uint8_t> expected =
              bits(comm::reduce_add(tensors, Device::cuda(0)));
          comm::all_reduce(tensors);
          for (const Tensor& tensor : tensors) {
            EXPECT_EQ(bits(tensor), expected) << length << " x " << dtype;
          }
        }
      }
    }
  }
}

TEST_F(CommReduceTest, ReduceScatterAndAllGatherMakeAnAllReduce) {
  for (const CommTuning& tuning : all_tunings()) {
    const TuningScope scope(tuning);
    const auto n = static_cast<std::int64_t>(devices().size());
    for (const std::int64_t rows : {0, 1, 37, 500}) {
      std::vector<Tensor> inputs;
      std::vector<Tensor> parts;
      std::vector<Tensor> joined;
      for (std::size_t r = 0; r < devices().size(); ++r) {
        inputs.push_back(made(n * rows * 3, f32, r, true).view({n * rows, 3}).to(devices()[r]));
        // A strided output among them.
        parts.push_back(r == 1 ? zeros({3, rows}, {.device = devices()[r]}).t()
                               : zeros({rows, 3}, {.device = devices()[r]}));
        joined.push_back(zeros({n * rows, 3}, {.device = devices()[r]}));
      }
      comm::reduce_scatter(parts, inputs);
      comm::all_gather(joined, parts);
      comm::all_reduce(inputs);
      for (std::size_t r = 0; r < devices().size(); ++r)
        EXPECT_EQ(bits(joined[r]), bits(inputs[r]));
    }
  }
}

TEST_F(CommReduceTest, ExchangesAreOrderedWithEveryStream) {
  GANTRY_REQUIRE_DEVICES(2);
  for (const CommTuning& tuning : all_tunings()) {
    const TuningScope scope(tuning);
    const std::vector<Stream> streams = side_streams();
    const MultiStreamGuard guard(streams);
    const auto n = static_cast<std::int64_t>(devices().size());
    std::vector<Tensor> inputs;
    std::vector<Tensor> outputs;
    for (const Device device : devices()) {
      inputs.push_back(zeros({n, 300}, {.device = device}));
      outputs.push_back(zeros({n, 300}, {.device = device}));
    }
    for (int round = 1; round < 8; ++round) {
      for (std::int64_t r = 0; r < n; ++r) {
        inputs[static_cast<std::size_t>(r)].fill_(round * 10 + static_cast<int>(r));
        outputs[static_cast<std::size_t>(r)].mul_(2);
      }
      comm::all_to_all(outputs, inputs);
      for (Tensor& input : inputs) input.fill_(-1);
      for (const Tensor& output : outputs) {
        for (std::int64_t r = 0; r < n; ++r) {
          EXPECT_EQ(output[r].amin().item<int>(), round * 10 + r);
          EXPECT_EQ(output[r].amax().item<int>(), round * 10 + r);
        }
      }
    }
  }
}

TEST_F(CommReduceTest, AllReduceTakesSeveralTensorsOfOneDeviceInListOrder) {
  for (const CommTuning& tuning : all_tunings()) {
    const TuningScope scope(tuning);
    for (const std::int64_t length : {1, 257, 3000}) {
      const Tensor halves = empty({2, length}, {.device = "cuda:0"});
      std::vector<Tensor> tensors{halves[0]};
      for (const Device device : devices()) {
        tensors.push_back(empty({length}, {.device = device}));
        // Strided, and beside another one's memory.
        tensors.push_back(empty({length, 2}, {.device = device}).select(1, 1));
      }
      tensors.push_back(halves[1]);
      std::vector<std::vector<double>> host;
      for (std::size_t r = 0; r < tensors.size(); ++r) {
        const Tensor values = made(length, f32, r, true);
        host.push_back(values.to_vector<double>());
        tensors[r].copy_(values);
      }
      comm::all_reduce(tensors);
      const std::vector<double> expected = testing::reduce_sum(host, f32);
      for (const Tensor& tensor : tensors) expect_equal(tensor, expected);
    }
  }
}

TEST_F(CommReduceTest, AllowCastConvertsToTheFirstDType) {
  const std::vector<Tensor> inputs{ramp({70}, Device::cuda(0), 0, f64),
                                   ramp({70}, devices().back(), 1, i32)};
  expect_throws<DTypeError>([&] { (void)comm::reduce_add(inputs, Device::cuda(0)); },
                            "input tensor at index 1 has dtype i32, but expected f64");
  const Tensor sum = comm::reduce_add(inputs, Device::cuda(0), {.allow_cast = true});
  EXPECT_EQ(sum.dtype(), f64);
  EXPECT_EQ(sum.to_vector<double>(), inputs[0].mul(2).add(1).to_vector<double>());
  expect_throws<ShapeError>(
      [&] {
        (void)comm::reduce_add({inputs[0], inputs[0].narrow(0, 0, 3)}, Device::cuda(0),
                               {.allow_cast = true});
      },
      "has invalid size: got 3, but expected 70");
}

TEST_F(CommReduceTest, ARootStreamNeedsTwoWaitsForEachOtherStream) {
  GANTRY_REQUIRE_SIM();
  const auto others = static_cast<std::uint64_t>(devices().size() - 1);
  std::vector<Tensor> inputs;
  for (const Device device : devices()) inputs.push_back(ones({100}, {.device = device}));
  (void)comm::reduce_add(inputs, Device::cuda(0));
  for (const Device device : devices()) synchronize(device);
  {
    FaultDriver counting;
    (void)comm::reduce_add(inputs, Device::cuda(0));
    EXPECT_EQ(counting.calls("wait_event"), 2 * others);
  }
  const TuningScope scope({.helper_bytes = 1});
  FaultDriver counting;
  (void)comm::reduce_add(inputs, Device::cuda(0));
  EXPECT_EQ(counting.calls("wait_event"), 4 * others);
}

}  // namespace
}  // namespace gantry
