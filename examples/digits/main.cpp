// Trains a two-layer network on handwritten digits, data-parallel over every device. One program,
// three ways to start it:
//
//   digits                  one process drives all devices through comm::*
//   mpirun -n 4 digits      one process per device, meeting through MPI
//   glaunch digits          one process per device, meeting through glaunch
//
// All three add gradients in the same order, so at equal numbers of devices they end with the same
// bits in every weight. So does a job that loses ranks, replaces them and continues from the last
// checkpoint: glaunch --elastic 1:4 digits --checkpoint FILE
// And so does a run with --graph, whose steps are replays of one graph.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>

#include "checkpoint.hpp"
#include "trainer.hpp"

namespace {

constexpr double kRequiredAccuracy = 0.97;

void print(const std::string& line) {
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

void print_device_map(digits::Exchange& exchange) {
  std::vector<std::string> local;
  for (std::size_t r = 0; r < exchange.devices().size(); ++r) {
    const gantry::Device device = exchange.devices()[r];
    const gantry::DeviceProperties& properties = gantry::device_properties(device);
    local.push_back(fmt::format("  replica {} on {} ({}, {})",
                                exchange.first_local() + static_cast<int>(r), device.str(),
                                properties.name, properties.uuid));
  }
  const std::vector<std::string> lines = exchange.all_gather(local);
  if (!exchange.speaks()) return;
  print("devices: " + exchange.describe());
  for (const std::string& line : lines) print(line);
}

// Prints peak memory and checksums; true if all replicas hold the same bits.
bool report(const digits::Trainer& trainer, digits::Exchange& exchange) {
  std::vector<std::string> memory;
  std::vector<std::string> checksums;
  for (const digits::Model& model : trainer.models()) {
    memory.push_back(
        fmt::format("{:.2f} MiB",
                    static_cast<double>(gantry::memory::max_allocated(model.device())) / 1048576));
    checksums.push_back(fmt::format("{:016x}", model.checksum()));
  }
  memory = exchange.all_gather(memory);
  checksums = exchange.all_gather(checksums);
  bool equal = true;
  for (const std::string& checksum : checksums) equal = equal && checksum == checksums.front();
  if (exchange.speaks()) {
    for (std::size_t r = 0; r < memory.size(); ++r) {
      print(fmt::format("replica {}: peak memory {}, weights {}", r, memory[r], checksums[r]));
    }
    print(fmt::format("weight checksum: {} {}", checksums.front(),
                      equal ? "equal on all replicas" : "BUT REPLICAS DIFFER"));
  }
  return equal;
}

// Continues from the checkpoint if there is one; returns the epochs that are done.
int restore(digits::Trainer& trainer, digits::Exchange& exchange, const std::string& path) {
  if (path.empty()) return 0;
  const auto checkpoint = digits::read_checkpoint(path, trainer.models().front().state());
  if (!checkpoint) return 0;
  trainer.load(checkpoint->state);
  if (exchange.speaks()) print(fmt::format("continues after epoch {}", checkpoint->epoch));
  return checkpoint->epoch;
}

// Trains from the checkpoint on, if there is one; returns the exit code.
int train(const digits::Settings& settings, const digits::Split& data, digits::Exchange& exchange,
          const std::string& checkpoint) {
  print_device_map(exchange);
  digits::Trainer trainer(settings, data, exchange);
  if (exchange.speaks()) {
    // Exact on every platform: the numbers come from integer arithmetic alone.
    print(fmt::format("initial checksum: {:016x}", trainer.models().front().checksum()));
  }
  const int done = restore(trainer, exchange, checkpoint);
  for (int epoch = done + 1; epoch <= settings.epochs; ++epoch) {
    const auto start = std::chrono::steady_clock::now();
    const double loss = trainer.train_epoch(epoch);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    if (!exchange.speaks()) continue;
    if (!checkpoint.empty()) {
      digits::write_checkpoint(checkpoint, {epoch, trainer.models().front().state()});
    }
    print(fmt::format("epoch {:3}  loss {:.4f}  test accuracy {:6.2f} %  {:9.0f} samples/s", epoch,
                      loss, 100 * trainer.test_accuracy(),
                      static_cast<double>(trainer.samples()) / seconds.count()));
  }
  const double accuracy = trainer.test_accuracy();
  const bool equal = report(trainer, exchange);
  if (settings.graph && exchange.speaks()) {
    print(fmt::format("steps: {} replays of graphs", trainer.replays()));
  }
  if (exchange.speaks()) print(fmt::format("final test accuracy: {:.2f} %", 100 * accuracy));
  return equal && accuracy >= kRequiredAccuracy ? 0 : 1;
}

int run(const digits::Settings& settings, const std::string& path, int limit,
        const std::string& checkpoint) {
  const digits::Split data = digits::load(path, settings.seed);
  const std::unique_ptr<digits::Exchange> exchange = digits::make_exchange(limit);
  for (;;) {
    try {
      return train(settings, data, *exchange, checkpoint);
    } catch (const gantry::PeerLostError& error) {
      exchange->recover(error);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  constexpr int kMost = 1'000'000;
  digits::Settings settings;
  std::string path = DIGITS_DATA;
  int limit = 0;
  std::string checkpoint;
  CLI::App app("Trains a digit classifier on every GPU, real or simulated");
  app.add_option("--data", path, "digits.csv.gz")->capture_default_str();
  app.add_option("--epochs", settings.epochs)->capture_default_str()->check(CLI::Range(1, kMost));
  app.add_option("--batch", settings.batch, "samples of one step, all replicas together")
      ->capture_default_str()
      ->check(CLI::Range(1, kMost));
  app.add_option("--hidden", settings.hidden)->capture_default_str()->check(CLI::Range(1, kMost));
  app.add_option("--rate", settings.rate)->capture_default_str();
  app.add_option("--seed", settings.seed)->capture_default_str();
  app.add_option("--devices", limit, "use at most so many devices in one process; 0: all")
      ->check(CLI::Range(0, kMost));
  app.add_flag("--graph", settings.graph, "capture a step as one graph, and replay it");
  app.add_option("--checkpoint", checkpoint,
                 "written after each epoch; training continues from it if it is there");
  CLI11_PARSE(app, argc, argv);
  try {
    return run(settings, path, limit, checkpoint);
  } catch (const std::exception& error) {
    fmt::print(stderr, "digits: {}\n", error.what());
    return 1;
  }
}
