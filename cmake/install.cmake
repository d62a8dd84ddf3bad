# What `make install` puts where, and the two ways to find it again: pkg-config (tegula.pc) and find_package(tegula).
# The static library is a component of its own in CMake, because only its users need the development files of jansson,
# PCRE2 and utf8proc.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

install(FILES include/tegula.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS tegula_shared EXPORT tegulaTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS tegula_static EXPORT tegulaStaticTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET tegula)
  install(TARGETS tegula RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
if(EXISTS ${CMAKE_SOURCE_DIR}/docs/tegula.1)
  install(FILES docs/tegula.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
endif()

set(CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/tegula)
install(EXPORT tegulaTargets NAMESPACE tegula:: DESTINATION ${CMAKE_DIR})
install(EXPORT tegulaStaticTargets NAMESPACE tegula:: DESTINATION ${CMAKE_DIR})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/tegulaConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES cmake/tegulaConfig.cmake ${CMAKE_BINARY_DIR}/tegulaConfigVersion.cmake DESTINATION ${CMAKE_DIR})

# The prefix is known only when installing (cmake --install --prefix), so tegula.pc names it relative to itself.
file(RELATIVE_PATH PC_PREFIX /p/${CMAKE_INSTALL_LIBDIR}/pkgconfig /p)
configure_file(cmake/tegula.pc.in tegula.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/tegula.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
