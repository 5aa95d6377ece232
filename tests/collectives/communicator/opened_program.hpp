// A random program of collectives on memory of several processes.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <stdexcept>
#include <vector>

#include <gantry/collectives/communicator.hpp>
#include <gantry/ipc/ipc.hpp>
#include <gantry/memory/caching_allocator.hpp>
#include <gantry/tensor/factories.hpp>
#include <gantry/tensor/reductions.hpp>
#include <gantry/tensor/tensor.hpp>

namespace gantry::testing {

// A random program on memory that is allocated, freed and given back meanwhile. All ranks make the
// same calls; each has its arrays elsewhere.
class OpenedProgram {
 public:
  OpenedProgram(Communicator& world, unsigned seed) : world_(world), shared_(seed) {
    own_.seed(seed + 1000u * static_cast<unsigned>(world.rank()) + 1u);
  }

  void step() {
    const int size = world_.size();
    const int root = draw(size);
    const std::int64_t count = (draw(3) + 2) * (std::int64_t{1} << 18) + draw(5000) + 1;
    if (own_() % 4 == 0 && !held_.empty()) held_.erase(held_.begin());
    if (own_() % 16 == 0) memory::empty_cache();
    const Tensor mine = array(count);
    const Tensor large = array(count * size);
    const int value = static_cast<int>(draw(1000));
    mine.fill_(value + world_.rank());
    switch (draw(7)) {
      case 0:
        large.fill_(world_.rank() + value);
        world_.all_reduce(large);
        expect(large, size * value + size * (size - 1) / 2, "all_reduce");
        break;
      case 1:
        large.fill_(world_.rank() == root ? value : -1);
        world_.broadcast(large, root);
        expect(large, value, "broadcast");
        break;
      case 2:
        world_.all_gather(large, mine);
        expect_parts(large, count, value, "all_gather");
        break;
      case 3:
        world_.gather(world_.rank() == root ? large : Tensor(), mine, root);
        if (world_.rank() == root) expect_parts(large, count, value, "gather");
        break;
      case 4:
        large.fill_(world_.rank());
        world_.reduce_scatter(mine, large);
        expect(mine, size * (size - 1) / 2, "reduce_scatter");
        break;
      case 5: {
        const Tensor other = array(count * size);
        large.fill_(value + world_.rank());
        world_.all_to_all(other, large);
        expect_parts(other, count, value, "all_to_all");
        break;
      }
      default: {
        const Tensor sent = array(std::int64_t{5} << 20);
        const Tensor received = array(std::int64_t{5} << 20);
        sent.fill_(value + world_.rank());
        const int from = (world_.rank() + size - 1) % size;
        world_.send_recv(sent, (world_.rank() + 1) % size, received, from);
        expect(received, value + from, "send_recv");
        break;
      }
    }
    ++steps_;
  }

  // Bytes of the others' memory in the mirrors of this rank; after all gave theirs back.
  std::size_t mirrored() const { return memory::ipc_stats(world_.device()).mapped_bytes; }
  void free_all() {
    held_.clear();
    synchronize(world_.device());
    memory::empty_cache();
  }

 private:
  std::int64_t draw(std::int64_t below) { return static_cast<std::int64_t>(shared_()) % below; }
  int draw(int below) { return static_cast<int>(draw(std::int64_t{below})); }

  // An array of this rank's own place in a block, which stays for a few steps.
  Tensor array(std::int64_t count) {
    const auto offset = static_cast<std::int64_t>(own_() % 3) * 16;
    const Tensor block = empty({count + offset}, {.dtype = i32, .device = world_.device()});
    held_.push_back(block);
    if (held_.size() > 6) held_.erase(held_.begin());
    return block.narrow(0, offset, count);
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
    for (int p = 0; p < world_.size(); ++p) {
      expect(tensor.narrow(0, p * count, count), value + p, what);
    }
  }

  Communicator& world_;
  std::mt19937 shared_;  // the same on all ranks
  std::mt19937 own_;
  std::vector<Tensor> held_;
  int steps_ = 0;
};

}  // namespace gantry::testing
