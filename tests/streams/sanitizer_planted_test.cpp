// Programs with a race, which the sanitizer must find, and the same programs with the missing
// order.
#include <gmock/gmock.h>

#include <string>
#include <vector>

#include <gantry/collectives/comm.hpp>
#include <gantry/collectives/communicator.hpp>
#include <gantry/memory/pinned_allocator.hpp>
#include <gantry/streams/event.hpp>
#include <gantry/streams/graph.hpp>
#include <gantry/tensor/elementwise.hpp>
#include <gantry/tensor/indexing.hpp>
#include <gantry/tensor/linalg.hpp>
#include <gantry/tensor/random.hpp>
#include <gantry/tensor/reductions.hpp>
#include <gantry/tensor/shape_ops.hpp>

#include "tests/streams/sanitizer_fixture.hpp"
#include "tests/support/foreign_stream.hpp"

namespace gantry::testing {
namespace {

/// The streams and tensors of a program. `ordered`: the program makes the order that it needs.
struct Scene {
  bool ordered = false;
  Stream a = Stream::from_pool(Device::cuda(0));
  Stream b = Stream::from_pool(Device::cuda(0));
  Stream c = Stream::from_pool(Device::cuda(0));
  TensorOptions options{.dtype = DType::f32, .device = Device::cuda(0)};
  Tensor x = ones({64, 64}, options);

  std::vector<Tensor> kept{};  ///< to the end of the program

  Scene() { synchronize(Device::cuda(0)); }
  ~Scene() {
    for (int i = 0; i < device_count(); ++i) synchronize(Device::cuda(i));
  }
  Scene(const Scene&) = delete;
  Scene& operator=(const Scene&) = delete;
  Tensor keep(const Tensor& tensor) {
    kept.push_back(tensor);
    return tensor;
  }
  void order(const Stream& before, const Stream& after) const {
    if (ordered) after.wait(before);
  }
};

struct Planted {
  const char* name;
  const char* first;   ///< operation
  const char* second;  ///< operation
  void (*program)(Scene&);
  int devices = 1;

