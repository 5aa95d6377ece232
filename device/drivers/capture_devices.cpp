#include "device/drivers/capture_devices.hpp"

#include <algorithm>
#include <mutex>

namespace gantry {
namespace {

// The objects of all captures under way. Never destroyed: a graph may end with the process.
struct Open {
  std::mutex mutex;  ///< guards the devices, too
  std::vector<CaptureDevices*> all;
  std::vector<const void*> origins;

  static Open& instance() {
    static auto& open = *new Open();
    return open;
  }
};

}  // namespace

constinit std::atomic<std::size_t> OpenCaptures::count_{0};

void OpenCaptures::add(const void* origin) {
  Open& open = Open::instance();
  const std::lock_guard lock(open.mutex);
  open.origins.push_back(origin);
  count_.store(open.origins.size(), std::memory_order_release);
}

void OpenCaptures::remove(const void* origin) noexcept {
  if (is_empty()) return;
  Open& open = Open::instance();
  const std::lock_guard lock(open.mutex);
  std::erase(open.origins, origin);
  count_.store(open.origins.size(), std::memory_order_release);
}

constinit std::atomic<int> CaptureDevices::open_{0};

CaptureDevices::CaptureDevices(std::uint64_t capture, int first) : capture_(capture) {
  devices_.set(static_cast<std::size_t>(first));
  Open& open = Open::instance();
  const std::lock_guard lock(open.mutex);
  open.all.push_back(this);
  open_.store(static_cast<int>(open.all.size()), std::memory_order_relaxed);
}

CaptureDevices::~CaptureDevices() {
  Open& open = Open::instance();
  const std::lock_guard lock(open.mutex);
  std::erase(open.all, this);
  open_.store(static_cast<int>(open.all.size()), std::memory_order_relaxed);
}

std::vector<int> CaptureDevices::all() const {
  const std::lock_guard lock(Open::instance().mutex);
  std::vector<int> devices;
  for (int device = 0; device < kMost; ++device) {
    if (devices_.test(static_cast<std::size_t>(device))) devices.push_back(device);
  }
  return devices;
}

bool CaptureDevices::is_open(std::uint64_t capture) noexcept {
  if (is_empty()) return false;
  Open& open = Open::instance();
  const std::lock_guard lock(open.mutex);
  return std::ranges::find(open.all, capture, &CaptureDevices::capture_) != open.all.end();
}

void CaptureDevices::note(std::uint64_t capture, int device) noexcept {
  if (is_empty() || device < 0 || device >= kMost) return;
  Open& open = Open::instance();
  const std::lock_guard lock(open.mutex);
  for (CaptureDevices* const one : open.all) {
    if (one->capture_ == capture) one->devices_.set(static_cast<std::size_t>(device));
  }
}

}  // namespace gantry
