# Language level, flags and output folders, for every target of this project.
include(GNUInstallDirs)
# Programs that others start, and users do not.
set(GANTRY_LIBEXEC_DIR "${CMAKE_INSTALL_LIBEXECDIR}/gantry")

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
# Only names with GANTRY_API leave the library.
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_CUDA_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
# -g1 keeps functions, files and lines, which call sites and sanitizers' reports need. Types and variables take most of -g's time and disk.
if(GANTRY_SANITIZE)
  set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O1 -g1")
else()
  set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g1")
endif()

# The flags, not the build type: CMake installs the package of the project's build type alone.
if(GANTRY_OWN_BUILD_TYPE)
  string(APPEND CMAKE_CXX_FLAGS " ${CMAKE_CXX_FLAGS_${GANTRY_OWN_BUILD_TYPE}}")
endif()

# The library and libgantry_mpi.so lie in one folder, where the one finds the other.
foreach(_kind LIBRARY:LIB ARCHIVE:LIB RUNTIME:BIN)
  string(REPLACE ":" ";" _kind ${_kind})
  list(GET _kind 0 _output)
  list(GET _kind 1 _folder)
  if(PROJECT_IS_TOP_LEVEL OR NOT CMAKE_${_output}_OUTPUT_DIRECTORY)
    set(CMAKE_${_output}_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/${CMAKE_INSTALL_${_folder}DIR}")
  endif()
endforeach()

# The tree of libraries and programs can be moved: everything is found relative to the binary.
file(RELATIVE_PATH _bin_to_lib "/prefix/${CMAKE_INSTALL_BINDIR}" "/prefix/${CMAKE_INSTALL_LIBDIR}")
set(CMAKE_BUILD_RPATH_USE_ORIGIN ON)
set(CMAKE_BUILD_RPATH "${CMAKE_LIBRARY_OUTPUT_DIRECTORY}")  # programs that link archives load libgantry_mpi.so
set(CMAKE_INSTALL_RPATH "$ORIGIN;$ORIGIN/${_bin_to_lib}")
set(CMAKE_INSTALL_RPATH_USE_LINK_PATH ON)

# ccache refuses precompiled headers unless it is told that they are fine, and finds what another clone compiled only if
# paths below the source folder do not count.
find_program(GANTRY_CCACHE ccache)
mark_as_advanced(GANTRY_CCACHE)
if(GANTRY_CCACHE)
  set(_trial "${PROJECT_BINARY_DIR}/CMakeFiles/ccache_trial")
  file(CONFIGURE OUTPUT "${_trial}.cpp" CONTENT "")
  execute_process(COMMAND "${GANTRY_CCACHE}" --version RESULT_VARIABLE _status OUTPUT_VARIABLE _text ERROR_VARIABLE _text)
  if(_status EQUAL 0)
    execute_process(COMMAND "${GANTRY_CCACHE}" "${CMAKE_CXX_COMPILER}" -c "${_trial}.cpp" -o "${_trial}.o"
      RESULT_VARIABLE _status OUTPUT_VARIABLE _text ERROR_VARIABLE _text)
  endif()
  if(NOT _status EQUAL 0)
    message(WARNING "${GANTRY_CCACHE} does not work, so gantry is built without it (${_status}): ${_text}")
    set(GANTRY_CCACHE "")
  endif()
endif()
if(GANTRY_CCACHE)
  foreach(_language CXX CUDA)
    if(NOT CMAKE_${_language}_COMPILER_LAUNCHER OR CMAKE_${_language}_COMPILER_LAUNCHER MATCHES "(^|/)ccache$")
      set(CMAKE_${_language}_COMPILER_LAUNCHER
          "${CMAKE_COMMAND};-E;env;CCACHE_SLOPPINESS=pch_defines,time_macros;CCACHE_BASEDIR=${PROJECT_SOURCE_DIR};CCACHE_NOHASHDIR=1;${GANTRY_CCACHE}")
    endif()
  endforeach()
endif()

add_library(gantry_flags INTERFACE)

# Note [Bit-identical arithmetic]
# The simulated devices promise the same bits as the GPU for + - * / and sqrt. A contracted multiply-add rounds once instead of twice, so
# neither compiler may form one on its own; a kernel that wants one writes fma().
target_compile_options(gantry_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>
  $<$<COMPILE_LANGUAGE:CUDA>:-fmad=false>
  $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-ffp-contract=off>)

# nvcc warns where a kernel calls a function of the host, and makes code of it that does nothing: errors, not warnings.
target_compile_options(gantry_flags INTERFACE $<$<COMPILE_LANGUAGE:CUDA>:--diag-error=20011,20013,20014,20015>)

# Nobody replaces single functions of the library, so calls between exported functions may be inlined.
target_compile_options(gantry_flags INTERFACE $<$<COMPILE_LANG_AND_ID:CXX,GNU,Clang>:-fno-semantic-interposition>)

target_compile_options(gantry_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall> $<$<COMPILE_LANGUAGE:CXX>:-Wextra>
  $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall>)
if(GANTRY_WERROR)
  target_compile_options(gantry_flags INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-Werror>
    $<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings> $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Werror>)
  # With optimization GCC sees faults in the standard library's inlined code that are not there.
  foreach(_warning array-bounds free-nonheap-object maybe-uninitialized restrict stringop-overflow stringop-overread)
    target_compile_options(gantry_flags INTERFACE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-error=${_warning}>)
  endforeach()
endif()

if(GANTRY_SANITIZE)
  set(_sanitize -fsanitize=${GANTRY_SANITIZE} -fno-omit-frame-pointer)
  if(GANTRY_SANITIZE MATCHES "undefined")
    # The check of vptr opens a pipe, and calls objects bad where a process has no descriptors left. Tests leave it none.
    list(APPEND _sanitize -fno-sanitize=vptr -fno-sanitize-recover=undefined)
  endif()
  target_compile_options(gantry_flags INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${_sanitize}>")
  target_link_options(gantry_flags INTERFACE ${_sanitize})
endif()

find_program(GANTRY_MOLD mold)
mark_as_advanced(GANTRY_MOLD)
if(GANTRY_MOLD)
  include(CheckLinkerFlag)
  check_linker_flag(CXX -fuse-ld=mold GANTRY_CXX_LINKS_WITH_MOLD)
  if(GANTRY_CXX_LINKS_WITH_MOLD)
    target_link_options(gantry_flags INTERFACE -fuse-ld=mold)
  endif()
endif()

# Simple loops of these sources become vector code: -O2 alone does so only where it costs no code size. Vector code gains nothing from paths
# of their own for the two sides of a selection, as threaded jumps make them: it computes both. No result depends on these flags. The
# precompiled header has other ones.
function(gantry_vectorize_loops)
  set_source_files_properties(${ARGN} PROPERTIES SKIP_PRECOMPILE_HEADERS ON COMPILE_OPTIONS
    "$<$<CONFIG:Debug>:-O1>;-ftree-vectorize;-fvect-cost-model=dynamic;-fno-math-errno;-fno-trapping-math;$<$<CXX_COMPILER_ID:GNU>:-fno-thread-jumps>")
endfunction()
