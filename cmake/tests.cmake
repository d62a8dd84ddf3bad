# Every tests/{unit,kernel,prop}/test_*.c is one program and may use internal headers. Every tests/fuzz/fuzz_*.c is one
# LLVMFuzzerTestOneInput: linked with replay.c it runs its corpus as an ordinary test, and with TEGULA_FUZZERS it also
# becomes a libFuzzer program. tests/run.py reads the list of programs from tests/manifest.txt in the build directory,
# so a program whose source is gone is not run. Without cmocka there are no unit tests; `make check` installs it.
set(MANIFEST "")

function(add_test_program kind name)
  add_executable(${name} ${ARGN})
  target_include_directories(${name} PRIVATE src tests)
  target_compile_options(${name} PRIVATE ${WARNINGS})
  target_compile_definitions(${name} PRIVATE _GNU_SOURCE TEST_DATA="${CMAKE_SOURCE_DIR}/tests/data")
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  target_link_libraries(${name} PRIVATE tegula_static)
  set(MANIFEST "${MANIFEST}${kind} ${name}\n" PARENT_SCOPE)
endfunction()

if(CMOCKA_FOUND)
  foreach(kind unit kernel prop)
    file(GLOB TEST_SOURCES CONFIGURE_DEPENDS tests/${kind}/test_*.c)
    foreach(source ${TEST_SOURCES})
      get_filename_component(name ${source} NAME_WE)
      add_test_program(${kind} ${name} ${source})
      target_link_libraries(${name} PRIVATE PkgConfig::CMOCKA)
    endforeach()
  endforeach()
endif()

file(GLOB FUZZ_SOURCES CONFIGURE_DEPENDS tests/fuzz/fuzz_*.c)
foreach(source ${FUZZ_SOURCES})
  get_filename_component(name ${source} NAME_WE)
  string(REPLACE "fuzz_" "" topic ${name})
  add_test_program(fuzz replay_${topic} ${source} tests/fuzz/replay.c)
  target_compile_definitions(replay_${topic} PRIVATE FUZZ_TOPIC="${topic}"
                             FUZZ_CORPUS="${CMAKE_SOURCE_DIR}/tests/fuzz/corpus/${topic}")
  if(TEGULA_FUZZERS)
    add_executable(${name} ${source})
    target_include_directories(${name} PRIVATE src tests)
    target_compile_definitions(${name} PRIVATE _GNU_SOURCE)
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
    target_link_libraries(${name} PRIVATE tegula_static)
  endif()
endforeach()

file(WRITE ${CMAKE_BINARY_DIR}/tests/manifest.txt "${MANIFEST}")

# Benchmarks are built on demand: cmake --build build --target bench_kernels
file(GLOB BENCH_SOURCES CONFIGURE_DEPENDS bench/bench_*.c)
foreach(source ${BENCH_SOURCES})
  get_filename_component(name ${source} NAME_WE)
  add_executable(${name} EXCLUDE_FROM_ALL ${source})
  target_include_directories(${name} PRIVATE src tests)
  target_compile_options(${name} PRIVATE ${WARNINGS})
  target_compile_definitions(${name} PRIVATE _GNU_SOURCE)
  target_link_libraries(${name} PRIVATE tegula_static)
endforeach()
