# gantry_add_layer(<name> SOURCES … [CUDA_SOURCES …] [DEPENDS layer…] [EXTEND_HEADERS …] [LIBS …]
#                  [HEADER_LIBS …] [CXX_FLAGS …])
#
# Compiles one layer: target gantry_<name>_objects, whose objects gantry_add_library() collects in libgantry, and the archive gantry_<name>
# of the same objects. Programs and tests that use more than the public API link archives instead of the library. The layer's public headers
# are include/gantry/<name>/*.hpp, and tables that they include, *.def.
#   EXTEND_HEADERS headers in include/gantry/extend/ that the layer implements: public, but not stable and not in the umbrella
#   SOURCES       listed one by one, relative to the layer's folder
#   CUDA_SOURCES  .cu files (and .cpp files that need the toolkit's headers); ignored without CUDA
#   DEPENDS       layers to the left of this one
#   LIBS          third-party libraries, hidden from users of the library; programs that link a static libgantry link them, too
#   HEADER_LIBS   third-party libraries of which the objects need the headers alone
#   CXX_FLAGS     of GCC and Clang, for the C++ sources of this layer alone
function(gantry_add_layer name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;CUDA_SOURCES;DEPENDS;EXTEND_HEADERS;LIBS;HEADER_LIBS;CXX_FLAGS")
  if(arg_UNPARSED_ARGUMENTS OR NOT arg_SOURCES)
    message(FATAL_ERROR "gantry_add_layer(${name}): SOURCES expected, but got '${ARGN}'")
  endif()
  set(objects gantry_${name}_objects)
  add_library(${objects} OBJECT ${arg_SOURCES})
  if(GANTRY_WITH_CUDA)
    target_sources(${objects} PRIVATE ${arg_CUDA_SOURCES})
    target_include_directories(${objects} SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
  endif()
  target_include_directories(${objects} PRIVATE "${PROJECT_SOURCE_DIR}/include" "${PROJECT_SOURCE_DIR}")
  target_link_libraries(${objects} PRIVATE gantry_flags Threads::Threads ${arg_LIBS} ${arg_HEADER_LIBS})
  if(arg_CXX_FLAGS)
    target_compile_options(${objects} PRIVATE "$<$<COMPILE_LANG_AND_ID:CXX,GNU,Clang>:${arg_CXX_FLAGS}>")
    gantry_precompile(${objects} OWN)
  else()
    gantry_precompile(${objects})
  endif()

  set(archive gantry_${name})
  add_library(${archive} STATIC EXCLUDE_FROM_ALL $<TARGET_OBJECTS:${objects}>)
  list(TRANSFORM arg_DEPENDS PREPEND gantry_)
  target_include_directories(${archive} INTERFACE "${PROJECT_SOURCE_DIR}/include")
  target_compile_features(${archive} PUBLIC cxx_std_20)
  target_link_libraries(${archive} PUBLIC ${arg_DEPENDS} PRIVATE gantry_flags Threads::Threads ${arg_LIBS})

  file(GLOB headers CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/include/gantry/${name}/*.hpp" "${PROJECT_SOURCE_DIR}/include/gantry/${name}/*.def")
  list(TRANSFORM arg_EXTEND_HEADERS PREPEND "${PROJECT_SOURCE_DIR}/include/gantry/extend/")
  set_property(GLOBAL APPEND PROPERTY GANTRY_PUBLIC_HEADERS ${headers} ${arg_EXTEND_HEADERS})
  set_property(GLOBAL APPEND PROPERTY GANTRY_LIBRARY_OBJECTS $<TARGET_OBJECTS:${objects}>)
  set_property(GLOBAL APPEND PROPERTY GANTRY_LIBRARY_LIBS ${arg_LIBS})
endfunction()

# gantry_add_library(): the target gantry, alias gantry::gantry, with the objects of all layers.
function(gantry_add_library)
  get_property(objects GLOBAL PROPERTY GANTRY_LIBRARY_OBJECTS)
  get_property(headers GLOBAL PROPERTY GANTRY_PUBLIC_HEADERS)
  get_property(libs GLOBAL PROPERTY GANTRY_LIBRARY_LIBS)
  list(REMOVE_DUPLICATES libs)
  add_library(gantry ${objects})
  add_library(gantry::gantry ALIAS gantry)
  target_sources(gantry PUBLIC FILE_SET HEADERS
    BASE_DIRS "${PROJECT_SOURCE_DIR}/include" FILES "${PROJECT_SOURCE_DIR}/include/gantry/gantry.hpp" ${headers})
  target_compile_features(gantry PUBLIC cxx_std_20)
  target_link_libraries(gantry PRIVATE Threads::Threads ${libs})
  set_target_properties(gantry PROPERTIES
    LINKER_LANGUAGE CXX
    VERSION ${PROJECT_VERSION}
    SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
  # Threads of gantry run its code until the process ends, so dlclose must leave the code where it is.
  if(BUILD_SHARED_LIBS)
    target_link_libraries(gantry PRIVATE gantry_flags)
    set(map "${PROJECT_SOURCE_DIR}/cmake/gantry.map")
    target_link_options(gantry PRIVATE LINKER:-z,nodelete LINKER:--version-script=${map})
    set_property(TARGET gantry APPEND PROPERTY LINK_DEPENDS "${map}")
    if(NOT GANTRY_SANITIZE)
      target_link_options(gantry PRIVATE LINKER:-z,defs)
    endif()
  else()
    foreach(type SHARED_LIBRARY MODULE_LIBRARY)
      target_link_options(gantry INTERFACE $<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,${type}>:LINKER:-z,nodelete>)
    endforeach()
    # The file that gantry is linked into loads libgantry_mpi.so.
    if(GANTRY_WITH_MPI)
      target_link_options(gantry INTERFACE
        "$<BUILD_INTERFACE:LINKER:-rpath,${CMAKE_LIBRARY_OUTPUT_DIRECTORY}>"
        "$<INSTALL_INTERFACE:LINKER:-rpath,$<INSTALL_PREFIX>/${CMAKE_INSTALL_LIBDIR}>")
    endif()
  endif()
  set_property(GLOBAL APPEND PROPERTY GANTRY_EXPORTED_TARGETS gantry)
endfunction()

# gantry_add_internal_library(): the target gantry_internal, a shared library of the same objects in which all names are visible. Tests that
# reach inside link it: an archive would put the device code of all kernels, and half of the debug information, into each of them.
function(gantry_add_internal_library)
  get_property(objects GLOBAL PROPERTY GANTRY_LIBRARY_OBJECTS)
  get_property(libs GLOBAL PROPERTY GANTRY_LIBRARY_LIBS)
  list(REMOVE_DUPLICATES libs)
  set(objects "$<FILTER:${objects},EXCLUDE,[.]gch$>")  # a layer with flags of its own has a precompiled header
  set(object "${PROJECT_BINARY_DIR}/gantry_internal.o")
  add_custom_command(OUTPUT "${object}"
    COMMAND "${CMAKE_CXX_COMPILER}" -r -nostdlib -o "${object}" "${objects}"
    COMMAND Python3::Interpreter -B "${PROJECT_SOURCE_DIR}/cmake/expose.py" "${object}"
    DEPENDS "${objects}" "${PROJECT_SOURCE_DIR}/cmake/expose.py"
    COMMAND_EXPAND_LISTS VERBATIM COMMENT "Joining the objects of libgantry with visible names")
  add_library(gantry_internal SHARED EXCLUDE_FROM_ALL "${object}")
  set_target_properties(gantry_internal PROPERTIES LINKER_LANGUAGE CXX)
  target_include_directories(gantry_internal INTERFACE "${PROJECT_SOURCE_DIR}/include")
  target_compile_features(gantry_internal INTERFACE cxx_std_20)
  # Else an executable would have copies of its variables.
  target_compile_options(gantry_internal INTERFACE -fPIC)
  # The objects were compiled for names that nobody replaces.
  target_link_options(gantry_internal PRIVATE LINKER:-z,nodelete LINKER:-Bsymbolic)
  target_link_libraries(gantry_internal PRIVATE gantry_flags Threads::Threads ${libs})
endfunction()
