/* The declarations of an MPI library that has one type for all its handles, as MPICH has. No code
   stands behind them: the check compiles collectives/mpi/module.cpp and programs of users with
   them. */
#pragma once

typedef int MPI_Comm;
typedef int MPI_Request;
typedef int MPI_Group;
typedef int MPI_Datatype;
typedef int MPI_Errhandler;
typedef struct MPI_Status {
  int count_lo, count_hi_and_cancelled, MPI_SOURCE, MPI_TAG, MPI_ERROR;
} MPI_Status;

#define MPI_SUCCESS 0
#define MPI_COMM_NULL ((MPI_Comm)0x04000000)
#define MPI_COMM_WORLD ((MPI_Comm)0x44000000)
#define MPI_GROUP_NULL ((MPI_Group)0x08000000)
#define MPI_REQUEST_NULL ((MPI_Request)0x2c000000)
#define MPI_ANY_SOURCE (-2)
#define MPI_BYTE ((MPI_Datatype)0x4c00010d)
#define MPI_ERRORS_RETURN ((MPI_Errhandler)0x54000001)
#define MPI_STATUS_IGNORE ((MPI_Status*)1)
#define MPI_MAX_ERROR_STRING 512
#define MPI_THREAD_SERIALIZED 2
#define MPI_TAG_UB 0x64400001

#ifdef __cplusplus
extern "C" {
#endif
int MPI_Cancel(MPI_Request* request);
int MPI_Comm_create_group(MPI_Comm comm, MPI_Group group, int tag, MPI_Comm* made);
int MPI_Comm_free(MPI_Comm* comm);
int MPI_Comm_get_attr(MPI_Comm comm, int key, void* value, int* is_known);
int MPI_Comm_group(MPI_Comm comm, MPI_Group* group);
int MPI_Comm_idup(MPI_Comm comm, MPI_Comm* made, MPI_Request* request);
int MPI_Comm_rank(MPI_Comm comm, int* rank);
int MPI_Comm_set_errhandler(MPI_Comm comm, MPI_Errhandler handler);
int MPI_Comm_size(MPI_Comm comm, int* size);
int MPI_Comm_test_inter(MPI_Comm comm, int* is_inter);
int MPI_Error_string(int status, char* text, int* length);
int MPI_Finalize(void);
int MPI_Finalized(int* is_finalized);
int MPI_Get_count(const MPI_Status* status, MPI_Datatype type, int* count);
int MPI_Group_free(MPI_Group* group);
int MPI_Group_incl(MPI_Group group, int count, const int ranks[], MPI_Group* made);
int MPI_Iallgather(const void* in, int in_count, MPI_Datatype in_type, void* out, int out_count,
                   MPI_Datatype out_type, MPI_Comm comm, MPI_Request* request);
int MPI_Iallgatherv(const void* in, int in_count, MPI_Datatype in_type, void* out,
                    const int counts[], const int offsets[], MPI_Datatype out_type, MPI_Comm comm,
                    MPI_Request* request);
int MPI_Init_thread(int* count, char*** arguments, int required, int* provided);
int MPI_Initialized(int* is_initialized);
int MPI_Iprobe(int source, int tag, MPI_Comm comm, int* is_there, MPI_Status* status);
int MPI_Irecv(void* data, int count, MPI_Datatype type, int source, int tag, MPI_Comm comm,
              MPI_Request* request);
int MPI_Isend(const void* data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
              MPI_Request* request);
int MPI_Recv(void* data, int count, MPI_Datatype type, int source, int tag, MPI_Comm comm,
             MPI_Status* status);
int MPI_Test(MPI_Request* request, int* is_done, MPI_Status* status);
int PMPI_Initialized(int* is_initialized);
#ifdef __cplusplus
}
#endif
