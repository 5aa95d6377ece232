#pragma once

#include <cstdint>

namespace gantry {

// Note [MPI without its header]
// MPI has no common binary interface: each library has handles and constants of its own. Only
// mpi/module.cpp includes mpi.h. It becomes libgantry_mpi.so, which is linked with MPI and gives
// gantry this table of functions. gantry loads it when it needs MPI. So gantry starts without MPI,
// and another MPI library needs only this small library built again.

// Handles of MPI, in its own representation from the first byte on. 0 is the null handle.
struct MpiComm {
  std::uintptr_t bits = 0;
  bool operator==(const MpiComm&) const = default;
};
struct MpiRequest {
  std::uintptr_t bits = 0;
  bool operator==(const MpiRequest&) const = default;
};

// The functions of MPI that gantry uses. Those that return an int return MPI's error code, of which
// 0 is success. Messages are bytes.
struct MpiFunctions {
  // kMpiFunctionsVersion of the module, always the first member.
  std::uint32_t version;
  // PMPI_Initialized, as the loader has bound it in the module.
  int (*bound_function)(int*);
  MpiComm world;
  MpiComm null;  // MPI_COMM_NULL as programs have it, which may have a first byte that is not 0

  void (*error_text)(int status, char* text, int bytes);
  int (*initialized)(int* is_initialized);
  int (*finalized)(int* is_finalized);
  // Initializes MPI for calls of one thread at a time.
  int (*initialize)();
  int (*finalize)();

  int (*max_tag)(int* tag);
  int (*comm_rank)(MpiComm comm, int* rank);
  int (*comm_size)(MpiComm comm, int* size);
  // Sets `is_inter` to true for an intercommunicator.
  int (*comm_test_inter)(MpiComm comm, int* is_inter);
  // `made` and `request` are written until the request is done.
  int (*comm_idup)(MpiComm comm, MpiComm* made, MpiRequest* request);
  // Makes a communicator of these ranks of `world`, which all call this.
  int (*comm_create_group)(const int* ranks, int count, int tag, MpiComm* made);
  int (*comm_free)(MpiComm comm);
  // Makes errors of `comm` return instead of ending the process.
  int (*comm_return_errors)(MpiComm comm);

  int (*isend)(const void* data, int bytes, int to, int tag, MpiComm comm, MpiRequest* request);
  int (*irecv)(void* data, int bytes, int from, int tag, MpiComm comm, MpiRequest* request);
  int (*recv)(void* data, int bytes, int from, int tag, MpiComm comm);
  // Finds a message of any rank; `from` is set if there is one.
  int (*iprobe)(int tag, MpiComm comm, int* is_there, int* from);
  int (*iallgather)(const void* data, int bytes, void* all, MpiComm comm, MpiRequest* request);
  int (*iallgatherv)(const void* data, int bytes, void* all, const int* counts, const int* offsets,
                     MpiComm comm, MpiRequest* request);
  // A request that is done becomes null, and a null one is done. `received` is set to the bytes of
  // a receive that is done; null if they are not wanted.
  int (*test)(MpiRequest* request, int* is_done, int* received);
  int (*cancel)(MpiRequest* request);
};

// Changes with every change of MpiFunctions.
constexpr std::uint32_t kMpiFunctionsVersion = 2;

}  // namespace gantry
