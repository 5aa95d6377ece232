#include "tools/bench/rank_bench.hpp"

#include <fmt/format.h>

#include <cstring>

#include <gantry/core/error.hpp>
#include <gantry/streams/stream_guard.hpp>
#include <gantry/tensor/factories.hpp>

#include "tools/bench/captured_calls.hpp"
#include "tools/bench/rank_slice.hpp"

namespace gantry::bench {

// The tensors of a rank; `output` is the tensor with the result where there is one.
struct RankBench::Buffers {
  Tensor input;
  Tensor output;

  const Tensor& source(CollectiveKind kind) const { return is_in_place(kind) ? output : input; }
  // What is registered, if anything is.
  const Tensor& open(CollectiveKind kind) const {
    return kind == CollectiveKind::reduce_scatter ? input : output;
  }
};

namespace {

// Keeps a tensor registered, or none.
class Registration {
 public:
  Registration(Communicator& communicator, const Tensor& tensor)
      : communicator_(communicator), tensor_(tensor) {
    if (tensor_.defined()) communicator_.register_memory(tensor_);
  }
  ~Registration() {
    try {
      if (tensor_.defined()) communicator_.deregister_memory(tensor_);
    } catch (const std::exception& error) {
      fmt::print(stderr, "gantry-bench: {}\n", error.what());
    }
  }
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;

 private:
  Communicator& communicator_;
  Tensor tensor_;
};

}  // namespace

RankBench::RankBench(Communicator communicator)
    : communicator_(std::move(communicator)),
      stream_(Stream::from_pool(communicator_.device(), StreamPriority::high)) {
  set_device(communicator_.device());
  set_stream(stream_);
}

RankBench::Buffers RankBench::make_buffers(const Case& what) const {
  const Parts parts = parts_of(what, communicator_.rank(), communicator_.size());
  const auto make = [&](int count) {
    if (count == 0) return Tensor();
    return empty({count * what.count}, {.dtype = what.dtype, .device = communicator_.device()});
  };
  return {make(parts.input), make(parts.output)};
}

void RankBench::fill(const Case& what, Buffers& buffers) const {
  // Memory that an operation overwrites begins as bytes that the pattern hardly ever has.
  if (buffers.output.defined()) buffers.output.view(u8).fill_(1);
  Tensor source = buffers.source(what.kind);
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
  const Tensor host = buffers.output.cpu();
  return count_wrong_output(what, communicator_.rank(), communicator_.size(),
                            static_cast<const std::byte*>(host.data()));
}

Timing RankBench::measure(const Case& what, Buffers& buffers, const Repetitions& repetitions) {
  CapturedCalls graph;
  if (what.graph_calls > 0) {
    graph = CapturedCalls(stream_, [&] {
      for (int i = 0; i < what.graph_calls; ++i) submit(what, buffers);
    });
  }
  TimedCalls timed;
  timed.begin = [&] { communicator_.host_barrier(); };
  timed.wait = [&] { stream_.synchronize(); };
  timed.maximum = [&](const std::vector<double>& mine) { return maximum(mine); };
  if (graph.defined()) {
    timed.calls_at_once = what.graph_calls;
    timed.launch = [&] { graph.launch(stream_); };
  } else {
    timed.launch = [&] { submit(what, buffers); };
  }
  return bench::measure(timed, repetitions);
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
  const bool registers = what.registered && has_registered_form(what.kind);
  const Registration registration(communicator_, registers ? buffers.open(what.kind) : Tensor());
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
