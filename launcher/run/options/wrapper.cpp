#include "launcher/run/options/wrapper.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <optional>

#include <gantry/core/error.hpp>
#include <gantry/machine/cpu_set.hpp>

namespace gantry::launcher {
namespace {

// Words as a shell separates them; it expands nothing else.
std::vector<std::string> words_of(std::string_view text, std::string_view option) {
  std::vector<std::string> words;
  std::optional<std::string> word;
  char quote = '\0';
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool is_escape = c == '\\' && quote != '\'' && i + 1 < text.size();
    if (is_escape) {
      word = word.value_or("") + text[++i];
    } else if (quote != '\0') {
      if (c == quote) {
        quote = '\0';
      } else {
        *word += c;
      }
    } else if (c == '"' || c == '\'') {
      quote = c;
      word = word.value_or("");
    } else if (c == ' ' || c == '\t' || c == '\n') {
      if (word) words.push_back(*word);
      word.reset();
    } else {
      word = word.value_or("") + c;
    }
  }
  if (quote != '\0') {
    throw InvalidArgument(
        fmt::format("{}: expected a closing {}, but got '{}'", option, quote, text));
  }
  if (word) words.push_back(*word);
  if (words.empty() || words.front().empty()) {
    throw InvalidArgument(
        fmt::format("{}: expected a command such as 'gdb --args', but got '{}'", option, text));
  }
  return words;
}

std::string expanded(std::string_view word, int rank, int local_rank) {
  std::string text;
  for (std::size_t i = 0; i < word.size(); ++i) {
    const char field = word[i] == '%' && i + 1 < word.size() ? word[i + 1] : '\0';
    switch (field) {
      case 'r':
        text += std::to_string(rank);
        break;
      case 'l':
        text += std::to_string(local_rank);
        break;
      case '%':
        text += '%';
        break;
      default:  // of the command's own: nsys has %p, %q{NAME}
        text += word[i];
        continue;
    }
    ++i;
  }
  return text;
}

}  // namespace

Wrapper parse_wrapper(std::string_view text) { return {{}, words_of(text, "--wrap")}; }

Wrapper parse_rank_wrapper(std::string_view text) {
  const std::size_t equals = text.find('=');
  std::vector<int> ranks;
  if (equals != std::string_view::npos) {
    try {
      ranks = machine::CpuSet::parse(text.substr(0, equals)).cpus();  // a list of the same form
    } catch (const InvalidArgument&) {
      ranks.clear();
    }
  }
  if (ranks.empty()) {
    throw InvalidArgument(fmt::format(
        "--wrap-rank: expected ranks and a command such as 0='gdb --args', but got '{}'", text));
  }
  return {std::move(ranks), words_of(text.substr(equals + 1), "--wrap-rank")};
}

std::vector<std::string> wrapper_of(const std::vector<Wrapper>& wrappers, int rank,
                                    int local_rank) {
  const Wrapper* chosen = nullptr;
  for (const Wrapper& wrapper : wrappers) {
    const bool names_it =
        std::find(wrapper.ranks.begin(), wrapper.ranks.end(), rank) != wrapper.ranks.end();
    const bool is_for_all = wrapper.ranks.empty() && (chosen == nullptr || chosen->ranks.empty());
    if (names_it || is_for_all) chosen = &wrapper;
  }
  std::vector<std::string> words;
  if (chosen == nullptr) return words;
  for (const std::string& word : chosen->words) {
    words.push_back(expanded(word, rank, local_rank));
  }
  return words;
}

void check_wrappers(const std::vector<Wrapper>& wrappers, int ranks) {
  for (const Wrapper& wrapper : wrappers) {
    for (const int rank : wrapper.ranks) {
      if (rank < ranks) continue;
      throw InvalidArgument(
          fmt::format("--wrap-rank {}: the job has ranks 0 to {}", rank, ranks - 1));
    }
  }
}

}  // namespace gantry::launcher
