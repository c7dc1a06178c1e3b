# What `cmake --install` puts where: headers, both libraries, the tool, gradus.pc and the CMake package.
include(CMakePackageConfigHelpers)

install(DIRECTORY include/gradus DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(TARGETS gradus_shared gradus_static EXPORT gradus_targets
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET gradus_tool)
    install(TARGETS gradus_tool RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

set(GD_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/gradus)
list(JOIN GD_PACKAGE_REQUIRES "\n" GD_PACKAGE_REQUIRES)
configure_package_config_file(gradus-config.cmake.in gradus-config.cmake INSTALL_DESTINATION ${GD_PACKAGE_DIR})
write_basic_package_version_file(gradus-config-version.cmake COMPATIBILITY SameMinorVersion)
install(EXPORT gradus_targets NAMESPACE gradus:: FILE gradus-targets.cmake DESTINATION ${GD_PACKAGE_DIR})
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/gradus-config.cmake
    ${CMAKE_CURRENT_BINARY_DIR}/gradus-config-version.cmake cmake/FindJansson.cmake cmake/FindProtobufC.cmake
    DESTINATION ${GD_PACKAGE_DIR})

# gradus.pc finds its prefix from where it lies, so an installed tree can be moved.
set(GD_PC_DIR ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
cmake_path(RELATIVE_PATH CMAKE_INSTALL_PREFIX BASE_DIRECTORY ${CMAKE_INSTALL_PREFIX}/${GD_PC_DIR}
    OUTPUT_VARIABLE GD_PC_TO_PREFIX)
list(JOIN GD_PC_REQUIRES " " GD_PC_REQUIRES)
list(JOIN GD_PC_LIBS " " GD_PC_LIBS)
configure_file(gradus.pc.in gradus.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/gradus.pc DESTINATION ${GD_PC_DIR})
