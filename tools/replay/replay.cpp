#include "tools/replay/replay.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <thread>

#include <gantry/core/error.hpp>
#include <gantry/streams/stream.hpp>

namespace gantry::replay {
namespace {

using Clock = std::chrono::steady_clock;

// Operations between two looks at the clock: few enough to stop in time, many enough not to count.
constexpr std::size_t kMinPiece = 256;

// Consecutive operations of one thread, timed together.
struct Run {
  std::size_t first = 0;
  std::size_t end = 0;
  std::uint16_t thread = 0;
};

std::vector<Run> split(const AllocationSequence& sequence, bool threads, std::size_t max_ops) {
  std::vector<Run> runs;
  for (std::size_t i = 0; i < sequence.ops.size(); ++i) {
    const std::uint16_t thread = threads ? sequence.ops[i].thread : std::uint16_t{0};
    if (runs.empty() || runs.back().thread != thread || i - runs.back().first == max_ops) {
      runs.push_back({i, i, thread});
    }
    runs.back().end = i + 1;
  }
  return runs;
}

std::vector<Stream> make_streams(Device device, std::uint16_t count) {
  std::vector<Stream> streams{Stream::default_stream(device)};
  while (streams.size() < count) streams.push_back(Stream::from_pool(device));
  return streams;
}

class Replayer {
 public:
  Replayer(const AllocationSequence& sequence, Backend& backend, const ReplayOptions& options)
      : sequence_(sequence),
        backend_(backend),
        allocator_(backend.allocator()),
        threads_(options.threads_as_logged && sequence.threads > 1),
        max_spent_(std::chrono::duration_cast<Clock::duration>(
            std::chrono::duration<double>(options.max_seconds))),
        streams_(make_streams(options.device, sequence.streams)),
        blocks_(sequence.blocks) {}

  // One pass in pieces of at most `max_ops`; with `samples`, memory is looked at between them.
  // Returns nanoseconds per operation.
  double pass(std::size_t max_ops, std::vector<MemorySample>* samples) {
    const std::vector<Run> runs = split(sequence_, threads_, max_ops);
    samples_ = samples;
    sample_every_ = max_ops;
    next_sample_ = 0;
    spent_ = Clock::duration::zero();
    done_ = 0;
    failures_ = 0;
    if (threads_) {
      run_threads(runs);
    } else {
      for (const Run& run : runs) perform(run);
    }
    for (memory::Block& block : blocks_) {
      if (block.allocator != nullptr) allocator_.deallocate(block);
    }
    if (done_ == 0) return 0;
    return std::chrono::duration<double, std::nano>(spent_).count() / static_cast<double>(done_);
  }

  [[nodiscard]] bool gave_up() const { return failures_ >= kMaxOoms || spent_ > max_spent_; }
  [[nodiscard]] std::uint64_t done() const { return done_; }
  [[nodiscard]] std::uint64_t failures() const { return failures_; }
  [[nodiscard]] std::optional<std::uint64_t> first_failure() const { return first_failure_; }

 private:
  void perform(const Run& run) {
    if (gave_up()) return;
    const auto start = Clock::now();
    for (std::size_t i = run.first; i < run.end; ++i) {
      const AllocationOp& op = sequence_.ops[i];
      memory::Block& block = blocks_[op.block];
      if (op.is_allocation()) {
        try {
          block = allocator_.allocate(streams_[op.stream], op.bytes);
        } catch (const OutOfMemoryError&) {
          ++failures_;
          if (!first_failure_) first_failure_ = i;
        }
      } else if (block.allocator != nullptr) {
        allocator_.deallocate(block);
      }
    }
    spent_ += Clock::now() - start;
    done_ += run.end - run.first;
    if (samples_ != nullptr && run.end >= next_sample_) {
      samples_->push_back({run.end, 0, backend_.reserved_bytes()});
      next_sample_ = run.end + sample_every_;
    }
  }

