# Install rules, and the package files for the install tree and the build tree.
include(CMakePackageConfigHelpers)

get_property(_targets GLOBAL PROPERTY GANTRY_EXPORTED_TARGETS)
set(_package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/gantry")

# Components, for packages: runtime, development, tools.
install(TARGETS ${_targets} EXPORT gantryTargets
  LIBRARY COMPONENT runtime NAMELINK_COMPONENT development
  ARCHIVE COMPONENT development
  FILE_SET HEADERS COMPONENT development)

configure_package_config_file("${CMAKE_CURRENT_LIST_DIR}/gantryConfig.cmake.in"
  "${PROJECT_BINARY_DIR}/gantryConfig.cmake" INSTALL_DESTINATION "${_package_dir}")
configure_file("${CMAKE_CURRENT_LIST_DIR}/gantryConfigVersion.cmake.in" "${PROJECT_BINARY_DIR}/gantryConfigVersion.cmake" @ONLY)

# Programs that are linked with a static library need the libraries that it uses; CMake knows them, pkg-config does not.
if(BUILD_SHARED_LIBS)
  file(RELATIVE_PATH _prefix_from_pc "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
  configure_file("${CMAKE_CURRENT_LIST_DIR}/gantry.pc.in" "${PROJECT_BINARY_DIR}/gantry.pc" @ONLY)
  install(FILES "${PROJECT_BINARY_DIR}/gantry.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig" COMPONENT development)
endif()

install(EXPORT gantryTargets NAMESPACE gantry:: DESTINATION "${_package_dir}" COMPONENT development)
install(FILES "${PROJECT_BINARY_DIR}/gantryConfig.cmake" "${PROJECT_BINARY_DIR}/gantryConfigVersion.cmake"
  DESTINATION "${_package_dir}" COMPONENT development)
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${CMAKE_INSTALL_DOCDIR}" COMPONENT runtime)
# The pages and the examples, in the folders of the repository, so that links between them work.
if(PROJECT_IS_TOP_LEVEL)
  foreach(_page README CHANGELOG CONTRIBUTING SECURITY)
    install(FILES "${PROJECT_SOURCE_DIR}/${_page}.md" DESTINATION "${CMAKE_INSTALL_DOCDIR}" COMPONENT development)
  endforeach()
  install(DIRECTORY "${PROJECT_SOURCE_DIR}/docs" "${PROJECT_SOURCE_DIR}/examples" DESTINATION "${CMAKE_INSTALL_DOCDIR}"
    COMPONENT development
    PATTERN docs/CMakeLists.txt EXCLUDE PATTERN docs/doxygen EXCLUDE PATTERN docs/site EXCLUDE PATTERN __pycache__ EXCLUDE)
endif()
export(EXPORT gantryTargets NAMESPACE gantry:: FILE "${PROJECT_BINARY_DIR}/gantryTargets.cmake")
