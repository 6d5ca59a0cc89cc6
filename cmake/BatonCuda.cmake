# SPDX-License-Identifier: Apache-2.0
# Finds the CUDA toolkit and NCCL's header. Nothing is linked: host code reaches the driver, cuBLASLt and NCCL through dlopen, so
# that what was built with the toolkit also runs where no library of NVIDIA's is. AUTO builds what is there and is silent about
# what is not; ON makes its absence an error; OFF does not look.
#
# Sets BATON_HAVE_CUDA, BATON_CUDA_VERSION, BATON_HAVE_NCCL, BATON_NVCC, BATON_PTXAS, BATON_CUDA_ROOT, BATON_CUDA_INCLUDE_DIR, BATON_NCCL_INCLUDE_DIR.
set(BATON_CUDA AUTO CACHE STRING "CUDA backend: AUTO (where the toolkit is found), ON or OFF")
set(BATON_NCCL AUTO CACHE STRING "NCCL transport: AUTO (where CUDA is built and nccl.h is found), ON or OFF")
set_property(CACHE BATON_CUDA BATON_NCCL PROPERTY STRINGS AUTO ON OFF)
foreach(option BATON_CUDA BATON_NCCL)
  if(NOT ${option} MATCHES "^(AUTO|ON|OFF)$")
    message(FATAL_ERROR "${option}=${${option}} is not one of AUTO, ON, OFF")
  endif()
endforeach()

set(BATON_HAVE_CUDA OFF)
if(NOT BATON_CUDA STREQUAL OFF)
  file(GLOB baton_cuda_roots LIST_DIRECTORIES true /usr/local/cuda /usr/local/cuda-[0-9]* /opt/cuda)
  list(SORT baton_cuda_roots COMPARE NATURAL ORDER DESCENDING)
  find_program(BATON_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS ${baton_cuda_roots} PATH_SUFFIXES bin)
  if(BATON_NVCC)
    get_filename_component(baton_cuda_bin ${BATON_NVCC} DIRECTORY)
    get_filename_component(BATON_CUDA_ROOT ${baton_cuda_bin} DIRECTORY)
    find_program(BATON_PTXAS ptxas HINTS ${baton_cuda_bin})
    find_path(BATON_CUDA_INCLUDE_DIR NAMES cublasLt.h HINTS ${BATON_CUDA_ROOT}/include)
  endif()
  if(BATON_NVCC AND BATON_PTXAS AND BATON_CUDA_INCLUDE_DIR AND EXISTS ${BATON_CUDA_INCLUDE_DIR}/cuda.h)
    file(STRINGS ${BATON_CUDA_INCLUDE_DIR}/cuda.h baton_cuda_version REGEX "^#define CUDA_VERSION [0-9]+")
    string(REGEX REPLACE "[^0-9]+" "" baton_cuda_version "${baton_cuda_version}")
    # Older headers name fewer entry points, and older compilers do not know sm_90 or C++20.
    if(baton_cuda_version GREATER_EQUAL 12000)
      set(BATON_HAVE_CUDA ON)
      set(BATON_CUDA_VERSION ${baton_cuda_version})
      message(STATUS "CUDA ${baton_cuda_version}: ${BATON_CUDA_ROOT}")
    elseif(BATON_CUDA STREQUAL ON)
      message(FATAL_ERROR "BATON_CUDA=ON, but ${BATON_CUDA_INCLUDE_DIR}/cuda.h is version ${baton_cuda_version}; 12000 is needed")
    endif()
  elseif(BATON_CUDA STREQUAL ON)
    message(FATAL_ERROR "BATON_CUDA=ON, but the toolkit is incomplete: nvcc ${BATON_NVCC}, ptxas ${BATON_PTXAS}, "
                        "cublasLt.h in ${BATON_CUDA_INCLUDE_DIR}; set CUDA_HOME to its folder")
  endif()
endif()

set(BATON_HAVE_NCCL OFF)
if(NOT BATON_NCCL STREQUAL OFF)
  if(BATON_HAVE_CUDA)
    find_path(BATON_NCCL_INCLUDE_DIR NAMES nccl.h HINTS ENV NCCL_HOME ${BATON_CUDA_INCLUDE_DIR} PATH_SUFFIXES include)
  endif()
  if(BATON_NCCL_INCLUDE_DIR)
    set(BATON_HAVE_NCCL ON)
  elseif(BATON_NCCL STREQUAL ON)
    message(FATAL_ERROR "BATON_NCCL=ON, but there is no nccl.h (CUDA: ${BATON_HAVE_CUDA}); set NCCL_HOME to its folder")
  endif()
endif()
