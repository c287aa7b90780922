# What `cmake --install` writes: libraries, headers, tools, and how CMake and pkg-config find them. A wheel has the same
# libraries, headers and tools inside the Python package.
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

set(LINNET_INSTALLED linnet linnet_static)
set(LINNET_PC linnet)
if(LINNET_SYNC)
  list(APPEND LINNET_INSTALLED linnet_sync linnet_sync_static)
  list(APPEND LINNET_PC linnet_sync)
endif()
set(LINNET_DEVICE_LIBRARIES "") # opened at run time by their names, from the folder of liblinnet
if(LINNET_OPENCL)
  list(APPEND LINNET_DEVICE_LIBRARIES linnet_opencl)
endif()
if(LINNET_CUDA)
  list(APPEND LINNET_DEVICE_LIBRARIES linnet_cuda)
endif()
if(LINNET_REMOTE)
  list(APPEND LINNET_DEVICE_LIBRARIES linnet_remote)
endif()
file(GLOB LINNET_HEADERS CONFIGURE_DEPENDS runtime_c/include/*.h)

if(SKBUILD)
  list(FILTER LINNET_INSTALLED EXCLUDE REGEX "_static$")
  install(TARGETS ${LINNET_INSTALLED} LIBRARY DESTINATION linnet/lib COMPONENT python)
  if(LINNET_DEVICE_LIBRARIES)
    install(TARGETS ${LINNET_DEVICE_LIBRARIES} LIBRARY DESTINATION linnet/lib COMPONENT python)
  endif()
  if(LINNET_TOOL_NAMES)
    install(TARGETS ${LINNET_TOOL_NAMES} RUNTIME DESTINATION linnet/bin COMPONENT python)
  endif()
  install(FILES ${LINNET_HEADERS} DESTINATION linnet/include COMPONENT python)
  # What `linnet deploy` builds tools for other processors from (pyruntime/linnet/deploy/native_build.py).
  file(GLOB_RECURSE sources RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} CONFIGURE_DEPENDS
       runtime_c/*.c runtime_c/*.h runtime_c/*.inc runtime_c/*.cmake kernels_arm/*.c kernels_arm/*.h kernels_arm/*.inc
       kernels_x86/*.c kernels_x86/*.h kernels_x86/*.inc kernels_gpu/*.cmake)
  list(APPEND sources CMakeLists.txt LICENSE)
  list(SORT sources)
  file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/sources.txt "")
  foreach(source ${sources})
    file(APPEND ${CMAKE_CURRENT_BINARY_DIR}/sources.txt "${source}\n")
  endforeach()
  set(archive ${CMAKE_CURRENT_BINARY_DIR}/sources.tar.xz)
  execute_process(COMMAND ${CMAKE_COMMAND} -E tar cJf ${archive} --format=gnutar "--mtime=1970-01-01"
                          --files-from=${CMAKE_CURRENT_BINARY_DIR}/sources.txt
                  WORKING_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR} COMMAND_ERROR_IS_FATAL ANY)
  install(FILES ${archive} DESTINATION linnet/targets COMPONENT python)
  if(LINNET_TARGETS) # archives of .ci/wheels.py
    file(GLOB archives ${LINNET_TARGETS}/*.tar.xz)
    install(FILES ${archives} DESTINATION linnet/targets COMPONENT python)
  endif()
  return()
endif()

foreach(library ${LINNET_INSTALLED})
  target_include_directories(${library} INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
endforeach()
install(TARGETS ${LINNET_INSTALLED} EXPORT linnetTargets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(LINNET_DEVICE_LIBRARIES)
  install(TARGETS ${LINNET_DEVICE_LIBRARIES} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
if(LINNET_TOOL_NAMES)
  install(TARGETS ${LINNET_TOOL_NAMES} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  if(UNIX AND LINNET_SYNC) # the old name of linnet-parameter-server, a link
    install(FILES ${CMAKE_CURRENT_BINARY_DIR}/linnet-serve DESTINATION ${CMAKE_INSTALL_BINDIR})
  endif()
endif()
install(FILES ${LINNET_HEADERS} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})

set(folder ${CMAKE_INSTALL_LIBDIR}/cmake/linnet)
install(EXPORT linnetTargets NAMESPACE linnet:: DESTINATION ${folder})
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/linnetConfigVersion.cmake COMPATIBILITY SameMinorVersion)
configure_package_config_file(runtime_c/linnetConfig.cmake.in ${CMAKE_CURRENT_BINARY_DIR}/linnetConfig.cmake
                              INSTALL_DESTINATION ${folder})
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/linnetConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/linnetConfigVersion.cmake
        DESTINATION ${folder})

file(RELATIVE_PATH LINNET_UP /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix) # an installed tree may be moved
string(REGEX REPLACE "/$" "" LINNET_UP "${LINNET_UP}")
set(LINNET_DL "")
foreach(library ${CMAKE_DL_LIBS})
  string(APPEND LINNET_DL " -l${library}")
endforeach()
foreach(name ${LINNET_PC})
  configure_file(runtime_c/${name}.pc.in ${CMAKE_CURRENT_BINARY_DIR}/${name}.pc @ONLY)
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/${name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endforeach()
