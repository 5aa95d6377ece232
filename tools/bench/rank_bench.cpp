#include "tools/bench/rank_bench.hpp"

#include <fmt/format.h>

#include <cstring>

#include <gantry/core/error.hpp>
#include <gantry/streams/stream_guard.hpp>
#include <gantry/tensor/factories.hpp>

#include "tools/bench/captured_calls.hpp"

namespace gantry::bench {

// What a rank passes; `output` is the tensor with the result where there is one.
struct RankBench::Buffers {
  Tensor input;
  Tensor output;
};

namespace {

// This rank's part in pairs of sender and receiver; the last rank of an odd number has none.
struct Pair {
  int peer = -1;
  bool sends = false;
};

Pair pair_of(int rank, int ranks) {
  if ((rank ^ 1) >= ranks) return {};
  return {rank ^ 1, rank % 2 == 0};
}

}  // namespace

RankBench::RankBench(Communicator communicator)
    : communicator_(std::move(communicator)),
      stream_(Stream::from_pool(communicator_.device(), StreamPriority::high)) {
  set_device(communicator_.device());
  set_stream(stream_);
}

RankBench::Buffers RankBench::make_buffers(const Case& what) const {
  const int ranks = communicator_.size();
  const bool root = communicator_.rank() == what.root;
  const auto make = [&](std::int64_t parts) {
    return empty({parts * what.count}, {.dtype = what.dtype, .device = communicator_.device()});
  };
  Buffers buffers;
  switch (what.kind) {
    case CollectiveKind::barrier:
      break;
    case CollectiveKind::all_reduce:
    case CollectiveKind::reduce:
    case CollectiveKind::broadcast:
      buffers.output = make(1);
      break;
    case CollectiveKind::all_gather:
      buffers = {make(1), make(ranks)};
      break;
    case CollectiveKind::reduce_scatter:
      buffers = {make(ranks), make(1)};
      break;
    case CollectiveKind::gather:
      buffers = {make(1), root ? make(ranks) : Tensor()};
      break;
    case CollectiveKind::scatter:
      buffers = {root ? make(ranks) : Tensor(), make(1)};
      break;
    case CollectiveKind::all_to_all:
      buffers = {make(ranks), make(ranks)};
      break;
    case CollectiveKind::send:
    case CollectiveKind::recv:
      (pair_of(communicator_.rank(), ranks).sends ? buffers.input : buffers.output) = make(1);
      break;
  }
  return buffers;
}

void RankBench::fill(const Case& what, Buffers& buffers) const {
  // What an operation overwrites begins as the opposite of what is expected most often.
  if (buffers.output.defined()) buffers.output.fill_(1);
  Tensor& source = is_in_place(what.kind) ? buffers.output : buffers.input;
  if (!source.defined()) return;
  std::vector<std::byte> host(source.nbytes());
  write_pattern(source_pattern(communicator_.rank(), what.dtype), what.dtype, 0, source.numel(),
                host.data());
  source.copy_(from_blob(host.data(), {source.numel()}, {.dtype = what.dtype}));
}

void RankBench::submit(const Case& what, Buffers& buffers) {
  switch (what.kind) {
    case CollectiveKind::barrier:
      communicator_.barrier();
      return;
    case CollectiveKind::all_reduce:
      communicator_.all_reduce(buffers.output, what.op);
      return;
    case CollectiveKind::reduce:
      communicator_.reduce(buffers.output, what.root, what.op);
      return;
    case CollectiveKind::broadcast:
      communicator_.broadcast(buffers.output, what.root);
      return;
    case CollectiveKind::all_gather:
      communicator_.all_gather(buffers.output, buffers.input);
      return;
    case CollectiveKind::reduce_scatter:
      communicator_.reduce_scatter(buffers.output, buffers.input, what.op);
      return;
    case CollectiveKind::gather:
      communicator_.gather(buffers.output, buffers.input, what.root);
      return;
    case CollectiveKind::scatter:
      communicator_.scatter(buffers.output, buffers.input, what.root);
      return;
    case CollectiveKind::all_to_all:
      communicator_.all_to_all(buffers.output, buffers.input);
      return;
    case CollectiveKind::send:
    case CollectiveKind::recv:
      const Pair pair = pair_of(communicator_.rank(), communicator_.size());
      if (pair.peer < 0) return;
      if (pair.sends) {
        communicator_.send(buffers.input, pair.peer);
      } else {
        communicator_.recv(buffers.output, pair.peer);
      }
      return;
  }
  __builtin_unreachable();
}

std::int64_t RankBench::wrong_elements(const Case& what, const Buffers& buffers) const {
  if (!buffers.output.defined()) return 0;
  const int rank = communicator_.rank();
  const int ranks = communicator_.size();
  const Tensor host = buffers.output.cpu();
  const auto* got = static_cast<const std::byte*>(host.data());
  const std::size_t part_bytes = static_cast<std::size_t>(what.count) * element_size(what.dtype);
  const auto compare = [&](const Pattern& expected, std::int64_t first, int part = 0) {
    return count_wrong(expected, what.dtype, first, what.count,
                       got + part_bytes * static_cast<std::size_t>(part));
  };
  std::int64_t wrong = 0;
  switch (what.kind) {
    case CollectiveKind::barrier:
      return 0;
    case CollectiveKind::reduce:
      if (rank != what.root) return compare(source_pattern(rank, what.dtype), 0);
      [[fallthrough]];
    case CollectiveKind::all_reduce:
      return compare(reduced_pattern(ranks, what.dtype, what.op), 0);
    case CollectiveKind::reduce_scatter:
      return compare(reduced_pattern(ranks, what.dtype, what.op), rank * what.count);
    case CollectiveKind::broadcast:
      return compare(source_pattern(what.root, what.dtype), 0);
    case CollectiveKind::scatter:
      return compare(source_pattern(what.root, what.dtype), rank * what.count);
    case CollectiveKind::send:
    case CollectiveKind::recv:
      return compare(source_pattern(pair_of(rank, ranks).peer, what.dtype), 0);
    case CollectiveKind::all_gather:
    case CollectiveKind::gather:
    case CollectiveKind::all_to_all:
      for (int peer = 0; peer < ranks; ++peer) {
        const std::int64_t first = what.kind == CollectiveKind::all_to_all ? rank * what.count : 0;
        wrong += compare(source_pattern(peer, what.dtype), first, peer);
      }
      return wrong;
  }
  __builtin_unreachable();
}

Timing RankBench::measure(const Case& what, Buffers& buffers, const Repetitions& repetitions) {
  CapturedCalls graph;
  if (what.graph_calls > 0) {
    graph = CapturedCalls(stream_, [&] {
      for (int i = 0; i < what.graph_calls; ++i) submit(what, buffers);
    });
  }
  const int calls_at_once = graph.defined() ? what.graph_calls : 1;
  // Seconds for at least `calls` calls, begun by all ranks together.
  const auto batch = [&](int launches) {
    communicator_.host_barrier();
    const StopWatch watch;
    for (int i = 0; i < launches; ++i) {
      if (graph.defined()) {
        graph.launch(stream_);
      } else {
        submit(what, buffers);
      }
      if (repetitions.blocking) stream_.synchronize();
    }
    stream_.synchronize();
    return watch.seconds();
  };
  if (repetitions.warm_up > 0)
    (void)batch((repetitions.warm_up + calls_at_once - 1) / calls_at_once);
  const double probe = maximum({batch(1) / calls_at_once}).front();
  const Repetitions fitted = repetitions.fitted(probe);
  const int launches = (fitted.calls + calls_at_once - 1) / calls_at_once;
  const int calls = launches * calls_at_once;
  std::vector<double> batch_us;
  for (int i = 0; i < fitted.batches; ++i) batch_us.push_back(batch(launches) * 1e6 / calls);
  return summarize(maximum(batch_us), calls);
}

std::vector<double> RankBench::maximum(const std::vector<double>& mine) {
  const std::string bytes(reinterpret_cast<const char*>(mine.data()), mine.size() * sizeof(double));
  std::vector<double> result = mine;
  for (const std::string& other : communicator_.all_gather_bytes(bytes)) {
    for (std::size_t i = 0; i < result.size(); ++i) {
      double value = 0;
      std::memcpy(&value, other.data() + i * sizeof value, sizeof value);
      result[i] = std::max(result[i], value);
    }
  }
  return result;
}

std::int64_t RankBench::total(std::int64_t mine) {
  std::int64_t sum = 0;
  const std::string bytes(reinterpret_cast<const char*>(&mine), sizeof mine);
  for (const std::string& other : communicator_.all_gather_bytes(bytes)) {
    std::int64_t value = 0;
    std::memcpy(&value, other.data(), sizeof value);
    sum += value;
  }
  return sum;
}

std::string RankBench::first_failure(const std::string& mine) {
  for (const std::string& text : communicator_.all_gather_bytes(mine)) {
    if (!text.empty()) return text;
  }
  return {};
}

CaseResult RankBench::run(const Case& what, const Repetitions& repetitions, bool check) {
  CaseResult result;
  // What one rank cannot do, such as capture, none does; losing a rank ends everything.
  const auto all_can = [&](auto step) {
    std::string failure;
    try {
      step();
    } catch (const NotSupported& error) {
      failure = error.what();
    } catch (const OutOfMemoryError& error) {
      failure = error.what();
    } catch (const CudaError& error) {
      if (what.graph_calls == 0) throw;
      failure = error.what();
    }
    result.skipped = first_failure(failure);
    return result.skipped.empty();
  };
  Buffers buffers;
  CapturedCalls graph;
  if (!all_can([&] {
        buffers = make_buffers(what);
        fill(what, buffers);
        stream_.synchronize();
      })) {
    return result;
  }
  if (!all_can([&] {
        if (what.graph_calls > 0) graph = CapturedCalls(stream_, [&] { submit(what, buffers); });
      })) {
    return result;
  }
  if (!all_can([&] {
        if (graph.defined()) {
          graph.launch(stream_);
        } else {
          submit(what, buffers);
        }
        stream_.synchronize();
      })) {
    return result;
  }
  if (check) result.wrong = total(wrong_elements(what, buffers));
  if (result.wrong.value_or(0) == 0 && repetitions.batches > 0) {
    result.timing = measure(what, buffers, repetitions);
  }
  return result;
}

}  // namespace gantry::bench
