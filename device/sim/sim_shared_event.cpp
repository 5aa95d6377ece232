#include "device/sim/sim_shared_event.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <map>
#include <mutex>
#include <tuple>
#include <type_traits>
#include <vector>

#include "core/files/sealed_file.hpp"
#include "device/sim/devices/sim_error.hpp"
#include "device/sim/memory/sim_ipc.hpp"
#include "device/sim/memory/sim_memory.hpp"
#include "device/sim/streams/sim_futex.hpp"
#include "device/sim/streams/sim_launch.hpp"

namespace gantry::sim {

// The part of one event that all processes see. Records go to slots in turn; `recorded` is moved
// once the slot is filled.
struct alignas(64) EventPlace {
  static constexpr std::size_t kSlots = 64;
  struct Slot {
    std::atomic<std::uint64_t> ticket;
    std::atomic<std::uint64_t> start_time;
    std::atomic<std::int32_t> pid;
    std::atomic<std::uint64_t> completed;
  };

  std::atomic<std::uint64_t> identity;  ///< 0: no event lives here
  std::atomic<std::uint64_t> base;
  std::atomic<std::uint64_t> next;
  std::atomic<std::uint64_t> recorded;
  std::atomic<std::uint32_t> bell;
  std::array<Slot, kSlots> slots;

  Slot& slot(std::uint64_t ticket) { return slots[ticket % kSlots]; }
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

// A mapped file of places. Only the pages that are used take memory; a fresh one is all zeros,
// which is the state of a place without an event.
class EventFile {
 public:
  static constexpr std::size_t kPlaces = 1024;
  static constexpr std::size_t kBytes = kPlaces * sizeof(EventPlace);

  // A new one of this process. Throws: CudaError 304.
  explicit EventFile(const std::string& doing)
      : descriptor_(create_memory_file("gantry events", kBytes, doing)) {
    map(descriptor_, doing);
    name_ = name_file(descriptor_);
  }
  // One of another process. Throws: CudaError 1, 304 or 400.
  EventFile(const FileName& name, const std::string& doing, int device) : name_(name) {
    const int descriptor = open_file(name, doing, device);
    struct stat status {};
    if (::fstat(descriptor, &status) != 0 || status.st_size != off_t{kBytes} ||
        !is_sealed(descriptor)) {
      ::close(descriptor);
      fail(kInvalidValue, doing, device, "the handle names a file that holds no events");
    }
    map(descriptor, doing);
    ::close(descriptor);  // the mapping stays
  }
  ~EventFile() {
    ::munmap(places_, kBytes);
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  const FileName& name() const { return name_; }
  EventPlace& place(std::size_t index) const { return places_[index]; }
  std::size_t index_of(const EventPlace& place) const {
    return static_cast<std::size_t>(&place - places_);
  }
  EventPlace* find_free() const {
    for (std::size_t i = 0; i < kPlaces; ++i) {
      if (places_[i].identity.load() == 0) return &places_[i];
    }
    return nullptr;
  }

 private:
  void map(int descriptor, const std::string& doing) {
    void* data = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (data == MAP_FAILED) {
      const int reason = errno;
      ::close(descriptor);
      fail(kOperatingSystem, doing, -1, std::strerror(reason));
    }
    places_ = static_cast<EventPlace*>(data);
  }

  int descriptor_ = -1;
  FileName name_;
  EventPlace* places_ = nullptr;
};

namespace {

constexpr std::uint64_t kEventMagic = 0x76'65'72'74'6e'61'67'02;
constexpr int kDeathPollMs = 20;

// Without padding, so that equal handles have equal bytes.
struct HandleBytes {
  std::uint64_t magic;
  std::uint64_t start_time;
  std::int32_t pid;
  std::int32_t descriptor;
  std::uint64_t inode;
  std::uint64_t index;
  std::uint64_t identity;
};
static_assert(std::has_unique_object_representations_v<HandleBytes>);

// The files of this process and the files of others that are in use here; never destroyed, because
// tasks in streams may hold events until the process ends.
struct EventFiles {
  using Key = std::tuple<std::int32_t, std::uint64_t, std::int32_t, std::uint64_t>;

  std::mutex mutex;
  std::uint64_t last_identity = 0;
  std::vector<std::shared_ptr<EventFile>> own;
  std::map<Key, std::weak_ptr<EventFile>> others;

  static EventFiles& instance() {
    static auto& files = *new EventFiles();
    return files;
  }

