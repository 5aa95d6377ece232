# gantry_add_layer(<name> SOURCES … [CUDA_SOURCES …] [DEPENDS layer…] [EXTEND_HEADERS …] [PUBLIC_LIBS …] [PRIVATE_LIBS …]
#                  [CXX_FLAGS …])
#
# Builds the library of one layer: target gantry_<name>, alias gantry::<name>. Its public headers are include/gantry/<name>/*.hpp.
#   EXTEND_HEADERS headers in include/gantry/extend/ that the layer implements: public, but not stable and not in the umbrella
#   SOURCES       listed one by one, relative to the layer's folder
#   CUDA_SOURCES  .cu files (and .cpp files that need the toolkit's headers); ignored without CUDA
#   DEPENDS       layers to the left of this one
#   PRIVATE_LIBS  third-party libraries, hidden from whoever links the layer
#   CXX_FLAGS     of GCC and Clang, for the C++ sources of this layer alone
function(gantry_add_layer name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;CUDA_SOURCES;DEPENDS;EXTEND_HEADERS;PUBLIC_LIBS;PRIVATE_LIBS;CXX_FLAGS")
  if(arg_UNPARSED_ARGUMENTS OR NOT arg_SOURCES)
    message(FATAL_ERROR "gantry_add_layer(${name}): SOURCES expected, but got '${ARGN}'")
  endif()
  set(target gantry_${name})
  add_library(${target} ${arg_SOURCES})
  add_library(gantry::${name} ALIAS ${target})
  if(GANTRY_WITH_CUDA)
    target_sources(${target} PRIVATE ${arg_CUDA_SOURCES})
    target_include_directories(${target} SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
  endif()

  file(GLOB headers CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/include/gantry/${name}/*.hpp")
  list(TRANSFORM arg_EXTEND_HEADERS PREPEND "${PROJECT_SOURCE_DIR}/include/gantry/extend/")
  target_sources(${target} PUBLIC FILE_SET HEADERS BASE_DIRS "${PROJECT_SOURCE_DIR}/include" FILES ${headers} ${arg_EXTEND_HEADERS})

  target_compile_features(${target} PUBLIC cxx_std_20)
  target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}")
  list(TRANSFORM arg_DEPENDS PREPEND gantry_)
  target_link_libraries(${target}
    PUBLIC ${arg_DEPENDS} ${arg_PUBLIC_LIBS}
    PRIVATE $<BUILD_INTERFACE:gantry_flags> Threads::Threads ${arg_PRIVATE_LIBS})
  if(arg_CXX_FLAGS)
    target_compile_options(${target} PRIVATE "$<$<COMPILE_LANG_AND_ID:CXX,GNU,Clang>:${arg_CXX_FLAGS}>")
    gantry_precompile(${target} OWN)
  else()
    gantry_precompile(${target})
  endif()
  set_target_properties(${target} PROPERTIES
    EXPORT_NAME ${name}
    VERSION ${PROJECT_VERSION}
    SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}
    CUDA_SEPARABLE_COMPILATION OFF)
  if(NOT GANTRY_SANITIZE)
    # A layer that uses a symbol from its right does not link.
    target_link_options(${target} PRIVATE LINKER:-z,defs)
  endif()
  # Threads of gantry run its code until the process ends, so dlclose must leave the code where it is.
  if(BUILD_SHARED_LIBS)
    target_link_options(${target} PRIVATE LINKER:-z,nodelete)
  else()
    foreach(type SHARED_LIBRARY MODULE_LIBRARY)
      target_link_options(${target} INTERFACE $<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,${type}>:LINKER:-z,nodelete>)
    endforeach()
  endif()
  set_property(GLOBAL APPEND PROPERTY GANTRY_EXPORTED_TARGETS ${target})
endfunction()

# gantry_add_umbrella(<layer>…): the target gantry::gantry, which links every layer.
function(gantry_add_umbrella)
  add_library(gantry_gantry INTERFACE)
  add_library(gantry::gantry ALIAS gantry_gantry)
  foreach(layer IN LISTS ARGN)
    target_link_libraries(gantry_gantry INTERFACE gantry_${layer})
  endforeach()
  target_sources(gantry_gantry INTERFACE FILE_SET HEADERS
    BASE_DIRS "${PROJECT_SOURCE_DIR}/include" FILES "${PROJECT_SOURCE_DIR}/include/gantry/gantry.hpp")
  set_target_properties(gantry_gantry PROPERTIES EXPORT_NAME gantry)
  set_property(GLOBAL APPEND PROPERTY GANTRY_EXPORTED_TARGETS gantry_gantry)
endfunction()
