# SPDX-License-Identifier: Apache-2.0
# Compiler settings for the whole tree. No -march here: files that need an instruction set name it themselves and are
# chosen at run time, so that one release binary runs on every x86-64 machine.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)

# A second build takes seconds where ccache is installed; nothing depends on it.
find_program(BATON_CCACHE ccache)
if(BATON_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${BATON_CCACHE})
endif()

# g++ 12 reports members of std::optional and of designated initialisers as uninitialised where they are not.
add_compile_options(-Wall -Wextra -Wno-unused-parameter -Wno-missing-field-initializers -Wno-psabi)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  add_compile_options(-Wno-maybe-uninitialized)
endif()
include_directories(${CMAKE_SOURCE_DIR})

if(BATON_SANITIZE)
  # The checks multiply the code; at -O2 -g this tree takes twice as long to build, for reports that say no more.
  add_compile_options(-O1 -g1)
  add_compile_options(-fsanitize=${BATON_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${BATON_SANITIZE})
endif()
# What a test's time limit is multiplied by; tests/support/sanitizers.h has the same for limits inside tests.
set(BATON_SLOWNESS 1)
if(BATON_SANITIZE MATCHES "address")
  set(BATON_SLOWNESS 5)
elseif(BATON_SANITIZE MATCHES "thread")
  set(BATON_SLOWNESS 10)
endif()
if(BATON_THREAD_SAFETY)
  add_compile_options(-Wthread-safety -Werror=thread-safety)
endif()
