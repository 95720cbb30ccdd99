#include "mpi_functions.h"

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
  find(g_functions.comm_rank, "PMPI_Comm_rank");
  find(g_functions.comm_size, "PMPI_Comm_size");
#ifdef OPEN_MPI
  // A predefined handle is the address of a variable of the library, which we do not link. The
  // program may hold its own copy of that variable (a copy relocation), which is then the one.
  void* null_info = dlsym(RTLD_DEFAULT, "ompi_mpi_info_null");
  if (null_info == nullptr) null_info = next_symbol("ompi_mpi_info_null");
  g_functions.info_null = static_cast<MPI_Info>(null_info);
  found = found && g_functions.info_null != nullptr;
#else
  g_functions.info_null = MPI_INFO_NULL;
  g_functions.file_null = MPI_FILE_NULL;
  g_functions.has_handler_of_no_file = true;
#endif
  return found;
}

}  // namespace nvio
