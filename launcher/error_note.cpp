#include "launcher/error_note.hpp"

#include <cstddef>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/regular_file.hpp"

namespace gantry::launcher {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMaxErrorFileBytes = 16 << 20;

// As UTF-8: what is none is replaced.
std::string repaired(const std::string& bytes) {
  return Json::parse(Json(bytes).dump(-1, ' ', false, Json::error_handler_t::replace))
      .get<std::string>();
}

std::vector<int> numbers_of(const Json& json, const char* name) {
  std::vector<int> numbers;
  const auto list = json.find(name);
  if (list == json.end() || !list->is_array()) return numbers;
  for (const Json& entry : *list) {
    if (entry.is_number_integer()) numbers.push_back(entry.get<int>());
  }
  return numbers;
}

Blame blame_of(const Json& json) {
  const auto kind = json.find("kind");
  if (kind == json.end()) return Blame::itself;
  if (*kind == "peer_lost") return Blame::peer_lost;
  if (*kind == "timed_out") return Blame::timed_out;
  if (*kind == "mismatch") return Blame::mismatch;
  return Blame::itself;
}

}  // namespace

ErrorNote parse_error_note(std::string text) {
  ErrorNote note;
  const Json json = Json::parse(repaired(text), nullptr, false);
  if (json.is_object() && json.contains("message")) {
    const Json& message = json["message"];
    if (message.is_string()) {
      note.blame = blame_of(json);
      note.ranks = numbers_of(json, "ranks");
      text = message.get<std::string>();
    } else if (message.is_object() && message.contains("message") &&
               message["message"].is_string()) {
      text = message["message"].get<std::string>();
    }
  }
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  note.message = std::move(text);
  return note;
}

ErrorNote read_error_note(const std::string& path) {
  FileContent file = read_regular_file(path, kMaxErrorFileBytes);
  return file.ok() ? parse_error_note(std::move(file.text)) : ErrorNote{};
}

}  // namespace gantry::launcher
