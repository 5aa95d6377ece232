// One rank of the tests of memory that processes have mapped. The exit code is 0 on success, and
// the last line of output is the result.
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gantry/collectives/communicator.hpp>
#include <gantry/ipc/ipc.hpp>
#include <gantry/memory/caching_allocator.hpp>
#include <gantry/memory/mem_pool.hpp>
#include <gantry/streams/graph.hpp>
#include <gantry/tensor/factories.hpp>
#include <gantry/tensor/reductions.hpp>
#include <gantry/tensor/tensor.hpp>

#include "tests/collectives/communicator/captured_operations.hpp"
#include "tests/support/closed_memory.hpp"

using namespace gantry;

namespace {

void require(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error("check failed: " + what);
}

// A random program on memory that is allocated, freed and given back meanwhile. All ranks make the
// same calls; each has its arrays elsewhere.
class MemoryProgram {
 public:
  MemoryProgram(Communicator& world, unsigned seed)
      : world_(world),
        half_(world.split(world.rank() % 2, world.rank())),
        pool_(std::in_place, world.device()),
        shared_(seed),
        own_(seed + 1000u * static_cast<unsigned>(world.rank()) + 1u) {}

  void step() {
    ++steps_;
    if (own_() % 4 == 0 && !held_.empty()) held_.erase(held_.begin());
    if (own_() % 16 == 0) memory::empty_cache();
    switch (draw(16)) {
      case 0:
        return capture();
      case 1:
        return release_pool();
      case 2:
      case 3:
        return replay();
      case 4:
      case 5:
        return send_around();
      default:
        return collective(draw(3) == 0 ? half_ : world_);
    }
  }

  // Bytes of the others' memory in the mirrors of this rank.
  [[nodiscard]] std::size_t mirrored() const {
    return memory::ipc_stats(world_.device()).mapped_bytes;
  }
  // Gives all memory back.
  void free_all() {
    captured_.clear();
    pool_.reset();
    held_.clear();
    synchronize(world_.device());
    memory::empty_cache();
  }

 private:
  // An all_reduce that is replayed, on memory whose physical memory comes and goes.
  struct Captured {
    Graph graph;
    Tensor array;
    int size = 1;
    int rank = 0;
  };

  int draw(int below) { return static_cast<int>(shared_() % static_cast<unsigned>(below)); }

  // An array at this rank's own place in a block, which stays for a few steps.
  Tensor array(std::int64_t count) {
    const auto offset = static_cast<std::int64_t>(own_() % 3) * 16;
    const Tensor block = empty({count + offset}, {.dtype = i32, .device = world_.device()});
    held_.push_back(block);
    if (held_.size() > 6) held_.erase(held_.begin());
    return block.narrow(0, offset, count);
  }

  void collective(Communicator& group) {
    const int size = group.size();
    const int rank = group.rank();
    const int root = draw(1 << 16) % size;
    const std::int64_t count = (draw(3) + 2) * (std::int64_t{1} << 18) + draw(5000) + 1;
    const int value = draw(1000);
    const Tensor mine = array(count);
    const Tensor large = array(count * size);
    const int ranks = size * (size - 1) / 2;
    mine.fill_(value + rank);
    switch (draw(7)) {
      case 0:
        large.fill_(value + rank);
        group.all_reduce(large);
        return expect(large, size * value + ranks, "all_reduce");
      case 1:
        large.fill_(rank == root ? value : -1);
        group.broadcast(large, root);
        return expect(large, value, "broadcast");
      case 2:
        group.all_gather(large, mine);
        return expect_parts(large, count, value, "all_gather");
      case 3:
        group.gather(rank == root ? large : Tensor(), mine, root);
        if (rank == root) expect_parts(large, count, value, "gather");
        return;
      case 4:
        large.fill_(rank);
        group.reduce_scatter(mine, large);
        return expect(mine, ranks, "reduce_scatter");
      case 5: {
        for (int p = 0; p < size; ++p) large.narrow(0, p * count, count).fill_(value + p);
        group.scatter(mine, rank == root ? large : Tensor(), root);
        return expect(mine, value + rank, "scatter");
      }
      default: {
        const Tensor other = array(count * size);
        large.fill_(value + rank);
        group.all_to_all(other, large);
        return expect_parts(other, count, value, "all_to_all");
      }
    }
  }

  void send_around() {
    const int size = world_.size();
    const int value = draw(1000);
    const int from = (world_.rank() + size - 1) % size;
    const Tensor sent = array((std::int64_t{4} << 20) + draw(5000));
    const Tensor received = array(sent.numel());
    sent.fill_(value + world_.rank());
    world_.send_recv(sent, (world_.rank() + 1) % size, received, from);
    expect(received, value + from, "send_recv");
  }

  void capture() {
    if (captured_.size() == 3) captured_.pop_front();
    Communicator& group = draw(3) == 0 ? half_ : world_;
    Captured& made = captured_.emplace_back();
    made.size = group.size();
    made.rank = group.rank();
    const memory::MemPoolGuard guard(*pool_);
    const std::int64_t count = (std::int64_t{1} << 19) + draw(5000);
    made.array = empty({count}, {.dtype = i32, .device = world_.device()});
    GraphCapture capture(made.graph);
    group.all_reduce(made.array);
    capture.end();
  }

  void replay() {
    if (captured_.empty()) return;
    Captured& one = captured_[static_cast<std::size_t>(draw(1 << 16)) % captured_.size()];
    const int value = draw(1000);
    one.array.fill_(value + one.rank);
    one.graph.replay();
    expect(one.array, one.size * value + one.size * (one.size - 1) / 2, "replay");
  }

