// One rank of the communicator tests. The first argument is the scenario. The exit code is 0 on
// success, and the last line of output is the result.

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include <gantry/collectives/communicator.hpp>
#include <gantry/core/error.hpp>
#include <gantry/streams/stream_guard.hpp>
#include <gantry/tensor/factories.hpp>
#include <gantry/tensor/random.hpp>
#include <gantry/tensor/shape_ops.hpp>

#include "tests/collectives/collective_suite.hpp"
#include "tests/collectives/reduce_oracle.hpp"
#include "tests/support/eventually.hpp"

using namespace gantry;

namespace {

void require(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error("check failed: " + what);
}

// The input of rank `rank`, which any process can compute.
Tensor contribution(int rank, std::int64_t length, DType dtype) {
  Generator generator(Device::cpu(), 1000 + static_cast<std::uint64_t>(rank));
  if (is_floating_point(dtype)) return rand({length}, {}, &generator).sub(0.5).mul(300).to(dtype);
  return randint(0, dtype == bool_ ? 2 : 100, {length}, {.dtype = dtype}, &generator);
}

std::vector<double> expected_sum(int ranks, std::int64_t length, DType dtype) {
  std::vector<std::vector<double>> all;
  for (int rank = 0; rank < ranks; ++rank) {
    all.push_back(contribution(rank, length, dtype).to_vector<double>());
  }
  return gantry::testing::reduce_sum(all, dtype);
}

void check_all_reduce(Communicator& world) {
  for (const DType dtype : {bool_, u8, i16, i32, i64, f16, bf16, f32, f64}) {
    // One slot, several slots, and both sides of the change from one step to two.
    for (const std::int64_t length : {0, 1, 255, 65'537, 300'000}) {
      Tensor tensor = contribution(world.rank(), length, dtype).to(world.device());
      world.all_reduce(tensor);
      require(tensor.to_vector<double>() == expected_sum(world.size(), length, dtype),
              fmt::format("all_reduce {} x {}", name(dtype), length));
    }
  }
  const std::int64_t large = (9 << 20) / 4 + 77;  // more than one staging slot
  Tensor tensor = contribution(world.rank(), large, f32).to(world.device());
  world.all_reduce(tensor);
  require(tensor.to_vector<double>() == expected_sum(world.size(), large, f32), "large all_reduce");

  Tensor extreme = full({3}, world.rank(), {.dtype = i32, .device = world.device()});
  world.all_reduce(extreme, ReduceOp::max);
  require(extreme.amin().item<int>() == world.size() - 1, "max");
  Tensor average = full({3}, world.rank(), {.dtype = f32, .device = world.device()});
  world.all_reduce(average, ReduceOp::avg);
  require(average[0].item<float>() == static_cast<float>(world.size() - 1) / 2, "avg");

  Tensor strided = zeros({4, 6}, {.device = world.device()}).t();
  strided.fill_(world.rank() + 1);
  world.all_reduce(strided);
  require(strided.amin().item<int>() == world.size() * (world.size() + 1) / 2, "strided");
}

void check_coalesced(Communicator& world) {
  std::vector<Tensor> tensors;
  for (int i = 0; i < 40; ++i) {
    tensors.push_back(contribution(world.rank(), i * 7, i % 3 == 0 ? f16 : f32).to(world.device()));
  }
  world.all_reduce_coalesced(tensors);
  for (int i = 0; i < 40; ++i) {
    require(tensors[static_cast<std::size_t>(i)].to_vector<double>() ==
                expected_sum(world.size(), i * 7, i % 3 == 0 ? f16 : f32),
            "all_reduce_coalesced");
  }
}

void check_movement(Communicator& world) {
  // The last one needs several turns in every operation.
  for (const std::int64_t length : {1, 1000, 600'000, 2'200'000}) {
    for (int root = 0; root < world.size(); root += std::max(1, world.size() - 1)) {
      Tensor tensor = contribution(world.rank(), length, f32).to(world.device());
      world.broadcast(tensor, root);
      require(tensor.cpu().equal(contribution(root, length, f32)), "broadcast");
      if (world.size() == 1) break;
    }
    const Tensor mine = contribution(world.rank(), length, i32).to(world.device());
    Tensor joined = empty({length * world.size()}, {.dtype = i32, .device = world.device()});
    world.all_gather(joined, mine);
    std::vector<Tensor> all;
    for (int rank = 0; rank < world.size(); ++rank) {
      all.push_back(contribution(rank, length, i32));
    }
    require(joined.cpu().equal(cat(all)), "all_gather");

    if (length > 1'000'000) continue;
    const Tensor input = contribution(world.rank(), length * world.size(), f32).to(world.device());
    Tensor output = empty({length}, {.device = world.device()});
    world.reduce_scatter(output, input);
    const std::vector<double> sum = expected_sum(world.size(), length * world.size(), f32);
    const auto begin = sum.begin() + world.rank() * length;
    require(output.to_vector<double>() == std::vector<double>(begin, begin + length),
            "reduce_scatter");
  }
}

// Every operation and dtype against the oracle.
void check_suite(Communicator& world) {
  gantry::testing::CollectiveSuite suite(world);
  for (const DType dtype : {bool_, u8, i8, i16, i32, i64, f16, bf16, f32, f64}) {
    suite.all(dtype, 333);
  }
  suite.all(f32, 100'003);
  suite.all(bf16, 20'001, 1);
}

// Messages that deadlock unless they run concurrently.
void check_messages(Communicator& world) {
  const int next = (world.rank() + 1) % world.size();
  const int previous = (world.rank() + world.size() - 1) % world.size();
  if (next == world.rank()) return;
  const TensorOptions here{.dtype = f32, .device = world.device()};
  for (const std::int64_t length : {1, 4 << 20}) {
    const Tensor mine = contribution(world.rank(), length, f32).to(world.device());
    const Tensor wanted = contribution(previous, length, f32);
    Tensor received = zeros({length}, here);
    world.send_recv(mine, next, received, previous).synchronize();
    require(received.cpu().equal(wanted), "send_recv in a ring");

    // Three messages to each neighbour, all of them in one group.
    std::vector<Tensor> several;
    auto messages = world.group();
    for (int number = 0; number < 3; ++number) world.send(mine.mul(number + 1), next);
    for (int number = 0; number < 3; ++number) {
      several.push_back(zeros({length}, here));
      world.recv(several.back(), previous);
    }
    messages.end().synchronize();
    for (int number = 0; number < 3; ++number) {
      require(several[static_cast<std::size_t>(number)].cpu().equal(wanted.mul(number + 1)),
              "a group of messages in a ring");
    }
  }
}

// Operations on unordered streams, without waits in between: slots are filled and read in
// turn only because the communicator orders its own calls.
void check_streams(Communicator& world) {
  std::vector<Tensor> tensors;
  std::vector<Work> works;
  for (int round = 0; round < 24; ++round) {
    const StreamGuard guard(Stream::from_pool(world.device()));
    tensors.push_back(
        full({150'000}, 100 * round + world.rank(), {.dtype = f32, .device = world.device()}));
    works.push_back(world.all_reduce(tensors.back()));
  }
  for (int round = 0; round < 24; ++round) {
    works[static_cast<std::size_t>(round)].synchronize();
    require(works[static_cast<std::size_t>(round)].query(), "query after synchronize");
    works[static_cast<std::size_t>(round)].wait();
    const double expected = world.size() * 100.0 * round + world.size() * (world.size() - 1) / 2.0;
    const Tensor& tensor = tensors[static_cast<std::size_t>(round)];
    require(tensor.amax().item<double>() == expected, "streams max");
    require(tensor.amin().item<double>() == expected, "streams min");
  }
}

// Bytes of many lengths, none at all among them, between the ranks of one group.
void check_bytes(Communicator& group) {
  const auto bytes_of = [](int rank, int round) {
    return std::string(static_cast<std::size_t>(rank * round * round % 100'000),
                       static_cast<char>('a' + (rank + round) % 26));
  };
  for (int round = 0; round < 30; ++round) {
    const std::vector<std::string> all = group.all_gather_bytes(bytes_of(group.rank(), round));
    for (int rank = 0; rank < group.size(); ++rank) {
      require(all[static_cast<std::size_t>(rank)] == bytes_of(rank, round), "bytes of a group");
    }
  }
}

// Parts of parts, and groups of the same ranks that are used at the same time.
void check_groups(Communicator& world) {
  for (int round = 0; round < 2; ++round) {
    Communicator part = world.split(world.rank() % 2, -world.rank());
    Communicator reversed = world.split(0, -world.rank());
    require(reversed.rank() == world.size() - 1 - world.rank(), "rank by key");
    const Communicator some = world.split(world.rank() == 0 ? -1 : 0);
    require(some.defined() == (world.rank() != 0), "a rank that stays out");
    Communicator alone = part.split(part.rank());
    require(alone.size() == 1, "a group of one");
    std::exception_ptr failure;
    std::thread other([&] {
      try {
        check_bytes(reversed);
      } catch (...) {
        failure = std::current_exception();
      }
    });
    check_bytes(part);
    other.join();
    if (failure) std::rethrow_exception(failure);
    check_bytes(alone);
    Tensor tensor = full({1000}, part.rank() + 1, {.dtype = i32, .device = world.device()});
    part.all_reduce(tensor);
    require(tensor.amax().item<int>() == part.size() * (part.size() + 1) / 2, "sum of a part");
  }
}

// Groups of a list of ranks, with names, and their ranks in the world.
void check_lists(const Communicator& world) {
  const int last = world.size() - 1;
  const std::vector<int> ends = last == 0 ? std::vector<int>{0} : std::vector<int>{last, 0};
  const Communicator pair = world.split(ends, "both ends");
  const bool is_end = world.rank() == 0 || world.rank() == last;
  require(pair.defined() == is_end, "a listed rank");
  if (!is_end) return;
  require(pair.name() == "both ends", "the name of a group");
  require(pair.device_map()[0].starts_with("rank 0 of both ends: "), "a name in a device map");
  for (int rank = 0; rank < pair.size(); ++rank) {
    const int in_world = ends[static_cast<std::size_t>(rank)];
    require(pair.rank_in(world, rank) == in_world, "rank in the world");
    require(world.rank_in(pair, in_world) == rank, "rank in a group");
  }
  if (last > 1) require(!world.rank_in(pair, 1), "a rank that is not listed");
  const Tensor tensor = full({10}, pair.rank() + 1, {.dtype = i32, .device = world.device()});
  pair.all_reduce(tensor, {.tag = "ends"});
  require(tensor.amax().item<int>() == pair.size() * (pair.size() + 1) / 2, "sum of a list");
}

int run_all(Communicator& world) {
  check_all_reduce(world);
  check_coalesced(world);
  check_movement(world);
  check_suite(world);
  check_messages(world);
  check_streams(world);
  world.barrier();
  const auto texts = world.all_gather_bytes(fmt::format("rank {}", world.rank()));
  for (int rank = 0; rank < world.size(); ++rank) {
    require(texts[static_cast<std::size_t>(rank)] == fmt::format("rank {}", rank), "bytes");
  }
  check_groups(world);
  check_lists(world);
  fmt::print("rank {} of {} ok by {} over {}\n", world.rank(), world.size(), world.launched_by(),
             world.transport());
  return 0;
}

// Rank 1 makes another call than the other ranks. All ranks must throw; the group stays intact.
int run_mismatch(Communicator& world, const std::string& field) {
  Tensor tensor = ones({8}, {.dtype = i32, .device = world.device()});
  Tensor longer = ones({9}, {.dtype = i32, .device = world.device()});
  Tensor real = ones({8}, {.dtype = f32, .device = world.device()});
  Tensor joined = ones({8 * world.size()}, {.dtype = i32, .device = world.device()});
  const bool odd = world.rank() == 1;
  try {
    const auto call = [&]() -> Work {
      if (field == "count") return world.all_reduce(odd ? longer : tensor);
      if (field == "dtype") return world.all_reduce(odd ? real : tensor);
      if (field == "op") return world.all_reduce(tensor, odd ? ReduceOp::max : ReduceOp::sum);
      if (field == "root") return world.broadcast(tensor, odd ? 1 : 0);
      if (field == "kind") return odd ? world.all_gather(joined, tensor) : world.all_reduce(tensor);
      return odd ? world.barrier() : world.all_reduce(tensor);
    };
    call().synchronize();
    fmt::print("no error\n");
    return 1;
  } catch (const InvalidArgument& error) {
    require(tensor.amax().item<int>() == 1, "a mismatch changes nothing");
    world.all_reduce(tensor);
    require(tensor.amax().item<int>() == world.size(), "the group goes on");
    fmt::print("{}\n", error.what());
    return 0;
  }
}

// Rank 1 ends in the named way; all other ranks must throw PeerLostError soon.
int run_loss(Communicator& world, const std::string& how) {
  Tensor tensor = ones({1 << 20}, {.device = world.device()});
  if (world.rank() == 1) {
    for (int i = 0; i < 5; ++i) world.all_reduce(tensor, ReduceOp::max).synchronize();
    if (how == "kill") kill(getpid(), SIGKILL);
    if (how == "exit") _exit(0);
    if (how == "return") return 0;
    if (how == "abort") {
      world.abort();
      return 0;
    }
  }
  try {
    for (int i = 0; i < 1000; ++i) {
      world.all_reduce(tensor, ReduceOp::max).synchronize();
    }
    fmt::print("no error\n");
    return 1;
  } catch (const PeerLostError& error) {
    require(error.rank() >= 0, "the error names a rank");
    try {
      world.all_reduce(tensor);
      return 1;
    } catch (const PeerLostError&) {
      fmt::print("lost rank {}: {}\n", error.rank(), error.what());
      return 0;
    }
  }
}

// Rank 1 enters after rank 0 has timed out, which a file signals.
int run_timeout(Communicator& world, const std::string& mark) {
  Tensor tensor = ones({8}, {.device = world.device()});
  if (world.rank() == 1) {
    require(gantry::testing::eventually([&] { return std::filesystem::exists(mark); }), "the mark");
    try {
      world.all_reduce(tensor).synchronize();
      return 1;
    } catch (const TimeoutError& error) {
      fmt::print("late: {}\n", error.what());
      return 0;
    }
  }
  try {
    world.all_reduce(tensor).synchronize();
    return 1;
  } catch (const TimeoutError& error) {
    fmt::print("timeout: {}\n", error.what());
  } catch (const PeerLostError& error) {
    fmt::print("given up: {}\n", error.what());
  }
  std::ofstream(mark) << "given up";
  return 0;
}

template <class Exception, class Action>
void must_throw(Action action, const char* phrase) {
  try {
    action();
  } catch (const Exception& error) {
    require(std::strstr(error.what(), phrase) != nullptr, error.what());
    return;
  }
  throw std::runtime_error(std::string("nothing thrown: ") + phrase);
}

// Argument errors are thrown before the call is recorded, so the group stays synchronized.
int run_bad_input(Communicator& world) {
  Tensor good = ones({4}, {.device = world.device()});
  Tensor host = ones({4});
  Tensor undefined;
  Tensor wrong = ones({5}, {.device = world.device()});
  if (world.rank() == 0) {
    must_throw<DeviceMismatchError>([&] { world.all_reduce(host); },
                                    "expected argument 'tensor' on the communicator's device");
    must_throw<InvalidArgument>([&] { world.all_reduce(undefined); }, "undefined tensor");
    must_throw<InvalidArgument>([&] { world.broadcast(good, world.size()); }, "expected a root");
    must_throw<InvalidArgument>([&] { world.broadcast(good, -1); }, "but got -1");
    must_throw<ShapeError>([&] { world.all_gather(wrong, good); }, "all_gather: expected 'output'");
    must_throw<ShapeError>([&] { world.reduce_scatter(good, wrong); }, "expected 'input'");
    must_throw<DTypeError>([&] { world.all_reduce(good, ReduceOp::band); }, "integer dtype");
    Tensor expanded = ones({1}, {.device = world.device()}).expand({4});
    must_throw<InvalidArgument>([&] { world.all_reduce(expanded); }, "a place for each element");
    must_throw<InvalidArgument>([&] { world.broadcast(expanded); }, "a place for each element");
    std::vector<Tensor> none;
    must_throw<InvalidArgument>([&] { world.all_reduce_coalesced(none); }, "at least one tensor");
  }
  world.all_reduce(good);
  require(good[0].item<int>() == world.size(), "in step");
  fmt::print("in step\n");
  return 0;
}

// Large operations on registered memory, which each rank has at other addresses and offsets.
int run_registered(Communicator& world) {
  const int rank = world.rank();
  const int size = world.size();
  const std::int64_t count = (std::int64_t{16} << 20) / 4 / size + 12;
  const Tensor memory = empty({count * (2 * size + 3)}, {.dtype = i32, .device = world.device()});
  world.register_memory(memory);
  const auto places = memory.narrow(0, 16 * rank, count * (2 * size + 2));
  const Tensor mine = places.narrow(0, 0, count);
  const Tensor other = places.narrow(0, count, count);
  const Tensor all = places.narrow(0, 2 * count, count * size);
  const auto is = [](const Tensor& tensor, int value) {
    return tensor.amin().item<int>() == value && tensor.amax().item<int>() == value;
  };
  for (int round = 0; round < 3; ++round) {
    const int root = round % size;
    mine.fill_(rank + round);
    all.fill_(-1);
    world.gather(rank == root ? all : Tensor(), mine, root);
    for (int p = 0; p < size; ++p) {
      const int expected = rank == root ? p + round : -1;
      require(is(all.narrow(0, p * count, count), expected), fmt::format("gather of {}", p));
      all.narrow(0, p * count, count).fill_(10 * p + rank);
    }
    world.scatter(other, rank == root ? all : Tensor(), root);
    require(is(other, 10 * rank + root), "scatter");
  }
  // All of it is one array, so that the messages are large.
  const Tensor input = places.narrow(0, 0, count * size);
  const Tensor output = places.narrow(0, count * size, count * size);
  input.fill_(rank + 1);
  world.all_reduce(output, input);
  require(is(output, size * (size + 1) / 2), "all_reduce");
  require(is(input, rank + 1), "input of all_reduce");
  world.send_recv(input, (rank + 1) % size, output, (rank + size - 1) % size);
  require(is(output, (rank + size - 1) % size + 1), "send_recv");
  // One rank's array is not registered.
  const Tensor apart = rank == 0 ? empty_like(output) : output;
  world.all_reduce(apart, input, ReduceOp::max);
  require(is(apart, size), "all_reduce to memory that is not registered");
  synchronize(world.device());
  world.deregister_memory(memory);
  fmt::print("in step\n");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  try {
    Communicator world = Communicator::world();
    if (what == "all") return run_all(world);
    if (what == "mismatch") return run_mismatch(world, argv[2]);
    if (what == "loss") return run_loss(world, argv[2]);
    if (what == "timeout") {
      if (argc > 3) world.set_timeout(std::chrono::milliseconds(std::stoi(argv[3])));
      return run_timeout(world, argv[2]);
    }
    if (what == "bad-input") return run_bad_input(world);
    if (what == "registered") return run_registered(world);
    fmt::print(stderr, "unknown command '{}'\n", what);
    return 2;
  } catch (const std::exception& error) {
    fmt::print("failed: {}\n", error.what());
    return 1;
  }
}
