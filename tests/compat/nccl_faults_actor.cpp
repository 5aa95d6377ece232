// One rank of the tests of faults, as a program of NCCL's: it asks ncclCommGetAsyncError and
// ncclGetLastError alone. Arguments: the fault, and a file for the id. Rank 1 has the fault. The
// last line of output is a result's number and text.

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include <gantry/core/env.hpp>
#include <gantry/device/device.hpp>

#include "tests/compat/nccl_functions.hpp"
#include "tests/support/eventually.hpp"

namespace {

constexpr std::size_t kSmall = 64;
constexpr std::size_t kLarge = 300'000;
constexpr std::size_t kHuge = 16'000'000;  // more than a message that leaves at once

ncclComm_t comm = nullptr;
int rank = 0;
int ranks = 0;
void* data = nullptr;

int number(const char* name) { return std::stoi(gantry::env::get(name).value()); }

// Prints a result, and ends this rank. The others learn of its end.
[[noreturn]] void finish(ncclResult_t result) {
  std::printf("%d %s\n", static_cast<int>(result),
              result == ncclSuccess ? "none" : ncclGetLastError(comm));
  std::fflush(stdout);
  // It stays until the test ends it, so its end is no fault.
  for (;;) pause();
}

// Goes on after a call; a call that fails ends the rank.
void made(ncclResult_t result) {
  if (result != ncclSuccess) finish(result);
}

ncclUniqueId known_id(const std::filesystem::path& file) {
  ncclUniqueId id{};
  if (rank == 0) {
    made(ncclGetUniqueId(&id));
    const std::filesystem::path part = file.string() + ".part";
    std::ofstream(part, std::ios::binary).write(id.internal, sizeof id.internal);
    std::filesystem::rename(part, file);
  } else {
    if (!gantry::testing::eventually([&] { return std::filesystem::exists(file); })) std::abort();
    std::ifstream(file, std::ios::binary).read(id.internal, sizeof id.internal);
  }
  return id;
}

void all_reduce(std::size_t count, ncclDataType_t type = ncclFloat32, ncclRedOp_t op = ncclSum) {
  made(ncclAllReduce(data, data, count, type, op, comm, nullptr));
}
void broadcast(int root) { made(ncclBcast(data, kSmall, ncclFloat32, root, comm, nullptr)); }

void act(const std::string& fault, bool is_odd) {
  if (fault == "count") return all_reduce(is_odd ? kSmall - 1 : kSmall);
  if (fault == "type") return all_reduce(kSmall, is_odd ? ncclBfloat16 : ncclFloat32);
  if (fault == "op") return all_reduce(kSmall, ncclFloat32, is_odd ? ncclMax : ncclSum);
  if (fault == "root") return broadcast(is_odd ? 1 : 0);
  if (fault == "order") {
    if (is_odd) broadcast(0);
    all_reduce(kSmall);
    if (!is_odd) broadcast(0);
    return;
  }
  if (fault == "kind") {
    if (is_odd) return broadcast(0);
    return all_reduce(kSmall);
  }
  if (fault == "missing") {
    if (!is_odd) all_reduce(kLarge);
    return;
  }
  if (fault == "exits") {
    if (is_odd) std::_Exit(0);
    return all_reduce(kLarge);
  }
  if (fault == "killed" || fault == "stopped") {
    if (is_odd) kill(getpid(), fault == "killed" ? SIGKILL : SIGSTOP);
    return all_reduce(kLarge);
  }
  if (fault == "send") {
    if (!is_odd) made(ncclSend(data, kHuge, ncclFloat32, 1, comm, nullptr));
    return;
  }
  if (fault == "recv") {
    if (!is_odd) made(ncclRecv(data, kLarge, ncclFloat32, 1, comm, nullptr));
    return;
  }
  if (fault == "message") {
    if (is_odd) return made(ncclRecv(data, kSmall, ncclFloat32, 0, comm, nullptr));
    return made(ncclSend(data, kSmall + 1, ncclFloat32, 1, comm, nullptr));
  }
  if (fault == "aborts") {
    if (is_odd) return made(ncclCommRevoke(comm, 0));
    return all_reduce(kLarge);
  }
  std::abort();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const std::string fault = argv[1];
  rank = number("RANK");
  ranks = number("WORLD_SIZE");
  const bool is_odd = rank == 1;
  gantry::set_device(gantry::Device::cuda(rank));
  const ncclUniqueId id = known_id(argv[2]);
  const int size = fault == "sizes" && is_odd ? ranks + 1 : ranks;
  const int number = fault == "twice" && is_odd ? 0 : rank;
  if (fault == "absent" && is_odd) finish(ncclSuccess);
  made(ncclCommInitRank(&comm, size, id, number));
  made(ncclMemAlloc(&data, kHuge * sizeof(float)));
  all_reduce(kSmall);
  act(fault, is_odd);
  ncclResult_t state = ncclSuccess;
  const bool has_failed = gantry::testing::eventually([&] {
    made(ncclCommGetAsyncError(comm, &state));
    return state != ncclSuccess;
  });
  (void)has_failed;
  finish(state);
}
