// A pipeline for images: every device uploads, computes and downloads at the same time.
//
// Run: image_pipeline    (without a GPU: export GANTRY_SIM_DEVICES=4)
// GANTRY_SANITIZER=throw finds a wait that is missing, such as the first one of submit().
//
// Each device has three streams and two slots. While one slot computes, the other one copies. A
// graph for each slot has the kernels, so that an image costs the host a few calls.
#include <gantry/gantry.hpp>

#include <iostream>
#include <memory>
#include <vector>

namespace {

using namespace gantry;

constexpr std::int64_t kHeight = 96, kWidth = 128, kImages = 40;

// 1. The edges of an image [height, width, 3] of bytes, on any device.
Tensor edges_of(const Tensor& image) {
  const Tensor colours = image.to(f32);
  const Tensor grey =
      colours.select(2, 0) * 0.3 + colours.select(2, 1) * 0.6 + colours.select(2, 2) * 0.1;
  const Tensor rows = grey.slice(0, 0, -2) + grey.slice(0, 1, -1) + grey.slice(0, 2);
  const Tensor blurred = (rows.slice(1, 0, -2) + rows.slice(1, 1, -1) + rows.slice(1, 2)) / 9;
  const Tensor down = (blurred.slice(0, 1) - blurred.slice(0, 0, -1)).slice(1, 1).abs();
  const Tensor across = (blurred.slice(1, 1) - blurred.slice(1, 0, -1)).slice(0, 1).abs();
  return (down + across).clamp(0, 255).to(u8);
}

// The host's part: an image comes from somewhere.
void load(std::int64_t number, const Tensor& image) {
  Generator generator(Device::cpu());
  generator.manual_seed(static_cast<std::uint64_t>(number));
  image.random_(0, 256, generator);
}

// 2. Page-locked memory on the host, memory of the graph on the device, and events between them.
struct Slot {
  Tensor host_in = empty({kHeight, kWidth, 3}, {.dtype = u8, .pinned = true});
  Tensor host_out = empty({kHeight - 3, kWidth - 3}, {.dtype = u8, .pinned = true});
  Tensor in, out;
  Graph graph;
  Event uploaded, computed, downloaded;
  std::int64_t number = -1;
};

class Pipeline {
 public:
  explicit Pipeline(const Device& device)
      : upload_(Stream::from_pool(device)),
        compute_(Stream::from_pool(device)),
        download_(Stream::from_pool(device)) {
    const StreamGuard guard(compute_);
    for (Slot& slot : slots_) {
      slot.in = zeros({kHeight, kWidth, 3}, {.dtype = u8, .device = device});
      const GraphCapture capture(slot.graph, {.stream = compute_});
      slot.out = edges_of(slot.in);
    }
    compute_.synchronize();
  }

  // 3. Takes the next image. The host waits only for the image that had the slot before.
  void submit(std::int64_t number) {
    Slot& slot = slots_[static_cast<std::size_t>(turn_++ % 2)];
    finish(slot);
    slot.number = number;
    load(number, slot.host_in);
    {
      const StreamGuard guard(upload_);
      slot.in.copy_(slot.host_in, {.non_blocking = true});
      slot.uploaded.record(upload_);
    }
    {
      const StreamGuard guard(compute_);
      slot.uploaded.wait(compute_);
      slot.graph.replay();
      slot.computed.record(compute_);
    }
    const StreamGuard guard(download_);
    slot.computed.wait(download_);
    slot.host_out.copy_(slot.out, {.non_blocking = true});
    slot.downloaded.record(download_);
  }
  std::int64_t finish() {
    for (Slot& slot : slots_) finish(slot);
    return right_;
  }

 private:
  // Counts the result if the CPU computes the same bytes.
  void finish(Slot& slot) {
    if (slot.number < 0) return;
    slot.downloaded.synchronize();
    if (equal(slot.host_out, edges_of(slot.host_in))) ++right_;
    slot.number = -1;
  }

  Stream upload_, compute_, download_;
  Slot slots_[2];
  std::int64_t turn_ = 0, right_ = 0;
};

}  // namespace

int main() {
  init();  // throws if there is no device
  std::vector<std::unique_ptr<Pipeline>> pipelines;
  for (const Device& device : devices()) pipelines.push_back(std::make_unique<Pipeline>(device));
  for (std::int64_t number = 0; number < kImages; ++number) {
    pipelines[static_cast<std::size_t>(number) % pipelines.size()]->submit(number);
  }
  std::int64_t right = 0;
  for (const auto& pipeline : pipelines) right += pipeline->finish();
  std::cout << kImages << " images, as on the CPU: " << right << "\n";
  return right == kImages ? 0 : 1;
}
// Output:
// 40 images, as on the CPU: 40
