// The few functions of the MPI that nvio calls itself, at the PMPI level, found by name.
#pragma once

#include <mpi.h>

#include <type_traits>

namespace nvio {

struct MpiFunctions {
  int (*type_size)(MPI_Datatype, int*);
  int (*type_get_extent)(MPI_Datatype, MPI_Aint*, MPI_Aint*);
  int (*type_get_envelope)(MPI_Datatype, int*, int*, int*, int*);
  int (*type_get_contents)(MPI_Datatype, int, int, int, int*, MPI_Aint*, MPI_Datatype*);
  int (*type_free)(MPI_Datatype*);
  int (*type_get_name)(MPI_Datatype, char*, int*);
  int (*status_set_elements)(MPI_Status*, MPI_Datatype, MPI_Count);
  int (*status_set_cancelled)(MPI_Status*, int);
  int (*file_seek)(MPI_File, MPI_Offset, int);
  int (*file_get_position)(MPI_File, MPI_Offset*);
  int (*file_call_errhandler)(MPI_File, int);
  int (*file_get_errhandler)(MPI_File, MPI_Errhandler*);
  int (*file_set_errhandler)(MPI_File, MPI_Errhandler);
  int (*errhandler_free)(MPI_Errhandler*);
  int (*info_get)(MPI_Info, const char*, int, char*, int*);
  int (*info_get_nkeys)(MPI_Info, int*);
  int (*info_get_nthkey)(MPI_Info, int, char*);
  int (*comm_rank)(MPI_Comm, int*);
  int (*comm_size)(MPI_Comm, int*);
  int (*comm_split)(MPI_Comm, int, int, MPI_Comm*);
  int (*comm_split_type)(MPI_Comm, int, int, MPI_Info, MPI_Comm*);
  int (*comm_dup)(MPI_Comm, MPI_Comm*);
  int (*comm_free)(MPI_Comm*);
  int (*comm_set_errhandler)(MPI_Comm, MPI_Errhandler);
  int (*bcast)(void*, int, MPI_Datatype, int, MPI_Comm);
  int (*send)(const void*, int, MPI_Datatype, int, int, MPI_Comm);
  int (*recv)(void*, int, MPI_Datatype, int, int, MPI_Comm, MPI_Status*);
  int (*iprobe)(int, int, MPI_Comm, int*, MPI_Status*);
  int (*pack)(const void*, int, MPI_Datatype, void*, int, int*, MPI_Comm);
  int (*unpack)(const void*, int, int*, void*, int, MPI_Datatype, MPI_Comm);
  int (*test)(MPI_Request*, int*, MPI_Status*);
  int (*wait)(MPI_Request*, MPI_Status*);
  int (*grequest_start)(int (*)(void*, MPI_Status*), int (*)(void*), int (*)(void*, int), void*,
                        MPI_Request*);
  int (*grequest_complete)(MPI_Request);
  // One that the MPI asks for as the program tests or waits. Null where there is no such thing.
  int (*grequest_start_polled)(int (*)(void*, MPI_Status*), int (*)(void*), int (*)(void*, int),
                               int (*)(void*, MPI_Status*),
                               int (*)(int, void**, double, MPI_Status*), void*, MPI_Request*);
  // Of MPI 4; null elsewhere.
  int (*type_get_envelope_c)(MPI_Datatype, MPI_Count*, MPI_Count*, MPI_Count*, MPI_Count*, int*);
  // Of MPICH alone.
  int (*comm_get_parent)(MPI_Comm*);
  int (*comm_get_errhandler)(MPI_Comm, MPI_Errhandler*);
  int (*publish_name)(const char*, MPI_Info, const char*);
  int (*lookup_name)(const char*, MPI_Info, char*);
  int (*unpublish_name)(const char*, MPI_Info, const char*);
  MPI_Comm comm_self;
  MPI_Comm comm_world;
  MPI_Errhandler errors_return;
  MPI_Datatype byte;
  MPI_Datatype datatype_null;
  MPI_Info info_null;
  MPI_File file_null;
  bool has_handler_of_no_file;  // file_call_errhandler takes file_null
};

const MpiFunctions& mpi_functions();
// False when the MPI lacks one of them: nvio then cannot serve this process.
bool find_mpi_functions(void* (*next_symbol)(const char*));

}  // namespace nvio
