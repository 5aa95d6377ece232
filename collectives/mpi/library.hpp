#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "collectives/mpi/functions.hpp"
#include "core/files/shared_library.hpp"

namespace gantry {

// The module libgantry_mpi.so: see Note [MPI without its header].
class MpiModule {
 public:
  // Loads the first of `candidates` that can be loaded.
  explicit MpiModule(const std::vector<std::string>& candidates);

  // Why MPI cannot be used: as SharedLibrary::problem().
  const std::string& problem() const { return library_.problem(); }
  // Throws: NotSupported "<operation>: <problem>" if there is a problem.
  void require(std::string_view operation) const { library_.require(operation); }
  // Throws: as require().
  const MpiFunctions& functions() const;

 private:
  void check();

  SharedLibrary library_;
  const MpiFunctions* functions_ = nullptr;
};

// The module of this build, which the first call loads.
const MpiModule& mpi_module();
// The functions of mpi_module(). Throws: NotSupported without MPI.
inline const MpiFunctions& mpi() { return mpi_module().functions(); }
// MPI's text of an error code.
std::string mpi_error_text(int status);
// True if an MPI library is in this process, through the program or gantry. Loads nothing.
bool has_loaded_mpi();

}  // namespace gantry