  void release_pool() {
    if (own_() % 2 == 0) return;
    synchronize(world_.device());
    pool_->release_physical();
    // Takes the chunks that the pool had.
    for (int i = 0; i < 2; ++i) array(std::int64_t{3} << 20).fill_(7);
    pool_->restore_physical();
  }

  void expect(const Tensor& tensor, int value, const char* what) const {
    const int least = tensor.amin().item<int>();
    const int most = tensor.amax().item<int>();
    if (least == value && most == value) return;
    throw std::runtime_error(
        fmt::format("check failed: {} of step {}: expected {}, but got {} to {}", what, steps_,
                    value, least, most));
  }
  void expect_parts(const Tensor& tensor, std::int64_t count, int value, const char* what) const {
    for (std::int64_t p = 0; p * count < tensor.numel(); ++p) {
      expect(tensor.narrow(0, p * count, count), value + static_cast<int>(p), what);
    }
  }

  Communicator& world_;
  Communicator half_;
  std::optional<memory::MemPool> pool_;
  std::mt19937 shared_;  // the same on all ranks
  std::mt19937 own_;
  std::vector<Tensor> held_;
  std::deque<Captured> captured_;
  int steps_ = 0;
};

// Rank `killed` ends itself in the middle; −1: none does.
int run_program(Communicator& world, unsigned seed, int steps, int killed) {
  MemoryProgram program(world, seed);
  std::size_t most = 0;
  for (int step = 0; step < steps; ++step) {
    if (step == steps / 2 && world.rank() == killed) ::kill(getpid(), SIGKILL);
    program.step();
    most = std::max(most, program.mirrored());
  }
  // Nobody keeps what the others gave back.
  program.free_all();
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (program.mirrored() != 0 && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::yield();
  }
  require(program.mirrored() == 0, fmt::format("mapped {} bytes", program.mirrored()));
  fmt::print("in step, mirrored {}\n", most);
  return 0;
}

// A graph on memory that is released and restored between replays: other chunks, one address.
int run_graph(Communicator& world) {
  memory::MemPool pool(world.device());
  std::optional<testing::CapturedOperations> operations;
  Tensor sent;
  Tensor received;
  {
    const memory::MemPoolGuard guard(pool);
    operations.emplace(world, (std::int64_t{1} << 20) + 12);
    sent = empty({std::int64_t{5} << 20}, {.dtype = i32, .device = world.device()});
    received = empty_like(sent);
  }
  const int size = world.size();
  const int from = (world.rank() + size - 1) % size;
  Graph graph;
  {
    GraphCapture capture(graph);
    operations->run();
    world.send_recv(sent, (world.rank() + 1) % size, received, from);
    capture.end();
  }
  world.host_barrier();  // no rank synchronizes while another one captures
  require(memory::ipc_stats(world.device()).mapped_bytes != 0, "nothing is mapped");
  for (int round = 0; round < 4; ++round) {
    operations->set(round);
    sent.fill_(world.rank() + 10 * round);
    graph.replay();
    operations->check(round);
    require(received.amin().item<int>() == from + 10 * round, "send_recv");
    require(received.amax().item<int>() == from + 10 * round, "send_recv");
    synchronize(world.device());
    world.host_barrier();
    if (round % 2 == 1) continue;
    pool.release_physical();
    // Takes the chunks of the pool.
    const Tensor other = zeros({std::int64_t{30} << 20}, {.dtype = i32, .device = world.device()});
    pool.restore_physical();
    require(other.amax().item<int>() == 0, "other memory");
    world.host_barrier();
  }
  fmt::print("in step\n");
  return 0;
}

// A pool over another allocator, whose memory cannot be offered, and other memory, which can.
int run_closed(Communicator& world) {
  const auto sums = [&world](const Tensor& tensor, const char* what) {
    tensor.fill_(world.rank() + 1);
    world.all_reduce(tensor);
    const int wanted = world.size() * (world.size() + 1) / 2;
    require(tensor.amin().item<int>() == wanted && tensor.amax().item<int>() == wanted, what);
  };
  const TensorOptions options{.dtype = i32, .device = world.device()};
  const auto source = std::make_shared<testing::ClosedMemory>(world.device());
  memory::MemPool pool(world.device(), {.allocator = source});
  {
    const memory::MemPoolGuard guard(pool);
    const Tensor closed = empty({std::int64_t{1} << 19}, options);
    for (int i = 0; i < 3; ++i) sums(closed, "a sum in closed memory");
  }
  const Tensor open = empty({std::int64_t{1} << 20}, options);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  const auto is_mapped = [&] {
    Tensor all = full({1}, memory::ipc_stats(world.device()).mapped_bytes != 0 ? 1 : 0, options);
    all.fill_(std::chrono::steady_clock::now() > deadline ? 1 : all.item<int>());
    world.all_reduce(all, ReduceOp::min);
    return all.item<int>() == 1;
  };
  do sums(open, "a sum");
  while (!is_mapped());
  require(memory::ipc_stats(world.device()).mapped_bytes != 0, "other memory stays closed");
  synchronize(world.device());
  fmt::print("in step\n");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    Communicator world = Communicator::world();
    if (argc == 2 && std::string(argv[1]) == "graph") return run_graph(world);
    if (argc == 2 && std::string(argv[1]) == "closed") return run_closed(world);
    if (argc < 3) return 2;
    return run_program(world, static_cast<unsigned>(std::stoul(argv[1])), std::stoi(argv[2]),
                       argc > 3 ? std::stoi(argv[3]) : -1);
  } catch (const std::exception& error) {
    fmt::print("failed: {}\n", error.what());
    return 1;
  }
}
