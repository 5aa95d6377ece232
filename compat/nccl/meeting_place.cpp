#include "compat/nccl/meeting_place.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <sys/random.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <map>
#include <mutex>
#include <string_view>

#include <gantry/core/env.hpp>
#include <gantry/core/error.hpp>

namespace gantry::nccl_api {

namespace {

constexpr std::string_view kMark = "gantry1 ";

// Stores of this process whose groups have not been made yet. Never destroyed.
struct OpenStores {
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<StoreServer>> by_address;

  static OpenStores& all() {
    static auto* const stores = new OpenStores;
    return *stores;
  }
};

std::string random_digits(std::size_t bytes) {
  std::string random(bytes, '\0');
  for (std::size_t got = 0; got < bytes;) {
    const ssize_t more = getrandom(random.data() + got, bytes - got, 0);
    if (more < 0) throw Error("failed to read random bytes for a secret");
    got += static_cast<std::size_t>(more);
  }
  std::string digits;
  for (const char byte : random) {
    digits += "0123456789abcdef"[static_cast<unsigned char>(byte) >> 4];
    digits += "0123456789abcdef"[static_cast<unsigned char>(byte) & 15];
  }
  return digits;
}

// True for an interface that other machines reach, by its name. GANTRY_HOST_INTERFACE chooses.
bool is_wanted(std::string_view name) {
  const std::string chosen = env::get("GANTRY_HOST_INTERFACE").value_or("");
  if (!chosen.empty())
    return ("," + chosen + ",").find("," + std::string(name) + ",") != std::string::npos;
  return !name.starts_with("docker") && !name.starts_with("veth") && !name.starts_with("virbr");
}

// The IPv4 address of this machine's first interface; of the loopback one if there is no other.
std::string own_address() {
  std::string found = "127.0.0.1";
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return found;
  for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next) {
    const bool is_up = (one->ifa_flags & IFF_UP) != 0 && (one->ifa_flags & IFF_LOOPBACK) == 0;
    if (!is_up || one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_INET) continue;
    if (!is_wanted(one->ifa_name)) continue;
    std::array<char, INET_ADDRSTRLEN> text{};
    sockaddr_in address{};
    std::memcpy(&address, one->ifa_addr, sizeof address);
    if (inet_ntop(AF_INET, &address.sin_addr, text.data(), text.size()) == nullptr) continue;
    found = text.data();
    break;
  }
  freeifaddrs(list);
  return found;
}

}  // namespace

MeetingPlace MeetingPlace::open() {
  MeetingPlace place{.address = {}, .token = random_digits(16)};
  std::shared_ptr<StoreServer> server;
  try {
    server = std::make_shared<StoreServer>(
        StoreServerOptions{.address = "tcp:" + own_address() + ":0", .token = place.token});
  } catch (const NotSupported&) {
    // libcrypto is absent, so ranks meet on this machine alone.
    server = std::make_shared<StoreServer>(StoreServerOptions{
        .address = "unix:@gantry-nccl-" + random_digits(8), .token = place.token});
  }
  place.address = server->address();
  OpenStores& stores = OpenStores::all();
  const std::lock_guard lock(stores.mutex);
  stores.by_address.emplace(place.address, std::move(server));
  return place;
}

MeetingPlace MeetingPlace::parse(const ncclUniqueId& id) {
  const std::string_view all(id.internal, strnlen(id.internal, sizeof id.internal));
  const std::size_t gap = all.find(' ', kMark.size());
  if (!all.starts_with(kMark) || gap == std::string_view::npos) {
    throw InvalidArgument(
        "expected an id that gantry's ncclGetUniqueId made, but got another one; preload the "
        "library on every rank");
  }
  return {std::string(all.substr(kMark.size(), gap - kMark.size())),
          std::string(all.substr(gap + 1))};
}

ncclUniqueId MeetingPlace::id() const {
  const std::string text = std::string(kMark) + address + " " + token;
  ncclUniqueId id{};
  if (text.size() >= sizeof id.internal) {
    throw Error("expected an address of at most 80 bytes, but got " + address);
  }
  std::memcpy(id.internal, text.data(), text.size());
  return id;
}

void MeetingPlace::keep_server(std::shared_ptr<StoreServer> server) const {
  OpenStores& stores = OpenStores::all();
  const std::lock_guard lock(stores.mutex);
  stores.by_address.emplace(address, std::move(server));
}

std::shared_ptr<StoreServer> MeetingPlace::take_server() const {
  OpenStores& stores = OpenStores::all();
  const std::lock_guard lock(stores.mutex);
  auto found = stores.by_address.extract(address);
  return found ? std::move(found.mapped()) : nullptr;
}

}  // namespace gantry::nccl_api
