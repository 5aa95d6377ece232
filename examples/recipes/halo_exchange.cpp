// A stencil on a grid of ranks: halos travel on a stream of their own beside the interior points.
//
// Run: glaunch halo_exchange    (without a GPU: export GANTRY_SIM_DEVICES=8)
//
// Each rank has a cube of points. The result has the bits of one device that has all points.
#include <gantry/gantry.hpp>

#include <algorithm>
#include <array>
#include <iostream>
#include <utility>

namespace {

using namespace gantry;

constexpr std::int64_t kPoints = 12, kSweeps = 20;  // points of a rank along each dim

struct Box {
  std::array<std::int64_t, 3> begin, size;
  Tensor of(Tensor grid, std::int64_t margin = 0) const {
    for (std::size_t d = 0; d < 3; ++d) {
      grid = grid.narrow(d, begin[d] - margin, size[d] + 2 * margin);
    }
    return grid;
  }
};
constexpr Box kOwn{{1, 1, 1}, {kPoints, kPoints, kPoints}};  // without the layer
constexpr Box kInterior{{2, 2, 2}, {kPoints - 2, kPoints - 2, kPoints - 2}};

Box face(std::size_t dim, std::int64_t at) {
  Box box = kOwn;
  box.begin[dim] = at;
  box.size[dim] = 1;
  return box;
}

// 1. The new value of a point of a box, from its six neighbours and itself.
struct Jacobi {
  const float* in;
  float* out;
  std::int64_t rows, columns, size1, size2;

  GANTRY_HD void operator()(std::int64_t i) const {
    const std::int64_t at = i / (size1 * size2) * rows + i / size2 % size1 * columns + i % size2;
    out[at] = 0.125F * (in[at - rows] + in[at + rows] + in[at - columns] + in[at + columns] +
                        in[at - 1] + in[at + 1] + 2 * in[at]);
  }
};

void sweep(const Stream& stream, const Box& box, const Tensor& in, const Tensor& out) {
  const Tensor written = box.of(out);
  parallel_for(stream, written.numel(), uses(box.of(in, 1)).writes(written),
               Jacobi{box.of(in).data_ptr<float>(), written.data_ptr<float>(), in.stride(0),
                      in.stride(1), box.size[1], box.size[2]});
}

// 2. The grid of ranks, as near to a cube as their number permits.
struct RankGrid {
  std::array<std::int64_t, 3> size{1, 1, 1}, step{}, at{};
  explicit RankGrid(const Communicator& world) {
    for (int left = world.size(), factor = 2; left > 1;) {
      if (left % factor == 0) *std::min_element(size.begin(), size.end()) *= factor;
      left % factor == 0 ? left /= factor : ++factor;
    }
    step = {size[1] * size[2], size[2], 1};
    for (std::size_t d = 0; d < 3; ++d) at[d] = world.rank() / step[d] % size[d];
  }
};

// 3. The outermost points of each face become the halo of the neighbour behind it.
void exchange(const Communicator& world, const RankGrid& ranks, const Tensor& grid) {
  const auto messages = world.group();
  for (std::size_t d = 0; d < 3; ++d) {
    for (const int side : {-1, 1}) {
      if (ranks.at[d] + side < 0 || ranks.at[d] + side == ranks.size[d]) continue;
      const int neighbour = world.rank() + side * static_cast<int>(ranks.step[d]);
      world.send(face(d, side < 0 ? 1 : kPoints).of(grid), neighbour);
      world.recv(face(d, side < 0 ? 0 : kPoints + 1).of(grid), neighbour);
    }
  }
}

}  // namespace

int main() {
  const Communicator world = Communicator::world();
  const RankGrid ranks(world);
  Box mine = kOwn, all = kOwn;
  for (std::size_t d = 0; d < 3; ++d) {
    mine.begin[d] += ranks.at[d] * kPoints;
    all.size[d] *= ranks.size[d];
  }
  manual_seed(9);  // all ranks draw the same grid
  Tensor whole = rand({all.size[0] + 2, all.size[1] + 2, all.size[2] + 2}, world.device());
  Tensor in = mine.of(whole, 1).clone(), out = in.clone(), next = whole.clone();

  // 4. Only points of the faces need halos. An edge of the cube belongs to several faces.
  const Stream compute = Stream::current(world.device());
  const Stream edges = Stream::from_pool(world.device(), StreamPriority::high);
  for (int i = 0; i < kSweeps; ++i, std::swap(in, out)) {
    edges.wait(compute);
    sweep(compute, kInterior, in, out);  // beside the exchange
    const StreamGuard guard(edges);
    exchange(world, ranks, in);
    for (std::size_t d = 0; d < 3; ++d) {
      sweep(edges, face(d, 1), in, out);
      sweep(edges, face(d, kPoints), in, out);
    }
    compute.wait(edges);
  }

  for (int i = 0; i < kSweeps; ++i, std::swap(whole, next)) sweep(compute, all, whole, next);
  const Tensor is_equal = (kOwn.of(in) == mine.of(whole)).all().to(i32);
  world.all_reduce(is_equal, ReduceOp::min);
  if (world.rank() == 0) std::cout << "equal to one device: " << is_equal.item<int>() << "\n";
  return is_equal.item<int>() == 1 ? 0 : 1;
}
// Output:
// [0] equal to one device: 1
