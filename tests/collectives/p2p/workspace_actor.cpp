// One of the ranks of one or two machines that make and leave groups, two on each. The first
// argument says how, the second names the file in which they count the imports that each has open.

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>

#include <gantry/collectives/communicator.hpp>
#include <gantry/tensor/factories.hpp>

#include "tests/support/fault_driver.hpp"

using namespace gantry;

namespace {

// Zero at first.
struct Counts {
  std::atomic<int> open[4];        // imports, by rank
  std::atomic<int> freed[4];       // exported memory, by rank
  std::atomic<int> freed_open[4];  // of that, what the other rank of the machine had open
};

Counts& map_counts(const char* path) {
  const int descriptor = open(path, O_RDWR | O_CLOEXEC);
  void* base = mmap(nullptr, sizeof(Counts), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (base == MAP_FAILED) throw std::runtime_error(std::string("cannot map ") + path);
  return *static_cast<Counts*>(base);
}

// Of two ranks, each knows what the other has open: the world's memory, and what comes after it.
class CountingDriver : public gantry::testing::FaultDriver {
 public:
  CountingDriver(Counts& counts, int rank) : counts_(counts), rank_(rank) {}

  // From now on the other rank has time for mistakes before an import is closed.
  void close_slowly() { close_time_ = std::chrono::milliseconds(50); }

  NativeMemoryHandle export_memory(void* data) override {
    const std::lock_guard lock(mutex_);
    exported_.insert(data);
    return FaultDriver::export_memory(data);
  }
  void* open_memory(int device, const NativeMemoryHandle& handle) override {
    void* data = FaultDriver::open_memory(device, handle);
    ++counts_.open[rank_];
    return data;
  }
  void close_memory(void* data) override {
    std::this_thread::sleep_for(close_time_.load());
    FaultDriver::close_memory(data);
    --counts_.open[rank_];
  }
  void deallocate(int device, void* data) override {
    bool is_exported = false;
    {
      const std::lock_guard lock(mutex_);
      is_exported = exported_.erase(data) > 0;
    }
    if (is_exported) {
      ++counts_.freed[rank_];
      if (counts_.open[rank_ ^ 1] > 1) ++counts_.freed_open[rank_];
    }
    FaultDriver::deallocate(device, data);
  }

 private:
  Counts& counts_;
  const int rank_;
  std::atomic<std::chrono::milliseconds> close_time_{};
  std::mutex mutex_;
  std::set<void*> exported_;
};

void require_equal(int value, int expected, const char* what) {
  if (value == expected) return;
  throw std::runtime_error(fmt::format("{}: {} rather than {}", what, value, expected));
}

// Rank 1 keeps what it got of its last call.
void split_often(Communicator& world, Counts& counts) {
  const int mine = world.rank();
  std::optional<Work> kept;
  for (int round = 1; round <= 20; ++round) {
    {
      Communicator group = world.split(0, 0);
      Tensor tensor = full({1000}, mine + 1, {.dtype = f32, .device = world.device()});
      Work work = group.all_reduce(tensor);
      if (tensor[0].item<float>() != 3) throw std::runtime_error("a wrong sum");
      if (mine == 1) kept = std::move(work);
    }
    require_equal(counts.freed_open[mine], 0, "freed while the other rank had it open");
    require_equal(counts.freed[mine], round, "freed");
    require_equal(counts.open[mine], 1, "imports, one of the world");
    if (kept && !kept->query()) throw std::runtime_error("the work is not done");
  }
}

// Of each machine's ranks, the second closes slowly.
void split_in_layers(Communicator& world, Counts& counts, CountingDriver& driver) {
  const int mine = world.rank();
  if (mine % 2 == 1) driver.close_slowly();
  for (int round = 1; round <= 3; ++round) {
    {
      Communicator group = world.split(0, 0);
      Tensor tensor = full({100'000}, 1, {.dtype = f32, .device = world.device()});
      group.all_reduce(tensor).synchronize();
      if (tensor[0].item<float>() != 4) throw std::runtime_error("a wrong sum");
    }
    require_equal(counts.freed_open[mine], 0, "freed while the other rank had it open");
    require_equal(counts.freed[mine], round, "freed");
    require_equal(counts.open[mine], 1, "imports, one of the world");
  }
}

// Rank 1 keeps a broken group for longer than rank 0.
void keep_broken(Communicator& world, Counts& counts) {
  const int mine = world.rank();
  std::optional<Communicator> group = world.split(0, 0);
  world.host_barrier();
  if (mine == 0) {
    group->abort();
    group.reset();
    require_equal(counts.freed[0], 0, "freed while the other rank has it open");
  }
  world.host_barrier();
  group.reset();
  require_equal(counts.open[mine], 1, "imports, one of the world");
  world.host_barrier();
  { const Communicator next = world.split(0, 0); }
  // Rank 0's first memory was open until now, and went to the next group.
  require_equal(counts.freed[mine], mine == 0 ? 1 : 2, "freed in the end");
  require_equal(counts.freed_open[mine], 0, "freed while the other rank had it open");
}

// Rank 1 is gone before rank 0 leaves the group.
void leave_dead(Communicator& world, Counts& counts) {
  std::optional<Communicator> group = world.split(0, 0);
  world.host_barrier();
  if (world.rank() == 1) _exit(0);
  try {
    for (;;) group->host_barrier();
  } catch (const PeerLostError&) {
  }
  group.reset();
  require_equal(counts.freed[0], 1, "freed");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const std::string what = argv[1];
  try {
    Counts& counts = map_counts(argv[2]);
    // Not destroyed: the world works with it at the exit.
    static auto& driver = *new CountingDriver(counts, std::stoi(std::getenv("RANK")));
    const bool in_layers = what == "layers";
    if (in_layers) {
      const int machine = std::stoi(std::getenv("RANK")) / 2;
      setenv("GANTRY_BOOT_ID", fmt::format("host-{}", machine).c_str(), 1);
    }
    Communicator world = Communicator::world();
    if (world.transport() != (in_layers ? "host" : "p2p")) {
      throw std::runtime_error("over " + world.transport());
    }
    if (in_layers) split_in_layers(world, counts, driver);
    if (what == "work") split_often(world, counts);
    if (what == "broken") keep_broken(world, counts);
    if (what == "dead") leave_dead(world, counts);
    fmt::print("ok\n");
    return 0;
  } catch (const std::exception& error) {
    fmt::print("failed: {}\n", error.what());
    std::fflush(stdout);
    _exit(1);
  }
}
