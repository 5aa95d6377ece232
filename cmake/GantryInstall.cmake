# Install rules, and the package files for the install tree and the build tree.
include(CMakePackageConfigHelpers)

get_property(_targets GLOBAL PROPERTY GANTRY_EXPORTED_TARGETS)
set(_package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/gantry")

install(TARGETS ${_targets} EXPORT gantryTargets FILE_SET HEADERS)

configure_package_config_file("${CMAKE_CURRENT_LIST_DIR}/gantryConfig.cmake.in"
  "${PROJECT_BINARY_DIR}/gantryConfig.cmake" INSTALL_DESTINATION "${_package_dir}")
configure_file("${CMAKE_CURRENT_LIST_DIR}/gantryConfigVersion.cmake.in" "${PROJECT_BINARY_DIR}/gantryConfigVersion.cmake" @ONLY)

install(EXPORT gantryTargets NAMESPACE gantry:: DESTINATION "${_package_dir}")
install(FILES "${PROJECT_BINARY_DIR}/gantryConfig.cmake" "${PROJECT_BINARY_DIR}/gantryConfigVersion.cmake"
  DESTINATION "${_package_dir}")
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${CMAKE_INSTALL_DOCDIR}")
export(EXPORT gantryTargets NAMESPACE gantry:: FILE "${PROJECT_BINARY_DIR}/gantryTargets.cmake")
