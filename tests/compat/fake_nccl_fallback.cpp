// A library in the place of NCCL's that libgantry_nccl.so hands communicators to. It moves nothing:
// each operation writes its mark to the result, at once. The log has one line for each call.
// FAKE_NCCL_VERSION sets another version, FAKE_NCCL_FAILS names an operation that fails.
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <sstream>
#include <string>
#include <utility>

#include "compat/nccl/types/api.hpp"

struct ncclComm {
  int rank;
  int size;
};

namespace {

std::mutex mutex;
std::string lines;      // of the log
std::string last_line;  // what fake_nccl_log() returned

template <class... Parts>
void log(Parts... parts) {
  std::ostringstream line;
  (line << ... << parts);
  const std::lock_guard lock(mutex);
  lines += line.str() + "\n";
}

std::string name_of(ncclComm_t comm) {
  return " rank " + std::to_string(comm->rank) + "/" + std::to_string(comm->size);
}

// Writes `mark` to the `count` floats of the result.
ncclResult_t act(const char* function, float mark, void* result, std::size_t count,
                 ncclDataType_t type, ncclComm_t comm, int detail) {
  log(function, name_of(comm), " count ", count, " type ", int{type}, " detail ", detail);
  const char* const fails = std::getenv("FAKE_NCCL_FAILS");
  if (fails != nullptr && std::strcmp(fails, function) == 0) return ncclSystemError;
  auto* const floats = static_cast<float*>(result);
  for (std::size_t i = 0; floats != nullptr && i < count; ++i) floats[i] = mark;
  return ncclSuccess;
}

}  // namespace

extern "C" {

// The lines since the last call.
const char* fake_nccl_log() {
  const std::lock_guard lock(mutex);
  last_line = std::exchange(lines, "");
  return last_line.c_str();
}

ncclResult_t ncclGetVersion(int* version) {
  const char* const text = std::getenv("FAKE_NCCL_VERSION");
  *version = text != nullptr ? std::atoi(text) : 22'809;
  return ncclSuccess;
}
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  std::memset(id->internal, 7, sizeof id->internal);
  return ncclSuccess;
}
ncclResult_t ncclCommInitRank(ncclComm_t* comm, int size, ncclUniqueId id, int rank) {
  if (id.internal[0] != 7 || id.internal[127] != 7) return ncclInvalidArgument;
  *comm = new ncclComm{rank, size};
  log("init", name_of(*comm));
  return ncclSuccess;
}
ncclResult_t ncclCommInitAll(ncclComm_t* comms, int count, const int* devices) {
  for (int i = 0; i < count; ++i) {
    comms[i] = new ncclComm{i, count};
    log("init_all", name_of(comms[i]), " device ", devices[i]);
  }
  return ncclSuccess;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  log("destroy", name_of(comm));
  delete comm;
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  log("abort", name_of(comm));
  delete comm;
  return ncclSuccess;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t /*comm*/, ncclResult_t* state) {
  const char* const fails = std::getenv("FAKE_NCCL_FAILS");
  const bool has_failed = fails != nullptr && std::strcmp(fails, "async") == 0;
  *state = has_failed ? ncclRemoteError : ncclSuccess;
  return ncclSuccess;
}
const char* ncclGetLastError(ncclComm_t /*comm*/) { return "the fake's detail"; }
const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclSystemError ? "fake system error" : "fake error";
}
ncclResult_t ncclGroupStart() {
  log("group_start");
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  log("group_end");
  return ncclSuccess;
}
ncclResult_t ncclAllReduce(const void* /*send*/, void* recv, std::size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t /*stream*/) {
  return act("all_reduce", 101, recv, count, type, comm, int{op});
}
ncclResult_t ncclReduce(const void* /*send*/, void* recv, std::size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t /*stream*/) {
  return act("reduce", 102, recv, count, type, comm, 10 * root + int{op});
}
ncclResult_t ncclBroadcast(const void* /*send*/, void* recv, std::size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t /*stream*/) {
  return act("broadcast", 103, recv, count, type, comm, root);
}
ncclResult_t ncclAllGather(const void* /*send*/, void* recv, std::size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t /*stream*/) {
  return act("all_gather", 104, recv, count, type, comm, 0);
}
ncclResult_t ncclReduceScatter(const void* /*send*/, void* recv, std::size_t count,
                               ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                               cudaStream_t /*stream*/) {
  return act("reduce_scatter", 105, recv, count, type, comm, int{op});
}
ncclResult_t ncclGather(const void* /*send*/, void* recv, std::size_t count, ncclDataType_t type,
                        int root, ncclComm_t comm, cudaStream_t /*stream*/) {
  return act("gather", 106, recv, count, type, comm, root);
}
ncclResult_t ncclScatter(const void* /*send*/, void* recv, std::size_t count, ncclDataType_t type,
                         int root, ncclComm_t comm, cudaStream_t /*stream*/) {
  return act("scatter", 107, recv, count, type, comm, root);
}
// ncclAlltoAll is absent, as before NCCL 2.28.
ncclResult_t ncclSend(const void* /*send*/, std::size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t /*stream*/) {
  return act("send", 0, nullptr, count, type, comm, peer);
}
ncclResult_t ncclRecv(void* recv, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t /*stream*/) {
  return act("recv", 110, recv, count, type, comm, peer);
}
ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* /*scalar*/, ncclDataType_t /*type*/,
                                      ncclScalarResidence_t /*residence*/, ncclComm_t comm) {
  *op = static_cast<ncclRedOp_t>(77);
  log("create_operator", name_of(comm));
  return ncclSuccess;
}
ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm) {
  log("destroy_operator ", int{op}, name_of(comm));
  return ncclSuccess;
}

}  // extern "C"