  std::shared_ptr<EventFile> open(const FileName& name, const std::string& doing, int device) {
    const Key key{name.process.pid, name.process.start_time, name.descriptor, name.inode};
    const std::lock_guard lock(mutex);
    if (auto known = others[key].lock()) return known;
    auto opened = std::make_shared<EventFile>(name, doing, device);
    std::erase_if(others, [](const auto& entry) { return entry.second.expired(); });
    others[key] = opened;
    return opened;
  }
};

}  // namespace

SharedEvent::SharedEvent() : is_own_(true) {
  const std::string doing = "creating an interprocess event";
  EventFiles& files = EventFiles::instance();
  const std::lock_guard lock(files.mutex);
  // A forked child has its parent's files, which are not its own.
  std::erase_if(files.own,
                [self = this_process()](const auto& file) { return file->name().process != self; });
  for (const auto& file : files.own) {
    place_ = file->find_free();
    if (place_ == nullptr) continue;
    file_ = file;
    break;
  }
  if (place_ == nullptr) {
    files.own.push_back(std::make_shared<EventFile>(doing));
    file_ = files.own.back();
    place_ = &file_->place(0);
  }
  identity_ = ++files.last_identity;
  base_ = place_->next.load();
  place_->base.store(base_);
  place_->identity.store(identity_);
}

SharedEvent::SharedEvent(const NativeEventHandle& handle, int device) {
  const std::string doing = fmt::format("opening another process's event on cuda:{}", device);
  HandleBytes content{};
  std::memcpy(&content, handle.bytes.data(), sizeof content);
  if (content.magic != kEventMagic || content.index >= EventFile::kPlaces) {
    fail(kInvalidValue, doing, device, "the bytes are no event handle of a simulated device");
  }
  const FileName name{{content.pid, content.start_time}, content.descriptor, content.inode};
  if (name.process == this_process()) {
    fail(kDeviceUninitialized, doing, device, "this process exported it");
  }
  require_exporter(name.process, doing, device);
  file_ = EventFiles::instance().open(name, doing, device);
  place_ = &file_->place(content.index);
  identity_ = content.identity;
  base_ = place_->base.load();
  if (identity_ == 0 || place_->identity.load() != identity_) {
    fail(kInvalidResourceHandle, doing, device, "the exporter has destroyed it");
  }
}

SharedEvent::~SharedEvent() {
  if (is_own_) place_->identity.store(0);
}

NativeEventHandle SharedEvent::handle() const {
  const FileName& name = file_->name();
  const HandleBytes content{
      kEventMagic, name.process.start_time,  name.process.pid, name.descriptor,
      name.inode,  file_->index_of(*place_), identity_};
  NativeEventHandle handle;
  static_assert(sizeof content <= sizeof handle.bytes);
  std::memcpy(handle.bytes.data(), &content, sizeof content);
  return handle;
}

std::uint64_t SharedEvent::begin_record() {
  const std::uint64_t ticket = place_->next.fetch_add(1) + 1;
  const ProcessStamp self = this_process();
  EventPlace::Slot& slot = place_->slot(ticket);
  slot.start_time.store(self.start_time);
  slot.pid.store(self.pid);
  slot.ticket.store(ticket);
  std::uint64_t last = place_->recorded.load();
  while (last < ticket && !place_->recorded.compare_exchange_weak(last, ticket)) {
  }
  return ticket;
}

void SharedEvent::complete(std::uint64_t ticket) {
  std::atomic<std::uint64_t>& completed = place_->slot(ticket).completed;
  std::uint64_t last = completed.load();
  while (last < ticket && !completed.compare_exchange_weak(last, ticket)) {
  }
  place_->bell.fetch_add(1);
  futex_wake_all_shared(&place_->bell);
}

std::uint64_t SharedEvent::recorded() const {
  const std::uint64_t last = place_->recorded.load();
  return last > base_ ? last : 0;
}

bool SharedEvent::is_reached(std::uint64_t ticket) const noexcept {
  return place_->slot(ticket).completed.load() >= ticket;
}

bool SharedEvent::query(std::uint64_t ticket) const {
  const EventPlace::Slot& slot = place_->slot(ticket);
  if (is_reached(ticket)) return true;
  const ProcessStamp recorder{slot.pid.load(), slot.start_time.load()};
  // A slot that was taken over belongs to a record 64 later; its process answers for both.
  if (!has_ended(recorder) || is_reached(ticket)) return is_reached(ticket);
  fail(kLaunchFailure, "waiting for an event of another process", -1,
       fmt::format("the process that recorded the event ({}) is gone", recorder.pid));
}

void SharedEvent::wait(std::uint64_t ticket) const {
  for (;;) {
    const std::uint32_t seen = place_->bell.load();
    if (is_reached(ticket)) return;
    if (!pause_task()) futex_wait_shared(place_->bell, seen, kDeathPollMs);
    if (place_->bell.load() == seen && query(ticket)) return;
  }
}

}  // namespace gantry::sim
