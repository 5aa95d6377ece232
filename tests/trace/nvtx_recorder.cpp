// Stands for a profiler: NVTX loads it (NVTX_INJECTION64_PATH), and it writes every call to the
// file GANTRY_TEST_NVTX_LOG.
#include <nvtx3/nvToolsExt.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace {

std::FILE* log_file() {
  static std::FILE* const file = std::fopen(std::getenv("GANTRY_TEST_NVTX_LOG"), "w");
  return file;
}

void write(const char* call, const char* text) {
  std::fprintf(log_file(), "%s %s\n", call, text);
  std::fflush(log_file());
}

void NVTX_API on_mark(const char* message) { write("mark", message); }
int NVTX_API on_push(const char* message) {
  write("push", message);
  return 0;
}
int NVTX_API on_pop() {
  write("pop", "");
  return 0;
}
nvtxRangeId_t NVTX_API on_start(const char* message) {
  write("start", message);
  return 4711;
}
void NVTX_API on_end(nvtxRangeId_t range) { write("end", range == 4711 ? "4711" : "another"); }

template <class Function>
void set(NvtxFunctionTable table, unsigned index, Function function) {
  *table[index] = reinterpret_cast<NvtxFunctionPointer>(function);
}

}  // namespace

extern "C" int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_export_table) {
  const auto* callbacks =
      static_cast<const NvtxExportTableCallbacks*>(get_export_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned size = 0;
  if (callbacks == nullptr ||
      callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &table, &size) == 0) {
    return 0;
  }
  set(table, NVTX_CBID_CORE_MarkA, on_mark);
  set(table, NVTX_CBID_CORE_RangePushA, on_push);
  set(table, NVTX_CBID_CORE_RangePop, on_pop);
  set(table, NVTX_CBID_CORE_RangeStartA, on_start);
  set(table, NVTX_CBID_CORE_RangeEnd, on_end);
  return 1;
}
