# RTI Connext DDS, modern C++ API. Needs RTI_CONNEXT_DIR; RTI_CONNEXT_ARCH where the
# installation holds several targets (for example x64Linux4gcc7.3.0).
list(APPEND CMAKE_MODULE_PATH "${RTI_CONNEXT_DIR}/resource/cmake")
set(CONNEXTDDS_DIR "${RTI_CONNEXT_DIR}")
if(RTI_CONNEXT_ARCH)
  set(CONNEXTDDS_ARCH "${RTI_CONNEXT_ARCH}")
endif()
find_package(RTIConnextDDS REQUIRED COMPONENTS core)

set(connext_types ${CMAKE_CURRENT_BINARY_DIR}/connext)
add_custom_command(
  OUTPUT ${connext_types}/Echo.cxx ${connext_types}/EchoPlugin.cxx ${connext_types}/Echo.hpp
  COMMAND ${CMAKE_COMMAND} -E make_directory ${connext_types}
  COMMAND ${RTI_CONNEXT_DIR}/bin/rtiddsgen -language C++11 -unboundedSupport -replace
          -d ${connext_types}
          ${CMAKE_CURRENT_SOURCE_DIR}/idl/Echo.idl
  DEPENDS idl/Echo.idl
  VERBATIM)
add_library(echo_idl_connext STATIC ${connext_types}/Echo.cxx ${connext_types}/EchoPlugin.cxx)
target_include_directories(echo_idl_connext SYSTEM PUBLIC ${connext_types})
target_link_libraries(echo_idl_connext PUBLIC RTIConnextDDS::cpp2_api)

set(ECHO_LIBRARIES_connext echo_idl_connext)
