// One rank of a program that makes groups from communicators of its own, by name of what it does.
#include <gantry/collectives/mpi.hpp>

#include <fmt/format.h>
#include <mpi.h>

#include <cstdio>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>

#include <gantry/core/error.hpp>
#include <gantry/device/device.hpp>
#include <gantry/tensor/factories.hpp>

using namespace gantry;

namespace {

int made = 0;   // communicators that gantry duplicated
int freed = 0;  // and freed, with the ones of this program

}  // namespace

// In place of MPI's functions, for gantry's module too.
extern "C" {
int MPI_Comm_idup(MPI_Comm comm, MPI_Comm* copy, MPI_Request* request) {
  ++made;
  return PMPI_Comm_idup(comm, copy, request);
}
int MPI_Comm_free(MPI_Comm* comm) {
  ++freed;
  return PMPI_Comm_free(comm);
}
}

namespace {

void require(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

int rank_in(MPI_Comm comm) {
  int rank = -1;
  MPI_Comm_rank(comm, &rank);
  return rank;
}

// The group has the ranks of `comm`, and operations that work.
void check_group(const Communicator& group, MPI_Comm comm) {
  int size = 0;
  MPI_Comm_size(comm, &size);
  require(group.rank() == rank_in(comm) && group.size() == size, "other ranks than those of MPI");
  const Tensor numbers = full({1000}, group.rank() + 1, {.device = group.device()});
  group.all_reduce(numbers).synchronize();
  require(numbers.amin().item<int>() == size * (size + 1) / 2, "a wrong sum");
  require(numbers.amax().item<int>() == size * (size + 1) / 2, "a wrong sum");
}

MPI_Comm halves_of_world() {
  MPI_Comm half = MPI_COMM_NULL;
  const int rank = rank_in(MPI_COMM_WORLD);
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &half);
  return half;
}

// Devices are chosen by the rank in the job, so no two ranks share one.
void parts() {
  MPI_Comm half = halves_of_world();
  {
    const Communicator group(half);
    check_group(group, half);
    require(group.device().index == rank_in(MPI_COMM_WORLD), "another rank's device");
    const Communicator again(half);
    MPI_Comm_free(&half);  // gantry has its own
    require(again.all_gather_bytes("x").size() == static_cast<std::size_t>(again.size()), "bytes");
    const Communicator alone = group.split(group.rank());
    require(alone.size() == 1, "a group of one rank");
  }
  const Communicator self(MPI_COMM_SELF);
  check_group(self, MPI_COMM_SELF);
  check_group(Communicator::world(), MPI_COMM_WORLD);
}

void other_devices() {
  const int count = device_count();
  const Device other = Device::cuda(count - 1 - rank_in(MPI_COMM_WORLD));
  const Communicator group(MPI_COMM_WORLD, other);
  require(group.device() == other && current_device() == other, "not the device that was given");
  check_group(group, MPI_COMM_WORLD);
}

// Each group frees its communicator with the last group made from it.
void many() {
  for (int i = 0; i < 3; ++i) {
    const Communicator group(MPI_COMM_WORLD);
    require(made == i + 1 && freed == i, "one communicator for each group");
  }
  require(freed == 3, "every group frees its own");
  {
    Communicator part;
    {
      const Communicator group(MPI_COMM_WORLD);
      part = group.split(group.rank() % 2);
    }
    require(part.all_gather_bytes("x").size() == 2, "the part goes on");
  }
  require(made == freed, "every group frees its own");
}

// The launcher's variables are gone; MPI and the machines tell what is needed.
void unnamed() {
  const Communicator group(MPI_COMM_WORLD);
  require(group.device().index == group.rank() && group.local_rank() == group.rank(), "device");
  check_group(group, MPI_COMM_WORLD);
}

// Every rank has a machine of its own.
void machines() {
  const Communicator group(MPI_COMM_WORLD);
  require(group.local_size() == 1, "one machine");
  check_group(group, MPI_COMM_WORLD);
  MPI_Comm half = halves_of_world();
  const Communicator part(half);
  MPI_Comm_free(&half);
  require(part.all_gather_bytes("x").size() == 2, "bytes");
  const Tensor numbers = full({1000}, 1, {.device = part.device()});
  part.all_reduce(numbers).synchronize();
  require(numbers.sum().item<int>() == 2000, "a wrong sum");
}

// Prints the error of `make`, which must throw InvalidArgument.
void refuse(const std::function<Communicator()>& make) {
  try {
    (void)make();
  } catch (const InvalidArgument& error) {
    if (rank_in(MPI_COMM_WORLD) == 0) fmt::print("refused: {}\n", error.what());
    return;
  }
  throw std::runtime_error("nothing was thrown");
}

void bad_input() {
  refuse([] { return Communicator(MPI_COMM_NULL); });
  refuse([] { return Communicator(MPI_COMM_WORLD, Device::cpu()); });
  MPI_Comm half = halves_of_world();
  MPI_Comm both = MPI_COMM_NULL;
  MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, rank_in(MPI_COMM_WORLD) % 2 == 0 ? 3 : 2, 1, &both);
  refuse([&] { return Communicator(both); });
  check_group(Communicator(half), half);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "early") {
    try {
      const Communicator group(MPI_COMM_WORLD);
    } catch (const InvalidArgument& error) {
      fmt::print("refused: {}\n", error.what());
    }
    return 0;
  }
  MPI_Init(nullptr, nullptr);
  const std::map<std::string, void (*)()> actions{
      {"parts", parts},     {"devices", other_devices}, {"many", many},
      {"unnamed", unnamed}, {"machines", machines},     {"bad-input", bad_input}};
  try {
    actions.at(what)();
    fmt::print("did {}\n", what);
  } catch (const std::exception& error) {
    fmt::print("failed: {}\n", error.what());
    std::fflush(stdout);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  std::fflush(stdout);
  MPI_Finalize();
  return 0;
}
