#include "memory/trace/gantry_code.hpp"

#include <elf.h>
#include <link.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <fstream>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

namespace gantry::memory {
namespace {

using Range = CodeRanges::Range;

// The file of gantry's library, and where it was loaded.
struct Module {
  std::string path;
  std::uintptr_t base = 0;
  std::vector<Range> code;
};

int find_module(dl_phdr_info* info, std::size_t, void* result) {
  const std::string_view path = info->dlpi_name;
  if (!path.substr(path.rfind('/') + 1).starts_with("libgantry.")) return 0;
  auto& module = *static_cast<Module*>(result);
  module.path = path;
  module.base = info->dlpi_addr;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& part = info->dlpi_phdr[i];
    if (part.p_type != PT_LOAD || (part.p_flags & PF_X) == 0) continue;
    const std::uintptr_t begin = info->dlpi_addr + part.p_vaddr;
    module.code.push_back({begin, begin + part.p_memsz});
  }
  return 1;
}

// `count` records at `offset` of the file; none if the file ends before.
template <class Record>
std::vector<Record> read_at(std::ifstream& file, std::uint64_t offset, std::uint64_t count) {
  std::vector<Record> records(count);
  file.seekg(static_cast<std::streamoff>(offset));
  file.read(reinterpret_cast<char*>(records.data()),
            static_cast<std::streamsize>(count * sizeof(Record)));
  if (!file) records.clear();
  return records;
}

// The functions of namespace gantry::memory, and the instances of templates for its types. The
// symbol table has the hidden names, too, unless it was stripped.
std::vector<Range> memory_functions(const Module& module) {
  constexpr std::string_view kMangled = "6gantry6memory";
  std::ifstream file(module.path, std::ios::binary);
  const auto headers = read_at<ElfW(Ehdr)>(file, 0, 1);
  if (headers.empty()) return {};
  const auto sections = read_at<ElfW(Shdr)>(file, headers[0].e_shoff, headers[0].e_shnum);
  std::vector<Range> functions;
  for (const ElfW(Shdr) & table : sections) {
    if (table.sh_type != SHT_SYMTAB || table.sh_link >= sections.size()) continue;
    const ElfW(Shdr)& texts = sections[table.sh_link];
    const auto symbols =
        read_at<ElfW(Sym)>(file, table.sh_offset, table.sh_size / sizeof(ElfW(Sym)));
    auto names = read_at<char>(file, texts.sh_offset, texts.sh_size);
    if (names.empty()) continue;
    names.back() = '\0';
    for (const ElfW(Sym) & symbol : symbols) {
      // The type has the same bits in files of 32 and of 64 bits.
      if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC || symbol.st_name >= names.size()) continue;
      if (std::string_view(&names[symbol.st_name]).find(kMangled) == std::string_view::npos) {
        continue;
      }
      const std::uintptr_t begin = module.base + symbol.st_value;
      functions.push_back({begin, begin + symbol.st_size});
    }
  }
  return functions;
}

constinit std::atomic<const GantryCode*> newest_code{nullptr};

}  // namespace

CodeRanges::CodeRanges(std::vector<Range> ranges, std::uintptr_t max_gap) {
  std::ranges::sort(ranges, {}, &Range::begin);
  for (const Range& range : ranges) {
    if (range.begin >= range.end) continue;
    if (!ranges_.empty() && range.begin <= ranges_.back().end + max_gap) {
      ranges_.back().end = std::max(ranges_.back().end, range.end);
    } else {
      ranges_.push_back(range);
    }
  }
}

bool CodeRanges::contains(std::uintptr_t address) const noexcept {
  const auto after = std::ranges::upper_bound(ranges_, address, {}, &Range::begin);
  return after != ranges_.begin() && address < std::prev(after)->end;
}

const GantryCode& refresh_gantry_code() {
  static auto& mutex = *new std::mutex();
  static auto& lists = *new std::deque<GantryCode>();  // none moves or ends: walks may read it
  Module module;
  dl_iterate_phdr(find_module, &module);
  CodeRanges all(std::move(module.code));
  const std::lock_guard lock(mutex);
  if (lists.empty() || lists.back().all != all) {
    // Between functions lies less than their alignment.
    constexpr std::uintptr_t kPadding = 64;
    CodeRanges memory(memory_functions(module), kPadding);
    newest_code.store(&lists.emplace_back(std::move(all), std::move(memory)),
                      std::memory_order_release);
  }
  return lists.back();
}

const GantryCode& gantry_code() {
  const GantryCode* const code = newest_code.load(std::memory_order_acquire);
  return code != nullptr ? *code : refresh_gantry_code();
}

}  // namespace gantry::memory
