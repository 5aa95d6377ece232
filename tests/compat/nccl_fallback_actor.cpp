// One rank of a program of NCCL's whose communicator may be handed over. Argument: a file for the
// id. It prints the first element of a sum over the ranks, whose inputs are 1.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <gantry/core/env.hpp>
#include <gantry/gantry.hpp>

#include "tests/compat/nccl_functions.hpp"
#include "tests/support/eventually.hpp"

namespace {

void check(ncclResult_t result) {
  if (result == ncclSuccess) return;
  std::printf("%s\n", ncclGetLastError(nullptr));
  std::exit(3);
}

ncclUniqueId known_id(int rank, const std::filesystem::path& file) {
  ncclUniqueId id{};
  if (rank == 0) {
    check(ncclGetUniqueId(&id));
    const std::filesystem::path part = file.string() + ".part";
    std::ofstream(part, std::ios::binary).write(id.internal, sizeof id.internal);
    std::filesystem::rename(part, file);
  } else {
    if (!gantry::testing::eventually([&] { return std::filesystem::exists(file); })) std::exit(4);
    std::ifstream(file, std::ios::binary).read(id.internal, sizeof id.internal);
  }
  return id;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const int rank = std::stoi(gantry::env::get("RANK").value());
  const int size = std::stoi(gantry::env::get("WORLD_SIZE").value());
  gantry::set_device(gantry::Device::cuda(rank));
  ncclComm_t comm = nullptr;
  check(ncclCommInitRank(&comm, size, known_id(rank, argv[1]), rank));
  const gantry::Tensor data = gantry::ones({100}, {.device = gantry::Device::cuda(rank)});
  gantry::synchronize(data.device());
  check(ncclAllReduce(data.data(), data.data(), 100, ncclFloat32, ncclSum, comm, nullptr));
  std::printf("%g\n", static_cast<double>(data.to_vector<float>().front()));
  check(ncclCommDestroy(comm));
}
