# SPDX-License-Identifier: Apache-2.0
# The CPU's kernels one by one, where Google Benchmark is installed.
find_package(benchmark QUIET)
if(benchmark_FOUND)
  baton_program(kernels_bench SRCS kernels_bench.cc DEPS baton_test_kernels baton_cpu_onednn benchmark::benchmark)
  set_target_properties(kernels_bench PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bench)
endif()
