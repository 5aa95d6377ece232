#include "device/sim/sim_ipc.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <type_traits>

#include "device/sim/sim_error.hpp"
#include "device/sim/sim_futex.hpp"
#include "device/sim/sim_memory.hpp"

namespace gantry::sim {

namespace {

constexpr std::uint64_t kMemoryMagic = 0x6d'79'72'74'6e'61'67'01;
constexpr std::uint64_t kEventMagic = 0x76'65'72'74'6e'61'67'01;
constexpr int kDeathPollMs = 20;

// Without padding, so that equal handles have equal bytes.
struct HandleBytes {
  std::uint64_t magic;
  std::uint64_t start_time;
  std::int32_t pid;
  std::int32_t descriptor;
  std::uint64_t inode;
  std::uint64_t bytes;
};
static_assert(std::has_unique_object_representations_v<HandleBytes>);

template <class Handle>
Handle pack(std::uint64_t magic, const FileName& file, std::uint64_t bytes) {
  const HandleBytes content{
      magic, file.process.start_time, file.process.pid, file.descriptor, file.inode, bytes};
  Handle handle;
  static_assert(sizeof content <= sizeof handle.bytes);
  std::memcpy(handle.bytes.data(), &content, sizeof content);
  return handle;
}

template <class Handle>
std::optional<MemoryName> unpack(std::uint64_t magic, const Handle& handle) {
  HandleBytes content{};
  std::memcpy(&content, handle.bytes.data(), sizeof content);
  if (content.magic != magic) return std::nullopt;
  return MemoryName{{{content.pid, content.start_time}, content.descriptor, content.inode},
                    content.bytes};
}

std::optional<std::uint64_t> inode_of(int descriptor) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) return std::nullopt;
  return status.st_ino;
}

}  // namespace

FileName name_file(int descriptor) {
  return {this_process(), descriptor, inode_of(descriptor).value_or(0)};
}

int open_file(const FileName& file, const std::string& doing, int device) {
  const auto gone = [&](const char* why) -> int {
    const bool alive = !has_ended(file.process);
    fail(kInvalidResourceHandle, doing, device,
         alive ? std::string(why)
               : fmt::format("the process that exported it ({}) is gone", file.process.pid));
  };
  if (has_ended(file.process)) return gone("");
  const std::string path = fmt::format("/proc/{}/fd/{}", file.process.pid, file.descriptor);
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (descriptor < 0) {
    if (errno == ENOENT) return gone("the exporter has freed it");
    return gone(std::strerror(errno));
  }
  if (inode_of(descriptor) != file.inode || has_ended(file.process)) {
    ::close(descriptor);
    return gone("the exporter has freed it");
  }
  return descriptor;
}

NativeMemoryHandle encode(const MemoryName& name) {
  return pack<NativeMemoryHandle>(kMemoryMagic, name.file, name.bytes);
}

MemoryName decode(const NativeMemoryHandle& handle, const std::string& doing, int device) {
  const auto name = unpack(kMemoryMagic, handle);
  if (!name || name->bytes == 0) {
    fail(kInvalidValue, doing, device, "the bytes are no memory handle of a simulated device");
  }
  return *name;
}

// What all processes see. Records go to slots in turn; `recorded` is moved once the slot is filled.
struct SharedEvent::Page {
  static constexpr std::size_t kSlots = 64;
  struct Slot {
    std::atomic<std::uint64_t> ticket;
    std::atomic<std::uint64_t> start_time;
    std::atomic<std::int32_t> pid;
    std::atomic<std::uint64_t> completed;
  };

  std::atomic<std::uint64_t> next;
  std::atomic<std::uint64_t> recorded;
  std::atomic<std::uint32_t> bell;
  std::array<Slot, kSlots> slots;

  Slot& slot(std::uint64_t ticket) { return slots[ticket % kSlots]; }
};

SharedEvent::SharedEvent() {
  const std::string doing = "creating an interprocess event";
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
  map(create_memory_file("gantry event", sizeof(Page), doing), doing);
}

SharedEvent::SharedEvent(const NativeEventHandle& handle, int device) {
  const std::string doing = fmt::format("opening another process's event on cuda:{}", device);
  const auto name = unpack(kEventMagic, handle);
  if (!name) {
    fail(kInvalidValue, doing, device, "the bytes are no event handle of a simulated device");
  }
  if (name->file.process == this_process()) {
    fail(kDeviceUninitialized, doing, device, "this process exported it");
  }
  map(open_file(name->file, doing, device), doing);
}

void SharedEvent::map(int descriptor, const std::string& doing) {
  // A fresh file is all zeros, which is the state of an event without a record.
  void* data = ::mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (data == MAP_FAILED) {
    const int reason = errno;
    ::close(descriptor);
    fail(kOperatingSystem, doing, -1, std::strerror(reason));
  }
  descriptor_ = descriptor;
  page_ = static_cast<Page*>(data);
}

SharedEvent::~SharedEvent() {
  ::munmap(page_, sizeof(Page));
  ::close(descriptor_);
}

NativeEventHandle SharedEvent::handle() const {
  return pack<NativeEventHandle>(kEventMagic, name_file(descriptor_), sizeof(Page));
}

std::uint64_t SharedEvent::begin_record() {
  const std::uint64_t ticket = page_->next.fetch_add(1) + 1;
  const ProcessStamp self = this_process();
  Page::Slot& slot = page_->slot(ticket);
  slot.start_time.store(self.start_time);
  slot.pid.store(self.pid);
  slot.ticket.store(ticket);
  std::uint64_t last = page_->recorded.load();
  while (last < ticket && !page_->recorded.compare_exchange_weak(last, ticket)) {
  }
  return ticket;
}

void SharedEvent::complete(std::uint64_t ticket) {
  std::atomic<std::uint64_t>& completed = page_->slot(ticket).completed;
  std::uint64_t last = completed.load();
  while (last < ticket && !completed.compare_exchange_weak(last, ticket)) {
  }
  page_->bell.fetch_add(1);
  futex_wake_all_shared(&page_->bell);
}

std::uint64_t SharedEvent::recorded() const { return page_->recorded.load(); }

bool SharedEvent::is_reached(std::uint64_t ticket) const noexcept {
  return page_->slot(ticket).completed.load() >= ticket;
}

bool SharedEvent::query(std::uint64_t ticket) const {
  const Page::Slot& slot = page_->slot(ticket);
  if (is_reached(ticket)) return true;
  const ProcessStamp recorder{slot.pid.load(), slot.start_time.load()};
  // A slot that was taken over belongs to a record 64 later; its process answers for both.
  if (!has_ended(recorder) || is_reached(ticket)) return is_reached(ticket);
  fail(kLaunchFailure, "waiting for an event of another process", -1,
       fmt::format("the process that recorded the event ({}) is gone", recorder.pid));
}

void SharedEvent::wait(std::uint64_t ticket) const {
  for (;;) {
    const std::uint32_t seen = page_->bell.load();
    if (is_reached(ticket)) return;
    futex_wait_shared(page_->bell, seen, kDeathPollMs);
    if (page_->bell.load() == seen && query(ticket)) return;
  }
}

}  // namespace gantry::sim
