# liblinnet_opencl: the OpenCL devices, on linnet's public headers alone. libOpenCL is opened at run time, so no header or library
# of OpenCL is needed to build it. CMakeLists.txt includes this file.

file(GLOB LINNET_GPU_TEXTS CONFIGURE_DEPENDS kernels_gpu/common/*.inc)
list(FILTER LINNET_GPU_TEXTS EXCLUDE REGEX "/kernels\\.inc$") # the list of kernels is for the host
set(embedded ${CMAKE_CURRENT_BINARY_DIR}/kernels_gpu/opencl_files.c)
add_custom_command(OUTPUT ${embedded}
                   COMMAND ${CMAKE_COMMAND} -DOUT=${embedded} -DDIALECT=${CMAKE_CURRENT_SOURCE_DIR}/kernels_gpu/opencl/dialect.inc
                           "-DFILES=${LINNET_GPU_TEXTS}" -P ${CMAKE_CURRENT_SOURCE_DIR}/kernels_gpu/embed.cmake
                   DEPENDS ${LINNET_GPU_TEXTS} kernels_gpu/opencl/dialect.inc kernels_gpu/embed.cmake VERBATIM)
file(GLOB LINNET_OPENCL_FILES CONFIGURE_DEPENDS kernels_gpu/common/*.c kernels_gpu/opencl/*.c)
add_library(linnet_opencl MODULE ${LINNET_OPENCL_FILES} ${embedded})
target_include_directories(linnet_opencl PRIVATE runtime_c/include .)
target_compile_options(linnet_opencl PRIVATE -Wall -Wextra -ffunction-sections -fdata-sections ${LINNET_SMALL})
if(LINNET_WERROR)
  target_compile_options(linnet_opencl PRIVATE -Werror)
endif()
target_link_libraries(linnet_opencl PRIVATE Threads::Threads m ${CMAKE_DL_LIBS})
target_link_options(linnet_opencl PRIVATE -Wl,--gc-sections)
