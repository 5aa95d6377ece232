#include "core/stacks/gantry_code.hpp"

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

#include "core/stacks/call_site_symbols.hpp"

namespace gantry::stacks {
namespace {

using Range = CodeRanges::Range;

constexpr std::string_view kLibrary = "libgantry.";

// How often a file was loaded and unloaded since the process began.
struct LoadCounts {
  unsigned long long loads = 0;
  unsigned long long unloads = 0;
  bool operator==(const LoadCounts&) const = default;
};

// A loaded file, and the functions of it that stacks may leave out.
struct Module {
  std::string path;
  std::uintptr_t base = 0;
  std::vector<Range> code;
  std::vector<Range> functions;

  [[nodiscard]] bool is_library() const {
    return std::string_view(path).substr(path.rfind('/') + 1).starts_with(kLibrary);
  }
};

struct ModuleScan {
  LoadCounts known;  ///< the scan stops if nothing has changed since
  LoadCounts now;
  std::vector<Module> modules;
};

int add_module(dl_phdr_info* info, std::size_t, void* result) {
  auto& scan = *static_cast<ModuleScan*>(result);
  scan.now = {info->dlpi_adds, info->dlpi_subs};
  if (scan.now == scan.known) return 1;
  const std::string_view path = info->dlpi_name;
  Module& module = scan.modules.emplace_back();
  module.path = path.empty() ? "/proc/self/exe" : path;
  module.base = info->dlpi_addr;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& part = info->dlpi_phdr[i];
    if (part.p_type != PT_LOAD || (part.p_flags & PF_X) == 0) continue;
    const std::uintptr_t begin = info->dlpi_addr + part.p_vaddr;
    module.code.push_back({begin, begin + part.p_memsz});
  }
  return 0;
}

// The tables of an ELF file; none for what cannot be read.
class ElfFile {
 public:
  explicit ElfFile(const std::string& path) : file_(path, std::ios::binary) {
    const auto headers = read<ElfW(Ehdr)>(0, 1);
    if (!headers.empty()) sections_ = read<ElfW(Shdr)>(headers[0].e_shoff, headers[0].e_shnum);
  }

  // Calls `visit(record, text)` for each record of the tables of `type`. `text(offset)` is a string
  // of the table.
  template <class Record, class Visit>
  void for_each(std::uint32_t type, Visit&& visit) {
    for (const ElfW(Shdr) & table : sections_) {
      if (table.sh_type != type || table.sh_link >= sections_.size()) continue;
      const ElfW(Shdr)& strings = sections_[table.sh_link];
      auto texts = read<char>(strings.sh_offset, strings.sh_size);
      if (texts.empty()) continue;
      texts.back() = '\0';
      const auto text = [&texts](std::uint64_t offset) -> std::string_view {
        return offset < texts.size() ? &texts[offset] : "";
      };
      for (const Record& record : read<Record>(table.sh_offset, table.sh_size / sizeof(Record))) {
        visit(record, text);
      }
    }
  }

 private:
  // `count` records at `offset`; none if the file ends before.
  template <class Record>
  std::vector<Record> read(std::uint64_t offset, std::uint64_t count) {
    std::vector<Record> records(count);
    file_.clear();
    file_.seekg(static_cast<std::streamoff>(offset));
    file_.read(reinterpret_cast<char*>(records.data()),
               static_cast<std::streamsize>(count * sizeof(Record)));
    if (!file_) records.clear();
    return records;
  }

  std::ifstream file_;
  std::vector<ElfW(Shdr)> sections_;
};

bool needs_library(ElfFile& file) {
  bool result = false;
  file.for_each<ElfW(Dyn)>(SHT_DYNAMIC, [&result](const ElfW(Dyn) & entry, const auto& text) {
    result |= entry.d_tag == DT_NEEDED && text(entry.d_un.d_val).starts_with(kLibrary);
  });
  return result;
}

// Of the library: the functions of namespaces gantry::memory and gantry::stacks, and the instances
// of templates for their types. Of a file that needs the library: the functions of namespace
// gantry. The symbol table has the hidden names, too, unless it was stripped.
std::vector<Range> functions_of(const Module& module) {
  ElfFile file(module.path);
  const bool is_library = module.is_library();
  std::vector<Range> functions;
  if (!is_library && !needs_library(file)) return functions;
  file.for_each<ElfW(Sym)>(SHT_SYMTAB, [&](const ElfW(Sym) & symbol, const auto& text) {
    // The type has the same bits in files of 32 and of 64 bits.
    if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC) return;
    const std::string_view name = text(symbol.st_name);
    const auto has = [name](std::string_view part) { return name.find(part) != name.npos; };
    const bool is_own = is_library ? has("6gantry6memory") || has("6gantry6stacks")
                                   : has("6gantry") && is_in_namespace(name, "gantry");
    if (!is_own) return;
    const std::uintptr_t begin = module.base + symbol.st_value;
    functions.push_back({begin, begin + symbol.st_size});
  });
  return functions;
}

// All loaded files, whose tables are read once.
class ModuleList {
 public:
  [[nodiscard]] const LoadCounts& counts() const { return counts_; }

  void update(ModuleScan scan) {
    for (Module& module : scan.modules) {
      const auto known = std::ranges::find_if(modules_, [&module](const Module& other) {
        return other.base == module.base && other.path == module.path;
      });
      module.functions = known != modules_.end() ? known->functions : functions_of(module);
    }
    modules_ = std::move(scan.modules);
    counts_ = scan.now;
  }

  [[nodiscard]] GantryCode code() const {
    constexpr std::uintptr_t kPadding = 64;  // between functions lies less than their alignment
    std::vector<Range> all, memory, program;
    for (const Module& module : modules_) {
      if (module.is_library()) all.insert(all.end(), module.code.begin(), module.code.end());
      std::vector<Range>& functions = module.is_library() ? memory : program;
      functions.insert(functions.end(), module.functions.begin(), module.functions.end());
    }
    return {.all = CodeRanges(std::move(all)),
            .memory = CodeRanges(std::move(memory), kPadding),
            .program = CodeRanges(std::move(program))};
  }

 private:
  LoadCounts counts_;
  std::vector<Module> modules_;
};

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
  static auto& modules = *new ModuleList();
  static auto& lists = *new std::deque<GantryCode>();  // none moves or ends: walks may read it
  ModuleScan scan;
  {
    const std::lock_guard lock(mutex);
    scan.known = modules.counts();
  }
  dl_iterate_phdr(add_module, &scan);  // without the mutex: it waits for the loader's lock
  const std::lock_guard lock(mutex);
  if (scan.now != modules.counts()) {
    modules.update(std::move(scan));
    GantryCode code = modules.code();
    if (lists.empty() || lists.back() != code) {
      newest_code.store(&lists.emplace_back(std::move(code)), std::memory_order_release);
    }
  }
  return lists.back();
}

const GantryCode& gantry_code() {
  const GantryCode* const code = newest_code.load(std::memory_order_acquire);
  return code != nullptr ? *code : refresh_gantry_code();
}

}  // namespace gantry::stacks
