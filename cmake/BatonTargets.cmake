# SPDX-License-Identifier: Apache-2.0

# baton_library(NAME SRCS a.cc b.cc DEPS x y): one folder, one library `baton_NAME`. DEPS is the folder's whole
# permission: tests/unit/layering_test reads the includes and holds them to README.md's dependency table.
function(baton_library name)
  cmake_parse_arguments(ARG "" "" "SRCS;DEPS" ${ARGN})
  add_library(baton_${name} STATIC ${ARG_SRCS})
  target_link_libraries(baton_${name} PUBLIC ${ARG_DEPS})
endfunction()

# baton_program(NAME SRCS main.cc DEPS x y): an executable in build/<preset>/bin.
function(baton_program name)
  cmake_parse_arguments(ARG "" "" "SRCS;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SRCS})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS})
endfunction()

# baton_test(NAME SRCS x_test.cc DEPS y LABELS unit TIMEOUT 60): one CTest entry per test program (a program starts in
# milliseconds; one entry per case would start gRPC hundreds of times). TIMEOUT is in seconds of a release build.
function(baton_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SRCS;DEPS;LABELS" ${ARGN})
  add_executable(${name} ${ARG_SRCS})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} GTest::gtest GTest::gmock GTest::gtest_main)
  if(BATON_SANITIZE)
    # gtest's macros under every check take twice as long to optimise, for code that is not the one under test.
    target_compile_options(${name} PRIVATE -O0)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  math(EXPR ARG_TIMEOUT "${ARG_TIMEOUT} * ${BATON_SLOWNESS}")
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  add_test(NAME ${name} COMMAND ${name} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "${ARG_LABELS}")
endfunction()
