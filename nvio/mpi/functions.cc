#include "functions.h"

#include <dlfcn.h>

namespace nvio {
namespace {

MpiFunctions g_functions;

}  // namespace

const MpiFunctions& mpi_functions() { return g_functions; }

bool find_mpi_functions(void* (*next_symbol)(const char*)) {
  bool found = true;
  const auto find = [&](auto& slot, const char* name) {
    slot = reinterpret_cast<std::remove_reference_t<decltype(slot)>>(next_symbol(name));
    found = found && slot != nullptr;
  };
  find(g_functions.type_size, "PMPI_Type_size");
  find(g_functions.type_get_extent, "PMPI_Type_get_extent");
  find(g_functions.type_get_envelope, "PMPI_Type_get_envelope");
  find(g_functions.type_get_contents, "PMPI_Type_get_contents");
  find(g_functions.type_free, "PMPI_Type_free");
  find(g_functions.type_get_name, "PMPI_Type_get_name");
  find(g_functions.status_set_elements, "PMPI_Status_set_elements_x");
  find(g_functions.status_set_cancelled, "PMPI_Status_set_cancelled");
  find(g_functions.file_seek, "PMPI_File_seek");
  find(g_functions.file_get_position, "PMPI_File_get_position");
  find(g_functions.file_call_errhandler, "PMPI_File_call_errhandler");
  find(g_functions.file_get_errhandler, "PMPI_File_get_errhandler");
  find(g_functions.file_set_errhandler, "PMPI_File_set_errhandler");
  find(g_functions.errhandler_free, "PMPI_Errhandler_free");
  find(g_functions.info_get, "PMPI_Info_get");
  find(g_functions.info_get_nkeys, "PMPI_Info_get_nkeys");
  find(g_functions.info_get_nthkey, "PMPI_Info_get_nthkey");
  find(g_functions.comm_rank, "PMPI_Comm_rank");
  find(g_functions.comm_size, "PMPI_Comm_size");
  find(g_functions.comm_split, "PMPI_Comm_split");
  find(g_functions.comm_split_type, "PMPI_Comm_split_type");
  find(g_functions.comm_dup, "PMPI_Comm_dup");
  find(g_functions.comm_free, "PMPI_Comm_free");
  find(g_functions.comm_set_errhandler, "PMPI_Comm_set_errhandler");
  find(g_functions.bcast, "PMPI_Bcast");
  find(g_functions.send, "PMPI_Send");
  find(g_functions.recv, "PMPI_Recv");
  find(g_functions.iprobe, "PMPI_Iprobe");
  find(g_functions.pack, "PMPI_Pack");
  find(g_functions.unpack, "PMPI_Unpack");
  find(g_functions.test, "PMPI_Test");
  find(g_functions.wait, "PMPI_Wait");
  find(g_functions.grequest_start, "PMPI_Grequest_start");
  find(g_functions.grequest_complete, "PMPI_Grequest_complete");
  g_functions.grequest_start_polled = reinterpret_cast<decltype(g_functions.grequest_start_polled)>(
      next_symbol("PMPIX_Grequest_start"));
  g_functions.type_get_envelope_c = reinterpret_cast<decltype(g_functions.type_get_envelope_c)>(
      next_symbol("PMPI_Type_get_envelope_c"));
#ifdef OPEN_MPI
  // A predefined handle is the address of a variable of the library, which we do not link. The
  // program may hold its own copy of that variable (a copy relocation), which is then the one.
  const auto find_handle = [&](auto& handle, const char* name) {
    void* variable = dlsym(RTLD_DEFAULT, name);
    if (variable == nullptr) variable = next_symbol(name);
    handle = static_cast<std::remove_reference_t<decltype(handle)>>(variable);
    found = found && handle != nullptr;
  };
  find_handle(g_functions.info_null, "ompi_mpi_info_null");
  find_handle(g_functions.comm_self, "ompi_mpi_comm_self");
  find_handle(g_functions.comm_world, "ompi_mpi_comm_world");
  find_handle(g_functions.errors_return, "ompi_mpi_errors_return");
  find_handle(g_functions.byte, "ompi_mpi_byte");
  find_handle(g_functions.datatype_null, "ompi_mpi_datatype_null");
#else
  find(g_functions.comm_get_parent, "PMPI_Comm_get_parent");
  find(g_functions.comm_get_errhandler, "PMPI_Comm_get_errhandler");
  find(g_functions.publish_name, "PMPI_Publish_name");
  find(g_functions.lookup_name, "PMPI_Lookup_name");
  find(g_functions.unpublish_name, "PMPI_Unpublish_name");
  g_functions.info_null = MPI_INFO_NULL;
  g_functions.comm_self = MPI_COMM_SELF;
  g_functions.comm_world = MPI_COMM_WORLD;
  g_functions.errors_return = MPI_ERRORS_RETURN;
  g_functions.byte = MPI_BYTE;
  g_functions.datatype_null = MPI_DATATYPE_NULL;
  g_functions.file_null = MPI_FILE_NULL;
  g_functions.has_handler_of_no_file = true;
#endif
  return found;
}

}  // namespace nvio
