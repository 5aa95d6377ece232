// One rank of a job on pretended machines. Prints one line per event.
//
//   network_actor results SEED  runs drawn operations, and prints a digest of all results
//   network_actor loop          runs drawn operations until one fails, and ends with 3
//   network_actor groups        makes groups of groups, and checks their sums
//   network_actor shrink        rank 1 dies; the others go on without it
#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include <gantry/collectives/communicator.hpp>
#include <gantry/core/error.hpp>
#include <gantry/tensor/factories.hpp>

namespace {

using namespace gantry;

void say(int rank, const std::string& text) {
  fmt::print("rank {}: {}\n", rank, text);
  std::fflush(stdout);
}

std::int64_t now_ms() {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(since).count();
}

// Drawn operations; equal seeds give equal ones on all ranks.
class Operations {
 public:
  Operations(Communicator& world, std::uint64_t seed) : world_(world), random_(seed) {}

  std::uint64_t digest() const { return digest_; }

  // Runs one. `reads`: a host function of this rank reads the result.
  void run(bool reads) {
    const std::int64_t ranks = world_.size();
    const std::int64_t count = drawn({1, 1'000, 70'001, 400'000});
    const DType dtype = kDTypes[below(std::size(kDTypes))];
    const int root = static_cast<int>(below(static_cast<std::size_t>(ranks)));
    const std::size_t kind = below(9);
    const bool is_whole = kind == 3 || kind == 5 || kind == 6;
    const Tensor in = filled(is_whole ? count * ranks : count, dtype);
    Tensor out = zeros({kind == 4 || kind == 6 || kind == 7 ? count * ranks : count},
                       {.dtype = dtype, .device = world_.device()});
    Work work;
    switch (kind) {
      case 0:
        work = world_.all_reduce(in);
        out = in;
        break;
      case 1:
        work = world_.reduce(in, root);
        out = in;
        break;
      case 2:
        work = world_.broadcast(in, root);
        out = in;
        break;
      case 3:
        work = world_.reduce_scatter(out, in);
        break;
      case 4:
        work = world_.all_gather(out, in);
        break;
      case 5:
        work = world_.scatter(out, in, root);
        break;
      case 6:
        work = world_.all_to_all(out, in);
        break;
      case 7:
        work = world_.gather(out, in, root);
        if (world_.rank() != root) out = zeros({1}, {.device = world_.device()});
        break;
      default: {
        std::vector<std::int64_t> sends, receives;
        for (int peer = 0; peer < ranks; ++peer) {
          sends.push_back(count / 100 + world_.rank() + 3 * peer);
          receives.push_back(count / 100 + peer + 3 * world_.rank());
        }
        out = zeros({sum_of(receives)}, {.dtype = dtype, .device = world_.device()});
        work = world_.all_to_all(out, filled(sum_of(sends), dtype), receives, sends);
      }
    }
    // The root's partial results elsewhere are no results.
    if (kind == 1 && world_.rank() != root) out = zeros({1}, {.device = world_.device()});
    if (!reads) return;
    if (below(2) == 0) work.synchronize();
    for (const float value : out.to(DType::f32).view({-1}).to_vector<float>()) {
      std::uint32_t bits = 0;
      std::memcpy(&bits, &value, sizeof bits);
      digest_ = (digest_ ^ bits) * 0x100000001b3U;
    }
  }

 private:
  static constexpr DType kDTypes[] = {DType::f32, DType::bf16, DType::i32, DType::f64, DType::u8};

  std::size_t below(std::size_t n) {
    return std::uniform_int_distribution<std::size_t>(0, n - 1)(random_);
  }
  std::int64_t drawn(std::vector<std::int64_t> values) { return values[below(values.size())]; }
  static std::int64_t sum_of(const std::vector<std::int64_t>& counts) {
    std::int64_t sum = 0;
    for (const std::int64_t count : counts) sum += count;
    return sum;
  }
  // Differs between ranks and operations. Sums of these depend on their order.
  Tensor filled(std::int64_t count, DType dtype) {
    const double first = 0.37 * world_.rank() + static_cast<double>(below(50));
    const Tensor ramp =
        arange(static_cast<double>(count), {.dtype = DType::f64, .device = world_.device()});
    return ramp.mul(0.123 + world_.rank()).add(first).remainder(97.0).to(dtype);
  }

  Communicator& world_;
  std::mt19937_64 random_;
  std::uint64_t digest_ = 0xcbf29ce484222325U;
};

unsigned long long nccl_bytes() {
  const char* const path = std::getenv("GANTRY_NCCL_LIBRARY");
  void* const library = path != nullptr ? ::dlopen(path, RTLD_NOW | RTLD_NOLOAD) : nullptr;
  void* const count = library != nullptr ? ::dlsym(library, "simulated_nccl_bytes") : nullptr;
  return count != nullptr ? reinterpret_cast<unsigned long long (*)()>(count)() : 0;
}

void results(Communicator& world, std::uint64_t seed) {
  Operations operations(world, seed);
  for (int i = 0; i < 60; ++i) operations.run(/*reads=*/true);
  say(world.rank(), fmt::format("digest {:016x}", operations.digest()));
  say(world.rank(), fmt::format("NCCL sent {} bytes", nccl_bytes()));
}

[[noreturn]] void loop(Communicator& world) {
  Operations operations(world, 7);
  for (int round = 0;; ++round) {
    operations.run(/*reads=*/round % 3 == 0);
    say(world.rank(), fmt::format("round {}.", round));
  }
}

void require(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error("wrong: " + what);
}

void check_sum(Communicator& group, const std::string& transport) {
  require(group.transport() == transport,
          fmt::format("{} goes by {}, not {}", group.name(), group.transport(), transport));
  for (const std::int64_t count : {10, 100'000}) {
    const Tensor numbers =
        full({count}, group.rank() + 1, {.dtype = DType::i32, .device = group.device()});
    group.all_reduce(numbers).synchronize();
    const int sum = group.size() * (group.size() + 1) / 2;
    require(numbers.amin().item<int>() == sum && numbers.amax().item<int>() == sum, "a sum");
  }
}

// Of four ranks on two machines.
void groups(Communicator& world) {
  check_sum(world, "nccl");
  Communicator across = world.split(world.rank() % 2);
  check_sum(across, "nccl");
  Communicator inside = world.split(world.rank() / 2);
  check_sum(inside, "p2p");
  Communicator uneven = world.split(world.rank() < 3 ? 0 : 1);
  check_sum(uneven, world.rank() < 3 ? "nccl" : "none");
  Communicator again = uneven.split(0);
  check_sum(again, world.rank() < 3 ? "nccl" : "none");
  check_sum(world, "nccl");
  world.barrier();
  const Tensor message =
      full({50'000}, world.rank(), {.dtype = DType::i32, .device = world.device()});
  const Tensor received = message.clone();
  const int peer = (world.rank() + 2) % 4;
  world.send_recv(message, peer, received, peer).synchronize();
  require(received.amin().item<int>() == peer && received.amax().item<int>() == peer, "a message");
}

void shrink(Communicator& world) {
  const Tensor numbers = ones({100'000}, {.device = world.device()});
  try {
    check_sum(world, "nccl");  // rank 1 may die before the others have this sum
    if (world.rank() == 1) ::raise(SIGKILL);
    world.all_reduce(numbers).synchronize();
    require(false, "a sum without rank 1");
  } catch (const PeerLostError& error) {
    require(error.rank() == 1, error.what());
  }
  Communicator rest = world.shrink({1});
  check_sum(rest, "nccl");
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argv[1];
  int rank = -1;
  try {
    Communicator world = Communicator::world();
    rank = world.rank();
    say(rank, "transport " + world.transport());
    if (mode == "results") results(world, argc > 2 ? std::stoull(argv[2]) : 0);
    if (mode == "loop") loop(world);
    if (mode == "groups") groups(world);
    if (mode == "shrink") shrink(world);
    say(rank, "ok");
    return 0;
  } catch (const PeerLostError& error) {
    say(rank, fmt::format("at {} PeerLostError of [{}]: {}", now_ms(), error.rank(), error.what()));
  } catch (const TimeoutError& error) {
    say(rank, fmt::format("at {} TimeoutError of [{}]: {}", now_ms(), fmt::join(error.ranks(), ","),
                          error.what()));
  } catch (const std::exception& error) {
    say(rank, fmt::format("at {} failed: {}", now_ms(), error.what()));
  }
  // A rank that lost a peer need not deregister.
  std::_Exit(3);
}
