#include "machine/nvml/nvml.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include "core/processes/background_thread.hpp"
#include "machine/nvml/nvml_functions.hpp"

namespace gantry::machine {
namespace {

constexpr unsigned kTextBytes = 96;
constexpr unsigned kMaxLinks = 36;  // more than any device has
constexpr unsigned kFieldLinkState = 165;
constexpr unsigned kScopeNode = 0;
constexpr unsigned kMaxCpus = 4096;
constexpr int kPeerRead = 0;
constexpr int kPeerWrite = 1;
constexpr int kPeerNvlink = 2;
constexpr unsigned kBitsPerWord = 8 * sizeof(unsigned long);

std::vector<int> bits(const std::vector<unsigned long>& words) {
  std::vector<int> numbers;
  for (unsigned i = 0; i < words.size() * kBitsPerWord; ++i) {
    if ((words[i / kBitsPerWord] >> (i % kBitsPerWord) & 1U) != 0) {
      numbers.push_back(static_cast<int>(i));
    }
  }
  return numbers;
}

NvmlRemote remote_of(int type) {
  switch (type) {
    case 0:
      return NvmlRemote::gpu;
    case 1:
      return NvmlRemote::npu;
    case 2:
      return NvmlRemote::nvswitch;
    default:
      return NvmlRemote::unknown;
  }
}

}  // namespace

std::string short_bus_id(std::string_view text) {
  std::string id(text);
  std::transform(id.begin(), id.end(), id.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (id.size() == 16 && id.starts_with("0000")) id.erase(0, 4);
  return id;
}

Nvml::Nvml(const std::string& path) {
  // NVML starts threads, which may outlive its shutdown. They inherit this mask: a signal for the
  // program that reached one of them would be lost, or end the program.
  const BlockedSignals blocked;
  functions_ = std::make_unique<Functions>(path);
  problem_ = functions_->library.problem();
  if (!problem_.empty()) return;
  if (const int code = functions_->init(); code != kNvmlSuccess) {
    problem_ = fmt::format("NVML does not start: {}", error_text(code));
    return;
  }
  is_initialised_ = true;
}

Nvml::~Nvml() {
  if (is_initialised_) functions_->shutdown();
}

std::string Nvml::error_text(int code) const {
  if (code == kNvmlFunctionNotFound) return "the driver lacks this function";
  const char* text = functions_->error_string == nullptr ? nullptr : functions_->error_string(code);
  return text != nullptr ? text : fmt::format("error {}", code);
}

NvmlResult<std::string> Nvml::text(int (*getter)(NvmlDevice, char*, unsigned),
                                   NvmlDevice device) const {
  if (!is_initialised_ || getter == nullptr) return failure<std::string>(kNvmlFunctionNotFound);
  std::array<char, kTextBytes> buffer{};
  if (const int code = getter(device, buffer.data(), kTextBytes); code != kNvmlSuccess) {
    return failure<std::string>(code);
  }
  buffer.back() = '\0';
  return {buffer.data(), {}};
}

NvmlResult<std::string> Nvml::driver_version() const {
  if (!is_initialised_ || functions_->driver_version == nullptr) {
    return failure<std::string>(kNvmlFunctionNotFound);
  }
  std::array<char, kTextBytes> buffer{};
  if (const int code = functions_->driver_version(buffer.data(), kTextBytes);
      code != kNvmlSuccess) {
    return failure<std::string>(code);
  }
  buffer.back() = '\0';
  return {buffer.data(), {}};
}

NvmlResult<int> Nvml::device_count() const {
  const auto count = ask<unsigned>(functions_->count);
  if (!count) return {std::nullopt, count.problem};
  return {static_cast<int>(*count), {}};
}

NvmlResult<NvmlDevice> Nvml::device(int index) const {
  return ask<NvmlDevice>(functions_->by_index, static_cast<unsigned>(index));
}

NvmlResult<NvmlDevice> Nvml::device_by_uuid(const std::string& uuid) const {
  return ask<NvmlDevice>(functions_->by_uuid, uuid.c_str());
}

NvmlResult<std::string> Nvml::name(NvmlDevice device) const {
  return text(functions_->name, device);
}

NvmlResult<std::string> Nvml::uuid(NvmlDevice device) const {
  return text(functions_->uuid, device);
}

NvmlResult<std::string> Nvml::pci_bus_id(NvmlDevice device) const {
  auto info = ask<NvmlPciInfo>(functions_->pci_info, device);
  if (!info) return {std::nullopt, info.problem};
  info.value->bus_id[sizeof info.value->bus_id - 1] = '\0';
  return {short_bus_id(info->bus_id), {}};
}

NvmlResult<std::array<int, 2>> Nvml::compute_capability(NvmlDevice device) const {
  using Result = std::array<int, 2>;
  if (!is_initialised_ || functions_->capability == nullptr) {
    return failure<Result>(kNvmlFunctionNotFound);
  }
  Result numbers{};
  const int code = functions_->capability(device, &numbers[0], &numbers[1]);
  if (code != kNvmlSuccess) return failure<Result>(code);
  return {numbers, {}};
}

NvmlResult<bool> Nvml::is_divided(NvmlDevice device) const {
  if (!is_initialised_ || functions_->mig_mode == nullptr) {
    return failure<bool>(kNvmlFunctionNotFound);
  }
  unsigned mode = 0;
  unsigned pending = 0;
  if (const int code = functions_->mig_mode(device, &mode, &pending); code != kNvmlSuccess) {
    return failure<bool>(code);
  }
  return {mode == 1, {}};
}

NvmlResult<std::vector<NvmlDevice>> Nvml::mig_instances(NvmlDevice device) const {
  using Result = std::vector<NvmlDevice>;
  const auto divided = is_divided(device);
  if (!divided) return {std::nullopt, divided.problem};
  if (!*divided) return {Result{}, {}};
  const auto count = ask<unsigned>(functions_->mig_count, device);
  if (!count) return {std::nullopt, count.problem};
  Result instances;
  for (unsigned i = 0; i < *count; ++i) {
    const auto instance = ask<NvmlDevice>(functions_->mig_by_index, device, i);
    if (instance) instances.push_back(*instance);
  }
  return {std::move(instances), {}};
}

NvmlResult<NvmlDevice> Nvml::gpu_of_instance(NvmlDevice instance) const {
  return ask<NvmlDevice>(functions_->mig_parent, instance);
}

NvmlResult<NvmlAncestor> Nvml::common_ancestor(NvmlDevice a, NvmlDevice b) const {
  const auto level = ask<int>(functions_->common_ancestor, a, b);
  if (!level) return {std::nullopt, level.problem};
  return {static_cast<NvmlAncestor>(*level), {}};
}

NvmlResult<bool> Nvml::peer_access(NvmlDevice a, NvmlDevice b) const {
  const auto read = ask<int>(functions_->p2p_status, a, b, kPeerRead);
  if (!read) return {std::nullopt, read.problem};
  const auto write = ask<int>(functions_->p2p_status, a, b, kPeerWrite);
  if (!write) return {std::nullopt, write.problem};
  return {*read == 0 && *write == 0, {}};
}

NvmlResult<bool> Nvml::has_nvlink(NvmlDevice a, NvmlDevice b) const {
  for (const auto& [from, to] : {std::pair(a, b), std::pair(b, a)}) {
    const auto status = ask<int>(functions_->p2p_status, from, to, kPeerNvlink);
    if (!status) return {std::nullopt, status.problem};
    if (*status != 0) return {false, {}};
  }
  return {true, {}};
}

// Since sm_90 some drivers tell a link's state as a field only.
std::optional<bool> Nvml::link_state(NvmlDevice device, unsigned link) const {
  const auto state = ask<unsigned>(functions_->link_state, device, link);
  if (state) return *state == 1;
  if (!is_initialised_ || functions_->fields == nullptr) return std::nullopt;
  NvmlFieldValue field{};
  field.field = kFieldLinkState;
  field.scope = link;
  if (functions_->fields(device, 1, &field) != kNvmlSuccess || field.result != kNvmlSuccess) {
    return std::nullopt;
  }
  return static_cast<unsigned>(field.value) == 1;
}

std::vector<NvmlLink> Nvml::links(NvmlDevice device) const {
  std::vector<NvmlLink> links;
  for (unsigned i = 0; i < kMaxLinks; ++i) {
    const auto active = link_state(device, i);
    if (!active) break;
    NvmlLink link;
    link.index = static_cast<int>(i);
    link.is_active = *active;
    if (*active) {
      const auto remote = ask<int>(functions_->link_remote, device, i);
      if (remote) link.remote = remote_of(*remote);
      auto pci = ask<NvmlPciInfo>(functions_->link_pci, device, i);
      if (pci) {
        pci.value->bus_id[sizeof pci.value->bus_id - 1] = '\0';
        link.remote_bus_id = short_bus_id(pci->bus_id);
      }
    }
    links.push_back(std::move(link));
  }
  return links;
}

NvmlPcie Nvml::pcie(NvmlDevice device) const {
  return {ask<unsigned>(functions_->pcie_generation, device).value,
          ask<unsigned>(functions_->pcie_width, device).value,
          ask<unsigned>(functions_->max_pcie_generation, device).value,
          ask<unsigned>(functions_->max_pcie_width, device).value};
}

NvmlResult<std::vector<int>> Nvml::near_cpus(NvmlDevice device) const {
  using Result = std::vector<int>;
  if (!is_initialised_ || functions_->near_cpus == nullptr) {
    return failure<Result>(kNvmlFunctionNotFound);
  }
  std::vector<unsigned long> words(kMaxCpus / kBitsPerWord);
  const int code =
      functions_->near_cpus(device, static_cast<unsigned>(words.size()), words.data(), kScopeNode);
  if (code != kNvmlSuccess) return failure<Result>(code);
  return {bits(words), {}};
}

NvmlResult<std::vector<int>> Nvml::near_nodes(NvmlDevice device) const {
  using Result = std::vector<int>;
  if (!is_initialised_ || functions_->near_nodes == nullptr) {
    return failure<Result>(kNvmlFunctionNotFound);
  }
  std::vector<unsigned long> words(kMaxCpus / kBitsPerWord);
  const int code =
      functions_->near_nodes(device, static_cast<unsigned>(words.size()), words.data(), kScopeNode);
  if (code != kNvmlSuccess) return failure<Result>(code);
  return {bits(words), {}};
}

}  // namespace gantry::machine
