#include "launcher/run/failures/error_note.hpp"

#include <cstddef>
#include <optional>
#include <utility>

#include "core/files/output_file.hpp"
#include "core/text/json.hpp"

namespace gantry::launcher {
namespace {

constexpr std::size_t kMaxErrorFileBytes = 16 << 20;

std::vector<int> numbers_of(const Json& json, const char* name) {
  std::vector<int> numbers;
  const Json* const list = json.find(name);
  if (list == nullptr || !list->is_array()) return numbers;
  for (const Json& entry : list->elements()) {
    const std::optional<std::int64_t> number = entry.integer();
    if (number && std::in_range<int>(*number)) numbers.push_back(static_cast<int>(*number));
  }
  return numbers;
}

FailureCause cause_of(const Json& json) {
  const Json* const kind = json.find("kind");
  if (kind == nullptr) return FailureCause::itself;
  if (*kind == "peer_lost") return FailureCause::peer_lost;
  if (*kind == "timed_out") return FailureCause::timed_out;
  if (*kind == "mismatch") return FailureCause::mismatch;
  return FailureCause::itself;
}

}  // namespace

ErrorNote parse_error_note(std::string text) {
  ErrorNote note;
  const std::optional<Json> json = Json::try_parse(valid_utf8(text));
  const Json* const message = json ? json->find("message") : nullptr;
  if (message != nullptr && message->is_string()) {
    note.cause = cause_of(*json);
    note.ranks = numbers_of(*json, "ranks");
    text = message->as<std::string>();
  } else if (message != nullptr) {
    const Json* const inner = message->find("message");
    if (inner != nullptr && inner->is_string()) text = inner->as<std::string>();
  }
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  note.message = std::move(text);
  return note;
}

ErrorNote read_error_note(const std::string& path) {
  FileContent file = read_output(path, kMaxErrorFileBytes);
  return file.ok() ? parse_error_note(std::move(file.text)) : ErrorNote{};
}

}  // namespace gantry::launcher
