// The documented names of collectives and errors, each used as a program uses it.
#include <gtest/gtest.h>

#include <chrono>
#include <initializer_list>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include <gantry/gantry.hpp>

#include "tests/support/device_fixture.hpp"

namespace gantry {
namespace {

class DocumentedNamesOfCollectives : public testing::DeviceTest {};

TEST_F(DocumentedNamesOfCollectives, OneProcess) {
  std::vector<Device> devices;
  for (int i = 0; i < device_count() && i < 2; ++i) devices.push_back(Device::cuda(i));
  const auto count = static_cast<std::int64_t>(devices.size());
  const Device first = devices[0];
  const Tensor source = arange(count * 4, {.dtype = f32, .device = first});

  std::vector<Tensor> copies = comm::broadcast(source, devices);
  comm::broadcast(source, std::span<Tensor>(copies));
  const std::vector<std::vector<Tensor>> lists =
      comm::broadcast_coalesced({source, source}, devices, std::size_t{10} << 20);
  EXPECT_EQ(lists.size(), devices.size());
  const Tensor sum = comm::reduce_add(copies, first);
  EXPECT_EQ(sum.numel(), source.numel());
  EXPECT_EQ(comm::reduce_add_coalesced(lists, first, std::size_t{1} << 20).size(), 2U);
  std::vector<Tensor> parts = comm::scatter(source, devices);
  parts = comm::scatter(source, devices, {.chunk_sizes = {}, .dim = 0, .streams = {}});
  EXPECT_TRUE(comm::gather(parts, {.dim = 0, .destination = first}).equal(source));
  EXPECT_EQ(comm::gather(parts, {.destination = Device::cpu()}).device(), Device::cpu());

  comm::all_reduce(std::span<Tensor>(copies), ReduceOp::sum);
  std::vector<Tensor> gathered;
  for (const Device device : devices) gathered.push_back(zeros({count * 4}, {.device = device}));
  comm::all_gather(gathered, parts);
  comm::reduce_scatter(parts, gathered, ReduceOp::sum);
  std::vector<Tensor> exchanged;
  for (const Device device : devices) exchanged.push_back(zeros({count * 4}, {.device = device}));
  comm::all_to_all(exchanged, gathered);
  for (const Device device : devices) synchronize(device);
}

TEST_F(DocumentedNamesOfCollectives, ManyProcesses) {
  const Communicator world = Communicator::world();  // a job of one process
  EXPECT_EQ(world.rank(), 0);
  EXPECT_EQ(world.size(), 1);
  EXPECT_EQ(world.local_rank(), 0);
  EXPECT_EQ(world.local_size(), 1);
  const Device device = world.device();
  Tensor a = ones({4}, {.dtype = f32, .device = device});
  Tensor b = zeros({4}, {.dtype = f32, .device = device});
  Work work = world.all_reduce(a, ReduceOp::sum);
  work = world.all_reduce(a);
  work = world.all_reduce(a, {.reproducible = false});
  work = world.broadcast(a, 0);
  work = world.reduce(a);
  work = world.all_gather(b, a);
  work = world.reduce_scatter(b, a);
  work = world.gather(b, a);
  work = world.scatter(b, a);
  work = world.all_to_all(b, a);
  work = world.barrier();
  work = world.send_recv(a, 0, b, 0);
  {
    auto group = world.group();
    world.send(a, 0);
    world.recv(b, 0);
  }
  std::vector<Tensor> both{a, b};
  work = world.all_reduce_coalesced(std::span<Tensor>(both));
  const std::vector<Tensor> fixed{a, b};
  work = world.all_reduce_coalesced(std::span<const Tensor>(fixed));
  work.wait();
  static_cast<void>(work.query());
  work.synchronize();
  const Communicator part = world.split(0, 0);
  EXPECT_EQ(part.size(), 1);

  const Window window = world.window(a);
  EXPECT_EQ(window.peer(0).data(), a.data());
  EXPECT_EQ(window.peer_pointers().size(), 1U);
  EXPECT_TRUE(window.signal_pad().defined());
  window.barrier(Stream::current(device));

  static_assert(std::is_same_v<decltype(world.shrink({1})), Communicator>);
  static_assert(std::is_same_v<decltype(world.grow(2)), Communicator>);
  static_assert(noexcept(world.abort()));
  static_assert(std::is_constructible_v<Communicator, ompi_communicator_t*>);
  static_assert(!std::is_convertible_v<ompi_communicator_t*, Communicator>);  // explicit
  static_assert(!std::is_constructible_v<Communicator, void*>);
  static_assert(
      std::is_same_v<decltype(Communicator::from_nccl(ncclComm_t{}, device)), Communicator>);
  if (platform() == Platform::simulated) {
    try {
      static_cast<void>(Communicator::from_nccl(nullptr, device));
      ADD_FAILURE() << "simulated devices have no NCCL";
    } catch (const NotSupported& error) {
      EXPECT_NE(std::string(error.what()).find("real GPUs, but got simulated devices"),
                std::string::npos);
    }
  }
  static_assert(std::is_base_of_v<Error, CollectiveMismatch>);
}

template <class... Errors>
constexpr bool are_errors = (std::is_base_of_v<Error, Errors> && ...);
static_assert(are_errors<CudaError, NcclError, CublasError, OutOfMemoryError, DeviceMismatchError,
                         ShapeError, DTypeError, IndexError, InvalidArgument, CaptureError,
                         NotSupported, PeerLostError, TimeoutError>);
static_assert(std::is_base_of_v<std::runtime_error, Error>);

TEST_F(DocumentedNamesOfCollectives, Errors) {
  try {
    static_cast<void>(zeros({2}).view({3}));
    ADD_FAILURE();
  } catch (const Error& error) {
    static_cast<void>(error.device());
    static_cast<void>(error.where());
  }
}

}  // namespace
}  // namespace gantry
