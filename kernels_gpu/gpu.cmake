# liblinnet_opencl and liblinnet_cuda: libraries of devices, on linnet's public headers alone. The drivers are opened at run time,
# so no header or library of OpenCL or CUDA is needed to build them. CMakeLists.txt includes this file.

# liblinnet_BACKEND: the kernels of common/, with the texts of kernels that only this backend has.
function(linnet_gpu_library backend)
  file(GLOB texts CONFIGURE_DEPENDS kernels_gpu/common/*.inc kernels_gpu/${backend}/*.inc)
  list(FILTER texts EXCLUDE REGEX "/(kernels|dialect)\\.inc$") # the list of kernels is for the host; the dialect comes first
  set(dialect ${CMAKE_CURRENT_SOURCE_DIR}/kernels_gpu/${backend}/dialect.inc)
  set(embedded ${CMAKE_CURRENT_BINARY_DIR}/kernels_gpu/${backend}_files.c)
  add_custom_command(OUTPUT ${embedded}
                     COMMAND ${CMAKE_COMMAND} -DOUT=${embedded} -DDIALECT=${dialect} "-DFILES=${texts}"
                             -P ${CMAKE_CURRENT_SOURCE_DIR}/kernels_gpu/embed.cmake
                     DEPENDS ${texts} ${dialect} kernels_gpu/embed.cmake VERBATIM)
  file(GLOB files CONFIGURE_DEPENDS kernels_gpu/common/*.c kernels_gpu/${backend}/*.c)
  set(library linnet_${backend})
  add_library(${library} MODULE ${files} ${embedded})
  target_include_directories(${library} PRIVATE runtime_c/include .)
  target_compile_options(${library} PRIVATE -Wall -Wextra -ffunction-sections -fdata-sections ${LINNET_SMALL})
  if(LINNET_WERROR)
    target_compile_options(${library} PRIVATE -Werror)
  endif()
  target_link_libraries(${library} PRIVATE Threads::Threads m ${CMAKE_DL_LIBS})
  target_link_options(${library} PRIVATE -Wl,--gc-sections)
endfunction()

if(LINNET_OPENCL)
  linnet_gpu_library(opencl)
endif()
if(LINNET_CUDA)
  linnet_gpu_library(cuda)
  target_compile_definitions(linnet_cuda PRIVATE LG_CUDA_KERNELS)
  if(LINNET_CUDA_PROGRAMS)
    set_source_files_properties(kernels_gpu/cuda/pack.c PROPERTIES
                                COMPILE_DEFINITIONS LG_PACK_FILE="${LINNET_CUDA_PROGRAMS}"
                                OBJECT_DEPENDS "${LINNET_CUDA_PROGRAMS}")
  endif()
endif()