  // One thread per logged one; whose turn it is follows the log strictly.
  void run_threads(const std::vector<Run>& runs) {
    std::atomic<std::size_t> turn{0};
    std::exception_ptr error;  // written by the thread whose turn it is
    const auto work = [&](std::uint16_t self) {
      for (std::size_t i = 0; i < runs.size(); ++i) {
        if (runs[i].thread != self) continue;
        for (std::size_t now = turn.load(); now != i; now = turn.load()) turn.wait(now);
        try {
          if (!error) perform(runs[i]);
        } catch (...) {
          error = std::current_exception();
        }
        turn.store(i + 1);
        turn.notify_all();
      }
    };
    std::vector<std::jthread> workers;
    for (std::uint16_t i = 0; i < sequence_.threads; ++i) workers.emplace_back(work, i);
    workers.clear();
    if (error) std::rethrow_exception(error);
  }

  const AllocationSequence& sequence_;
  Backend& backend_;
  memory::Allocator& allocator_;
  bool threads_;
  Clock::duration max_spent_;
  std::vector<Stream> streams_;
  std::vector<memory::Block> blocks_;
  std::vector<MemorySample>* samples_ = nullptr;
  std::size_t sample_every_ = 0;
  std::size_t next_sample_ = 0;
  Clock::duration spent_{};
  std::size_t done_ = 0;
  std::uint64_t failures_ = 0;
  std::optional<std::uint64_t> first_failure_;
};

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Adds what is live at each sample: a property of the sequence, whatever failed.
void fill_live(const AllocationSequence& sequence, std::vector<MemorySample>& samples) {
  std::vector<std::uint64_t> bytes(sequence.blocks, 0);
  std::uint64_t live = 0;
  std::size_t op = 0;
  for (MemorySample& sample : samples) {
    for (; op < sample.op; ++op) {
      const AllocationOp& step = sequence.ops[op];
      if (step.is_allocation()) {
        live += bytes[step.block] = step.bytes;
      } else {
        live -= bytes[step.block];
      }
    }
    sample.live_bytes = live;
  }
}

}  // namespace

ReplayResult replay(const AllocationSequence& sequence, Backend& backend, CountingDriver& driver,
                    const ReplayOptions& options) {
  ReplayResult result;
  result.backend = backend.allocator().name();
  result.peak_live = facts_of(sequence).peak_live_bytes;
  if (options.limit_bytes) backend.set_limit(*options.limit_bytes);
  const std::uint64_t live_before = backend.allocated_bytes();
  Replayer replayer(sequence, backend, options);

  // The first pass: pieces, so that memory is looked at between them.
  const auto samples = static_cast<std::size_t>(std::max(1, options.samples));
  const std::size_t piece = std::max<std::size_t>(8, (sequence.ops.size() + samples - 1) / samples);
  backend.reset_peak();
  driver.reset_peak();
  std::uint64_t calls = driver.calls();
  result.first_ns = replayer.pass(piece, &result.samples);
  result.driver_calls_first = driver.calls() - calls;
  result.ooms = replayer.failures();
  result.operations = sequence.ops.size();
  result.done = replayer.done();
  bool gave_up = replayer.gave_up();

  std::vector<double> times;
  for (int i = 0; i < options.repeat && !gave_up; ++i) {
    calls = driver.calls();
    times.push_back(replayer.pass(std::max<std::size_t>(piece, kMinPiece), nullptr));
    result.driver_calls_warm = driver.calls() - calls;
    result.ooms += replayer.failures();
    result.done = std::min(result.done, replayer.done());
    gave_up = replayer.gave_up();
  }
  result.warm_ns = median(times);
  result.first_oom_op = replayer.first_failure();
  // The allocator's own account, and what went over the counter; the driver's pools are only in
  // the first, memory that the allocator forgot to count only in the second.
  result.peak_reserved = std::max(backend.peak_reserved_bytes(), driver.peak_held_bytes());
  fill_live(sequence, result.samples);

  const std::uint64_t live_after = backend.allocated_bytes();
  result.leaked_bytes = live_after > live_before ? live_after - live_before : 0;
  backend.allocator().empty_cache(options.device);
  result.held_after_empty = std::max(backend.reserved_bytes(), driver.held_bytes());
  return result;
}

}  // namespace gantry::replay
