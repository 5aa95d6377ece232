// libgantry_mpi.so: see Note [MPI without its header].
#include <mpi.h>

#include <cstdio>
#include <cstring>

#include "collectives/mpi/functions.hpp"

namespace gantry {
namespace {

static_assert(sizeof(MPI_Comm) <= sizeof(MpiComm) && sizeof(MPI_Request) <= sizeof(MpiRequest));

MPI_Comm load(const MpiComm& comm) {
  MPI_Comm loaded = MPI_COMM_NULL;
  if (comm != MpiComm{}) std::memcpy(&loaded, &comm.bits, sizeof loaded);
  return loaded;
}

// Two names: an MPI library may have one type, int, for all its handles.
MpiComm stored_comm(MPI_Comm comm) {
  MpiComm result;
  if (comm != MPI_COMM_NULL) std::memcpy(&result.bits, &comm, sizeof comm);
  return result;
}

MPI_Request load(const MpiRequest& request) {
  MPI_Request loaded = MPI_REQUEST_NULL;
  if (request != MpiRequest{}) std::memcpy(&loaded, &request.bits, sizeof loaded);
  return loaded;
}

MpiRequest stored_request(MPI_Request request) {
  MpiRequest result;
  if (request != MPI_REQUEST_NULL) std::memcpy(&result.bits, &request, sizeof request);
  return result;
}

// Calls `start(request)`, which starts an operation.
template <class Start>
int started(MpiRequest* request, Start start) {
  MPI_Request made = MPI_REQUEST_NULL;
  const int status = start(&made);
  *request = stored_request(made);
  return status;
}

void error_text(int status, char* text, int bytes) {
  char whole[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(status, whole, &length);
  std::snprintf(text, static_cast<std::size_t>(bytes), "%s", whole);
}

int initialize() {
  int provided = 0;
  return MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided);
}

int max_tag(int* tag) {
  constexpr int kMinMaxTag = 32'767;  // every MPI has at least this one
  int* most = nullptr;
  int is_known = 0;
  const int status =
      MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, static_cast<void*>(&most), &is_known);
  *tag = status == MPI_SUCCESS && is_known != 0 ? *most : kMinMaxTag;
  return status;
}

int comm_rank(MpiComm comm, int* rank) { return MPI_Comm_rank(load(comm), rank); }
int comm_size(MpiComm comm, int* size) { return MPI_Comm_size(load(comm), size); }

int comm_test_inter(MpiComm comm, int* is_inter) {
  return MPI_Comm_test_inter(load(comm), is_inter);
}
int comm_free(MpiComm comm) {
  MPI_Comm freed = load(comm);
  return MPI_Comm_free(&freed);
}

// The bytes of MPI_COMM_NULL itself.
MpiComm null_comm() {
  const MPI_Comm null = MPI_COMM_NULL;
  MpiComm result;
  std::memcpy(&result.bits, &null, sizeof null);
  return result;
}

int comm_idup(MpiComm comm, MpiComm* made, MpiRequest* request) {
  return started(request, [&](MPI_Request* started) {
    return MPI_Comm_idup(load(comm), reinterpret_cast<MPI_Comm*>(&made->bits), started);
  });
}

int comm_create_group(const int* ranks, int count, int tag, MpiComm* made) {
  MPI_Group world = MPI_GROUP_NULL;
  MPI_Group chosen = MPI_GROUP_NULL;
  MPI_Comm comm = MPI_COMM_NULL;
  int status = MPI_Comm_group(MPI_COMM_WORLD, &world);
  if (status == MPI_SUCCESS) status = MPI_Group_incl(world, count, ranks, &chosen);
  if (status == MPI_SUCCESS) status = MPI_Comm_create_group(MPI_COMM_WORLD, chosen, tag, &comm);
  if (chosen != MPI_GROUP_NULL) MPI_Group_free(&chosen);
  if (world != MPI_GROUP_NULL) MPI_Group_free(&world);
  *made = stored_comm(comm);
  return status;
}

int comm_return_errors(MpiComm comm) {
  return MPI_Comm_set_errhandler(load(comm), MPI_ERRORS_RETURN);
}

int isend(const void* data, int bytes, int to, int tag, MpiComm comm, MpiRequest* request) {
  return started(request, [&](MPI_Request* made) {
    return MPI_Isend(data, bytes, MPI_BYTE, to, tag, load(comm), made);
  });
}

int irecv(void* data, int bytes, int from, int tag, MpiComm comm, MpiRequest* request) {
  return started(request, [&](MPI_Request* made) {
    return MPI_Irecv(data, bytes, MPI_BYTE, from, tag, load(comm), made);
  });
}

int recv(void* data, int bytes, int from, int tag, MpiComm comm) {
  return MPI_Recv(data, bytes, MPI_BYTE, from, tag, load(comm), MPI_STATUS_IGNORE);
}

int iprobe(int tag, MpiComm comm, int* is_there, int* from) {
  MPI_Status status{};
  *is_there = 0;
  const int result = MPI_Iprobe(MPI_ANY_SOURCE, tag, load(comm), is_there, &status);
  if (*is_there != 0) *from = status.MPI_SOURCE;
  return result;
}

int iallgather(const void* data, int bytes, void* all, MpiComm comm, MpiRequest* request) {
  return started(request, [&](MPI_Request* made) {
    return MPI_Iallgather(data, bytes, MPI_BYTE, all, bytes, MPI_BYTE, load(comm), made);
  });
}

int iallgatherv(const void* data, int bytes, void* all, const int* counts, const int* offsets,
                MpiComm comm, MpiRequest* request) {
  return started(request, [&](MPI_Request* made) {
    return MPI_Iallgatherv(data, bytes, MPI_BYTE, all, counts, offsets, MPI_BYTE, load(comm), made);
  });
}

int test(MpiRequest* request, int* is_done, int* received) {
  MPI_Request loaded = load(*request);
  MPI_Status status{};
  *is_done = 0;
  const int result = MPI_Test(&loaded, is_done, &status);
  *request = stored_request(loaded);
  if (result != MPI_SUCCESS || *is_done == 0 || received == nullptr) return result;
  return MPI_Get_count(&status, MPI_BYTE, received);
}

int cancel(MpiRequest* request) {
  MPI_Request loaded = load(*request);
  const int status = MPI_Cancel(&loaded);
  *request = stored_request(loaded);
  return status;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const MpiFunctions* gantry_mpi_functions();

const MpiFunctions* gantry_mpi_functions() {
  static const MpiFunctions functions{
      .version = kMpiFunctionsVersion,
      .bound_function = PMPI_Initialized,
      .world = stored_comm(MPI_COMM_WORLD),
      .null = null_comm(),
      .error_text = error_text,
      .initialized = MPI_Initialized,
      .finalized = MPI_Finalized,
      .initialize = initialize,
      .finalize = MPI_Finalize,
      .max_tag = max_tag,
      .comm_rank = comm_rank,
      .comm_size = comm_size,
      .comm_test_inter = comm_test_inter,
      .comm_idup = comm_idup,
      .comm_create_group = comm_create_group,
      .comm_free = comm_free,
      .comm_return_errors = comm_return_errors,
      .isend = isend,
      .irecv = irecv,
      .recv = recv,
      .iprobe = iprobe,
      .iallgather = iallgather,
      .iallgatherv = iallgatherv,
      .test = test,
      .cancel = cancel,
  };
  return &functions;
}

}  // namespace gantry
