# The tests of walks; ctest runs them one after another where ranks would fight for the cores.
find_package(GTest REQUIRED)

set(testdata ${CMAKE_CURRENT_SOURCE_DIR}/../testdata/walks)

add_executable(walks-core-test
  doomed_file_test.cc grid_test.cc header_test.cc layout_test.cc product_test.cc random_graph_test.cc
  text_graph_test.cc)
target_compile_definitions(walks-core-test PRIVATE WALKS_TESTDATA="${testdata}")
target_link_libraries(walks-core-test PRIVATE walks-core GTest::gtest_main)
add_test(NAME walks-core COMMAND walks-core-test)
# Each of oneDNN's kinds of kernels: without VNNI it adds pairs of products in 16 bits.
foreach(isa IN ITEMS SSE41 AVX2 AVX512_CORE AVX512_CORE_VNNI)
  add_test(NAME walks-product-${isa}
           COMMAND walks-core-test --gtest_filter=Product.*:PackedBytes.*)
  set_tests_properties(walks-product-${isa} PROPERTIES ENVIRONMENT ONEDNN_MAX_CPU_ISA=${isa})
endforeach()

add_executable(walks-cli-test cli_test.cc)
target_compile_definitions(walks-cli-test PRIVATE WALKS_TESTDATA="${testdata}")
target_link_libraries(walks-cli-test PRIVATE nlohmann_json::nlohmann_json GTest::gtest_main)

# Compiling it takes longer than running it.
target_compile_options(walks-cli-test PRIVATE -O0)

# Tests may run as root in a container, with more ranks than cores.
set(openmpi_environment OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1)
set(openmpi_launch mpirun.openmpi --oversubscribe --bind-to none)
set(mpich_environment "")
set(mpich_launch mpiexec.mpich)
if("mpich" IN_LIST walks_mpis)
  add_library(walks-polite-mpich MODULE polite_mpich.cc)
  target_link_libraries(walks-polite-mpich PRIVATE ${CMAKE_DL_LIBS})
  if(NOT TARE_SANITIZE)  # a sanitizer's library must come first itself
    list(APPEND mpich_launch -genv LD_PRELOAD $<TARGET_FILE:walks-polite-mpich>)
  endif()
endif()

foreach(mpi IN LISTS walks_mpis)
  add_executable(walks-files-test-${mpi} files_test.cc)
  target_compile_definitions(walks-files-test-${mpi} PRIVATE WALKS_TESTDATA="${testdata}")
  target_link_libraries(walks-files-test-${mpi} PRIVATE walks-files-${mpi} GTest::gtest)
  foreach(ranks IN ITEMS 1 2 3 4 6 9)
    set(filter "*")
    if(ranks GREATER 4)  # what depends on the grid; the rest only takes long with so many ranks
      set(filter "Power.HasTheSame*:Power.LargerThan*:Questions.*")
    endif()
    add_test(NAME walks-files-${mpi}-${ranks}
             COMMAND ${${mpi}_launch} -n ${ranks} $<TARGET_FILE:walks-files-test-${mpi}>
                     --gtest_filter=${filter})
    set_tests_properties(walks-files-${mpi}-${ranks} PROPERTIES
      ENVIRONMENT "${${mpi}_environment};OMP_NUM_THREADS=1" TIMEOUT 120 RUN_SERIAL ON)
  endforeach()
  add_test(NAME walks-cli-${mpi} COMMAND walks-cli-test)
  set_tests_properties(walks-cli-${mpi} PROPERTIES
    ENVIRONMENT "${${mpi}_environment};WALKS_BINARY=$<TARGET_FILE:walks-${mpi}>" TIMEOUT 240)
endforeach()