  friend void PrintTo(const Planted& planted, std::ostream* out) { *out << planted.name; }
};

void fill_on(const Stream& stream, const Tensor& tensor) {
  on(stream, [&] { tensor.fill_(2); });
}
void sum_on(const Stream& stream, const Tensor& tensor) {
  on(stream, [&] { static_cast<void>(tensor.sum()); });
}

const Planted kPlanted[] = {
    {"WriteAfterWrite", "fill", "mul",
     [](Scene& s) {
       fill_on(s.a, s.x);
       s.order(s.a, s.b);
       on(s.b, [&] { s.x.mul_(3); });
     }},
    {"ReadAfterWrite", "fill", "sum",
     [](Scene& s) {
       fill_on(s.a, s.x);
       s.order(s.a, s.b);
       sum_on(s.b, s.x);
     }},
    {"WriteAfterRead", "sum", "fill",
     [](Scene& s) {
       sum_on(s.a, s.x);
       s.order(s.a, s.b);
       fill_on(s.b, s.x);
     }},
    {"EventRecordedTooEarly", "fill", "sum",
     [](Scene& s) {
       Event event;
       if (!s.ordered) event.record(s.a);
       fill_on(s.a, s.x);
       if (s.ordered) event.record(s.a);
       s.b.wait(event);
       sum_on(s.b, s.x);
     }},
    {"EventNeverRecorded", "fill", "sum",
     [](Scene& s) {
       Event event;
       fill_on(s.a, s.x);
       if (s.ordered) event.record(s.a);
       s.b.wait(event);
       sum_on(s.b, s.x);
     }},
    {"EventOnTheWrongStream", "fill", "sum",
     [](Scene& s) {
       fill_on(s.a, s.x);
       const Event event = (s.ordered ? s.a : s.c).record();
       s.b.wait(event);
       sum_on(s.b, s.x);
     }},
    {"WaitOnTheWrongStream", "fill", "sum",
     [](Scene& s) {
       fill_on(s.a, s.x);
       (s.ordered ? s.b : s.c).wait(s.a);
       sum_on(s.b, s.x);
     }},
    {"WaitBehindTheUse", "fill", "sum",
     [](Scene& s) {
       fill_on(s.a, s.x);
       if (s.ordered) s.b.wait(s.a);
       sum_on(s.b, s.x);
       s.b.wait(s.a);
     }},
    {"BrokenChain", "fill", "sum",
     [](Scene& s) {
       fill_on(s.a, s.x);
       if (!s.ordered) s.c.wait(s.b);
       s.b.wait(s.a);
       if (s.ordered) s.c.wait(s.b);
       sum_on(s.c, s.x);
     }},
    {"OneOfTwoReaders", "sum", "fill",
     [](Scene& s) {
       sum_on(s.a, s.x);
       sum_on(s.b, s.x);
       s.c.wait(s.a);
       s.order(s.b, s.c);
       fill_on(s.c, s.x);
     }},
    {"PoolDoesNotWaitForDefault", "fill", "sum",
     [](Scene& s) {
       s.x.fill_(2);
       s.order(Stream::default_stream(Device::cuda(0)), s.b);
       sum_on(s.b, s.x);
     }},
    {"DefaultDoesNotWaitForPool", "fill", "sum",
     [](Scene& s) {
       fill_on(s.a, s.x);
       if (s.ordered) s.a.synchronize();
       static_cast<void>(s.x.sum());
     }},
    {"ForeignStream", "fill", "sum",
     [](Scene& s) {
       const ForeignStream foreign;
       fill_on(foreign.stream(), s.x);
       s.order(foreign.stream(), s.b);
       sum_on(s.b, s.x);
       synchronize(Device::cuda(0));
     }},
    {"OverlappingRows", "fill", "fill",
     [](Scene& s) {
       fill_on(s.a, s.x.slice(0, 0, 32));
       fill_on(s.b, s.x.slice(0, s.ordered ? 32 : 31, 64));
     }},
    {"OverlappingColumns", "fill", "fill",
     [](Scene& s) {
       fill_on(s.a, s.x.slice(1, 0, 64, 2));
       fill_on(s.b, s.x.select(1, s.ordered ? 7 : 8));
     }},
    {"DiagonalAndRow", "fill", "fill",
     [](Scene& s) {
       fill_on(s.a, s.x.diagonal());
       fill_on(s.b, s.ordered ? s.x.select(0, 5).slice(0, 6, 64) : s.x.select(0, 5));
     }},
    {"BroadcastOperand", "fill", "add",
     [](Scene& s) {
       const Tensor row = s.x.select(0, 0);
       fill_on(s.a, row);
       s.order(s.a, s.b);
       on(s.b, [&] { static_cast<void>(row.expand({64, 64}).add(1)); });
     }},
    {"SecondOperand", "fill", "add",
     [](Scene& s) {
       const Tensor y = s.keep(ones_like(s.x));
       synchronize(Device::cuda(0));
       fill_on(s.a, y);
       s.order(s.a, s.b);
       on(s.b, [&] { static_cast<void>(s.x.add(y)); });
     }},
    {"ConditionOfWhere", "gt", "where",
     [](Scene& s) {
       Tensor condition =
           s.keep(empty(s.x.sizes(), {.dtype = DType::bool_, .device = Device::cuda(0)}));
       on(s.a, [&] { gt_out(condition, s.x, 0); });
       s.order(s.a, s.b);
       on(s.b, [&] { static_cast<void>(where(condition, s.x, 0)); });
     }},
    {"IndexOfGather", "copy", "gather",
     [](Scene& s) {
       const TensorOptions integers{.dtype = DType::i64, .device = Device::cuda(0)};
       const Tensor index = s.keep(zeros({64, 1}, integers));
       const Tensor other = s.keep(ones({64, 1}, integers));
       synchronize(Device::cuda(0));
       on(s.a, [&] { index.copy_(other); });
       s.order(s.a, s.b);
       on(s.b, [&] { static_cast<void>(s.x.gather(1, index)); });
     }},
    {"OperandOfMatmul", "fill", "matmul",
     [](Scene& s) {
       fill_on(s.a, s.x);
       s.order(s.a, s.b);
       on(s.b, [&] { static_cast<void>(matmul(s.x, s.x)); });
     }},
    {"RandomNumbers", "uniform", "sum",
     [](Scene& s) {
       on(s.a, [&] { s.x.uniform_(); });
       s.order(s.a, s.b);
       sum_on(s.b, s.x);
     }},
    {"JoinedTensors", "fill", "cat",
     [](Scene& s) {
       fill_on(s.a, s.x);
       s.order(s.a, s.b);
       on(s.b, [&] { static_cast<void>(cat({s.x, s.x})); });
     }},
    {"ResultOfOtherStream", "add", "mul",
     [](Scene& s) {
       Tensor sum;
       on(s.a, [&] { sum = s.x.add(1); });
       s.order(s.a, s.b);
       on(s.b, [&] { sum.mul_(2); });
       s.a.wait(s.b);
     }},
    {"HostWritesDuringUpload", "copy", "fill",
     [](Scene& s) {
       const Tensor host = zeros({64, 64}, {.dtype = DType::f32, .pinned = true});
       on(s.a, [&] { s.x.copy_(host, {.non_blocking = true}); });
       if (s.ordered) s.a.synchronize();
       host.fill_(1);
     }},
    {"HostReadsDuringDownload", "copy", "to_vector",
     [](Scene& s) {
       Tensor host;
       on(s.a, [&] { host = s.x.to(Device::cpu(), {.non_blocking = true}); });
       if (s.ordered) s.a.record().synchronize();
       static_cast<void>(host.to_vector<float>());
     }},
    {"EarlyFree", "sum", "free",
     [](Scene& s) {
       Tensor y;
       on(s.a, [&] { y = ones({64, 64}, s.options); });
       s.b.wait(s.a);
       sum_on(s.b, y);
       if (s.ordered) y.record_stream(s.b);
       y = Tensor();
     }},
    {"UseBehindRecordUse", "sum", "free",
     [](Scene& s) {
       Tensor y;
       on(s.a, [&] { y = ones({64, 64}, s.options); });
       s.b.wait(s.a);
       if (!s.ordered) y.record_use(s.b);
       sum_on(s.b, y);
       if (s.ordered) y.record_use(s.b);
       y = Tensor();
     }},
    {"EarlyFreeOfPinnedMemory", "kernel", "free",
     [](Scene& s) {
       const Tensor host = zeros({64}, {.dtype = DType::f32, .pinned = true});
       sanitizer::uses("kernel", s.a, {sanitizer::reads(host)});
       if (s.ordered) host.record_stream(s.a);
     }},
    {"KernelOfTheProgram", "kernel", "fill",
     [](Scene& s) {
       sanitizer::uses("kernel", s.a, {sanitizer::reads(s.x)});
       s.order(s.a, s.b);
       fill_on(s.b, s.x);
     }},
    {"HostPointer", "fill", "loop",
     [](Scene& s) {
       fill_on(s.a, s.x);
       if (s.ordered) synchronize(Device::cuda(0));
       sanitizer::uses_on_host("loop", {sanitizer::reads(s.x)});
     }},
    {"GraphInputOverwritten", "add", "fill",
     [](Scene& s) {
       Tensor out = empty_like(s.x);
       Graph graph;
       {
         GraphCapture capture(graph, {.stream = s.c});
         add_out(out, s.x, 1);
       }
       on(s.a, [&] { graph.replay(); });
       s.order(s.a, s.b);
       fill_on(s.b, s.x);
       synchronize(Device::cuda(0));
     }},
    {"GraphOutputRead", "add", "sum",
     [](Scene& s) {
       Tensor out = empty_like(s.x);
       Graph graph;
       {
         GraphCapture capture(graph, {.stream = s.c});
         add_out(out, s.x, 1);
       }
       on(s.a, [&] { graph.replay(); });
       s.order(s.a, s.b);
       sum_on(s.b, out);
       synchronize(Device::cuda(0));
     }},
    {"BranchesOfACapture", "fill", "mul",
     [](Scene& s) {
       Graph graph;
       {
         GraphCapture capture(graph, {.stream = s.c});
         s.b.wait(s.c);
         s.x.fill_(1);
         s.order(s.c, s.b);
         on(s.b, [&] { s.x.mul_(2); });
         s.c.wait(s.b);
       }
     }},
    {"TwoGraphsAtOnce", "fill", "mul",
     [](Scene& s) {
       Graph first;
       Graph second;
       {
         GraphCapture capture(first, {.stream = s.c});
         s.x.fill_(1);
       }
       {
         GraphCapture capture(second, {.stream = s.c});
         s.x.mul_(2);
       }
       on(s.a, [&] { first.replay(); });
       s.order(s.a, s.b);
       on(s.b, [&] { second.replay(); });
       synchronize(Device::cuda(0));
     }},
    {"SourceOfPeerCopyOverwritten", "copy", "fill",
     [](Scene& s) {
       const Tensor there = empty({64, 64}, {.dtype = DType::f32, .device = Device::cuda(1)});
       on(s.a, [&] { there.copy_(s.x); });
       s.order(s.a, s.b);
       fill_on(s.b, s.x);
     },
     2},
    {"PeerCopyReadElsewhere", "copy", "sum",
     [](Scene& s) {
       const Stream other = Stream::from_pool(Device::cuda(1));
       const Tensor there = empty({64, 64}, {.dtype = DType::f32, .device = Device::cuda(1)});
       synchronize(Device::cuda(1));
       there.copy_(s.x);
       s.order(Stream::default_stream(Device::cuda(1)), other);
       sum_on(other, there);
       synchronize(Device::cuda(1));
     },
     2},
    {"CollectiveWithoutOrder", "fill", "all_reduce",
     [](Scene& s) {
       std::vector<Tensor> tensors{
           s.x, ones({64, 64}, {.dtype = DType::f32, .device = Device::cuda(1)})};
       synchronize(Device::cuda(1));
       fill_on(s.a, s.x);
       s.order(s.a, Stream::default_stream(Device::cuda(0)));
       comm::all_reduce(tensors);
       synchronize(Device::cuda(0));
       synchronize(Device::cuda(1));
     },
     2},
    {"CommunicatorWithoutOrder", "fill", "all_reduce",
     [](Scene& s) {
       const std::vector<Communicator> group =
           Communicator::local({Device::cuda(0), Device::cuda(1)});
       const Tensor other = ones({64, 64}, {.dtype = DType::f32, .device = Device::cuda(1)});
       synchronize(Device::cuda(1));
       fill_on(s.a, s.x);
       s.order(s.a, Stream::default_stream(Device::cuda(0)));
       static_cast<void>(group[0].all_reduce(s.x));
       static_cast<void>(group[1].all_reduce(other));
       synchronize(Device::cuda(0));
       synchronize(Device::cuda(1));
     },
     2},
    {"WorkNotWaitedFor", "all_reduce", "fill",
     [](Scene& s) {
       const std::vector<Communicator> group =
           Communicator::local({Device::cuda(0), Device::cuda(1)});
       const Tensor other = ones({64, 64}, {.dtype = DType::f32, .device = Device::cuda(1)});
       synchronize(Device::cuda(1));
       const Work work = group[0].all_reduce(s.x);
       static_cast<void>(group[1].all_reduce(other));
       on(s.b, [&] {
         if (s.ordered) work.wait();
         s.x.fill_(1);
       });
       synchronize(Device::cuda(0));
       synchronize(Device::cuda(1));
     },
     2},
    {"ResultOfCollectiveReadElsewhere", "broadcast", "sum",
     [](Scene& s) {
       const Stream other = Stream::from_pool(Device::cuda(1));
       std::vector<Tensor> out{empty({64, 64}, {.dtype = DType::f32, .device = Device::cuda(1)})};
       synchronize(Device::cuda(1));
       comm::broadcast(s.x, out);
       s.order(Stream::default_stream(Device::cuda(1)), other);
       sum_on(other, out[0]);
       synchronize(Device::cuda(1));
     },
     2},
};

class SanitizerPlanted : public SanitizerTest, public ::testing::WithParamInterface<Planted> {};

TEST_P(SanitizerPlanted, FindsTheRace) {
  GANTRY_REQUIRE_DEVICES(GetParam().devices);
  // Mode throw_: the second operation does not run, so ThreadSanitizer has nothing to report.
  sanitizer::enable(sanitizer::Mode::throw_);
  Scene scene;
  bool is_refused = false;
  try {
    GetParam().program(scene);
  } catch (const RaceError&) {
    is_refused = true;
  }
  const sanitizer::Report report = sanitizer::report();
  ASSERT_FALSE(report.races.empty());
  EXPECT_EQ(is_refused, GetParam().second != std::string("free"));
  const sanitizer::Race& race = report.races.front();
  EXPECT_EQ(race.first.operation, GetParam().first) << race.str();
  EXPECT_EQ(race.second.operation, GetParam().second) << race.str();
  EXPECT_TRUE(race.first.is_write || race.second.is_write) << race.str();
  EXPECT_TRUE(race.second.is_host || race.first.device != race.second.device ||
              race.first.stream != race.second.stream)
      << race.str();
  EXPECT_THAT(race.first.call_site, ::testing::HasSubstr("sanitizer_planted_test.cpp"));
  if (race.second.operation != "free") {
    EXPECT_THAT(race.second.call_site, ::testing::HasSubstr("sanitizer_planted_test.cpp"));
  }
}

TEST_P(SanitizerPlanted, IsSilentWithTheOrder) {
  GANTRY_REQUIRE_DEVICES(GetParam().devices);
  Scene scene;
  scene.ordered = true;
  GetParam().program(scene);
  const sanitizer::Report report = sanitizer::report();
  EXPECT_TRUE(report.races.empty()) << report.str();
  EXPECT_GT(report.operations, 0);
}

INSTANTIATE_TEST_SUITE_P(All, SanitizerPlanted, ::testing::ValuesIn(kPlanted),
                         [](const auto& planted) { return std::string(planted.param.name); });

}  // namespace
}  // namespace gantry::testing
