#include "kernels/cuda/jit/nvrtc.hpp"

#include <cuda.h>
#include <fmt/format.h>
#include <nvrtc.h>
#include <sys/stat.h>

#include <algorithm>
#include <sstream>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/kernels/compile_error.hpp>

#include "core/files/loaded_library.hpp"
#include "core/text/escaped_text.hpp"
#include "kernels/jit/counts.hpp"
#include "kernels/jit/program.hpp"

namespace gantry::kernels::cuda {

namespace {

// The functions of NVRTC that gantry uses. The library is loaded when a program is compiled: it has
// a hundred megabytes, and most processes find their programs in files.
struct Nvrtc : LibraryFunctions {
  using LibraryFunctions::LibraryFunctions;
  decltype(&nvrtcVersion) version = bind("nvrtcVersion");
  decltype(&nvrtcGetErrorString) error_string = bind("nvrtcGetErrorString");
  decltype(&nvrtcCreateProgram) create_program = bind("nvrtcCreateProgram");
  decltype(&nvrtcDestroyProgram) destroy_program = bind("nvrtcDestroyProgram");
  decltype(&nvrtcCompileProgram) compile_program = bind("nvrtcCompileProgram");
  decltype(&nvrtcGetProgramLogSize) log_size = bind("nvrtcGetProgramLogSize");
  decltype(&nvrtcGetProgramLog) log = bind("nvrtcGetProgramLog");
  decltype(&nvrtcGetCUBINSize) cubin_size = bind("nvrtcGetCUBINSize");
  decltype(&nvrtcGetCUBIN) cubin = bind("nvrtcGetCUBIN");
  decltype(&nvrtcGetPTXSize) ptx_size = bind("nvrtcGetPTXSize");
  decltype(&nvrtcGetPTX) ptx = bind("nvrtcGetPTX");
  decltype(&nvrtcGetNumSupportedArchs) architecture_count = bind("nvrtcGetNumSupportedArchs");
  decltype(&nvrtcGetSupportedArchs) architectures = bind("nvrtcGetSupportedArchs");
};

constexpr int kMajor = CUDA_VERSION / 1000;

// Another major version makes code that the driver of this one may not take. The toolkit's own
// folder comes first: the file there can be told from others without loading it.
std::string toolkit_file() { return fmt::format(GANTRY_NVRTC_FOLDER "/libnvrtc.so.{}", kMajor); }

const Nvrtc& nvrtc() {
  static const auto& loaded = *new LoadedLibrary<Nvrtc>(
      SharedLibrary({toolkit_file(), fmt::format("libnvrtc.so.{}", kMajor)},
                    fmt::format("install NVRTC {}, or add its folder to LD_LIBRARY_PATH", kMajor)));
  return loaded.require("jit::elementwise");
}

void check(nvrtcResult status, const char* call) {
  if (status == NVRTC_SUCCESS) return;
  throw Error(fmt::format("jit::elementwise: failed to compile for the GPU: {} ({}) [{}]",
                          nvrtc().error_string(status), static_cast<int>(status), call));
}

class Program {
 public:
  Program(const std::string& text, const std::string& source) {
    const char* const headers[] = {source.c_str()};
    const char* const names[] = {jit::kSourceFile};
    check(nvrtc().create_program(&program_, text.c_str(), "program.cu", 1, headers, names),
          "nvrtcCreateProgram");
  }
  ~Program() { (void)nvrtc().destroy_program(&program_); }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  [[nodiscard]] nvrtcProgram get() const { return program_; }

  template <class Size, class Content>
  [[nodiscard]] std::string read(Size size_of, Content content, const char* call) const {
    std::size_t size = 0;
    check(size_of(program_, &size), call);
    std::string text(size, '\0');
    check(content(program_, text.data()), call);
    return text;
  }

 private:
  nvrtcProgram program_ = nullptr;
};

// "sm_90", or "compute_89" where NVRTC knows no newer one.
std::string target_of(int architecture) {
  int count = 0;
  check(nvrtc().architecture_count(&count), "nvrtcGetNumSupportedArchs");
  std::vector<int> known(static_cast<std::size_t>(count));
  check(nvrtc().architectures(known.data()), "nvrtcGetSupportedArchs");
  if (std::find(known.begin(), known.end(), architecture) != known.end()) {
    return fmt::format("sm_{}", architecture);
  }
  std::erase_if(known, [&](int other) { return other > architecture; });
  if (known.empty()) {
    throw NotSupported(fmt::format(
        "jit::elementwise: failed to compile for the compute capability {}: this NVRTC knows "
        "newer ones only",
        architecture));
  }
  return fmt::format("compute_{}", *std::max_element(known.begin(), known.end()));
}

}  // namespace

std::string nvrtc_identity() {
  struct stat status {};
  if (stat(toolkit_file().c_str(), &status) == 0) {
    return fmt::format("{} {} {}.{}", toolkit_file(), status.st_size, status.st_mtim.tv_sec,
                       status.st_mtim.tv_nsec);
  }
  int major = 0;
  int minor = 0;
  check(nvrtc().version(&major, &minor), "nvrtcVersion");
  return fmt::format("{}.{}", major, minor);
}

std::string nvrtc_options() {
  return "--std=c++20\n--device-as-default-execution-space\n--fmad=false\n--disable-warnings";
}

std::string compile_for_gpu(int architecture, const std::string& program, const std::string& source,
                            const std::string& what) {
  const std::string target = target_of(architecture);
  std::vector<std::string> options{"--gpu-architecture=" + target};
  std::istringstream lines(nvrtc_options());
  for (std::string line; std::getline(lines, line);) options.push_back(line);
  std::vector<const char*> pointers;
  for (const std::string& option : options) pointers.push_back(option.c_str());
  const Program compiled(program, source);
  jit::count().compiled.fetch_add(1, std::memory_order_relaxed);
  const nvrtcResult status =
      nvrtc().compile_program(compiled.get(), static_cast<int>(pointers.size()), pointers.data());
  if (status == NVRTC_ERROR_COMPILATION) {
    std::string log = compiled.read(nvrtc().log_size, nvrtc().log, "nvrtcGetProgramLog");
    log.resize(std::min(log.find('\0'), log.size()));
    throw ::gantry::jit::CompileError(
        fmt::format("jit::elementwise: failed to compile {} with NVRTC for {}:", what, target),
        escape_control_characters(log, LineEnds::keep));
  }
  check(status, "nvrtcCompileProgram");
  return target.starts_with("sm_")
             ? compiled.read(nvrtc().cubin_size, nvrtc().cubin, "nvrtcGetCUBIN")
             : compiled.read(nvrtc().ptx_size, nvrtc().ptx, "nvrtcGetPTX");
}

}  // namespace gantry::kernels::cuda
