# SPDX-License-Identifier: Apache-2.0
# Tests of common/backend/cpu's kernels.
add_library(baton_test_kernels STATIC
  kernels_test_support.cc kernels_avx512_emulated.cc kernels_amx_emulated.cc kernels_amx_avx512_emulated.cc)
set_source_files_properties(kernels_avx512_emulated.cc PROPERTIES
  COMPILE_OPTIONS "-O1;-ffp-contract=off;-fno-math-errno;-mavx2;-mfma;-mf16c")
set_source_files_properties(kernels_amx_avx512_emulated.cc PROPERTIES
  COMPILE_OPTIONS "-O2;-ffp-contract=off;-fno-math-errno;-mavx2;-mfma;-mf16c;-Wno-unused-function")
set_source_files_properties(kernels_amx_emulated.cc PROPERTIES
  COMPILE_OPTIONS "-O2;-ffp-contract=off;-fno-math-errno;-mavx512f;-mavx512bw;-mavx512vl;-mavx512dq;-mavx512vnni;-mfma;-mf16c;-Wno-maybe-uninitialized;-Wno-uninitialized;-Wno-unused-function")
target_link_libraries(baton_test_kernels PUBLIC baton_cpu_kernels baton_test_support GTest::gtest)
baton_test(backend_linear_quant_test SRCS linear_quant_test.cc DEPS baton_test_kernels)
baton_test(backend_linear_tiles_test SRCS linear_tiles_test.cc DEPS baton_test_kernels)
baton_test(backend_pack_cache_test SRCS pack_cache_test.cc DEPS baton_test_kernels)
baton_test(backend_attention_kernels_test SRCS attention_kernels_test.cc DEPS baton_test_kernels)
baton_test(backend_row_kernels_test SRCS row_kernels_test.cc DEPS baton_test_kernels)
baton_test(backend_thread_pool_test SRCS thread_pool_test.cc DEPS baton_cpu_kernels)
baton_test(backend_onednn_linear_test SRCS onednn_linear_test.cc DEPS baton_test_kernels baton_cpu_onednn)
baton_test(backend_calibration_test SRCS calibration_test.cc DEPS baton_cpu_kernels)
