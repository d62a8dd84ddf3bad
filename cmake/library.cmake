# libtegula.so and libtegula.a from one set of objects, and the program, which links the archive: a copied `tegula`
# runs without the library beside it. Only what tegula.h marks TEG_API leaves the shared library.
add_library(tegula_objects OBJECT ${SOURCES})
target_include_directories(tegula_objects PUBLIC ${CMAKE_SOURCE_DIR}/include PRIVATE src)
target_compile_options(tegula_objects PRIVATE ${WARNINGS} -fvisibility=hidden)
# In a release the library's own assertions are off: it never aborts its caller. Tests keep theirs.
target_compile_definitions(tegula_objects PRIVATE _GNU_SOURCE $<$<CONFIG:Release>:NDEBUG>)
set_property(TARGET tegula_objects PROPERTY POSITION_INDEPENDENT_CODE ON)
target_link_libraries(tegula_objects PUBLIC PkgConfig::TEGULA_DEPS Threads::Threads m)

add_library(tegula_shared SHARED $<TARGET_OBJECTS:tegula_objects>)
set_target_properties(tegula_shared PROPERTIES OUTPUT_NAME tegula EXPORT_NAME tegula VERSION ${PROJECT_VERSION}
                      SOVERSION ${PROJECT_VERSION_MAJOR})
target_link_libraries(tegula_shared PRIVATE PkgConfig::TEGULA_DEPS Threads::Threads m)

add_library(tegula_static STATIC $<TARGET_OBJECTS:tegula_objects>)
set_target_properties(tegula_static PROPERTIES OUTPUT_NAME tegula EXPORT_NAME static)
target_link_libraries(tegula_static PUBLIC PkgConfig::TEGULA_DEPS Threads::Threads m)

foreach(library tegula_shared tegula_static)
  target_include_directories(${library} PUBLIC $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/include>
                             $<INSTALL_INTERFACE:include>)
endforeach()

file(GLOB CLI_SOURCES CONFIGURE_DEPENDS cli/*.c)
if(CLI_SOURCES)
  add_executable(tegula ${CLI_SOURCES})
  target_compile_options(tegula PRIVATE ${WARNINGS})
  target_compile_definitions(tegula PRIVATE _GNU_SOURCE)
  target_link_libraries(tegula PRIVATE tegula_static PkgConfig::ZLIB)
endif()
