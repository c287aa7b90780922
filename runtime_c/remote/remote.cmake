# liblinnet_remote: another machine as a device; and linnet-host, which runs on that machine (runtime_c/tools/tools.cmake). Both stand
# on linnet's public headers and on net/, which liblinnet_sync has.

set(LINNET_REMOTE_FILES runtime_c/remote/wire.c runtime_c/remote/link.c runtime_c/remote/pulse.c
    runtime_c/remote/sha256.c)
set(LINNET_REMOTE_HOST ${LINNET_REMOTE_FILES} runtime_c/remote/host.c runtime_c/remote/host_client.c
    runtime_c/remote/host_constants.c runtime_c/remote/host_folder.c runtime_c/remote/host_kept.c
    runtime_c/remote/host_memory.c runtime_c/remote/host_outbox.c
    runtime_c/remote/host_peer.c runtime_c/remote/host_piece.c runtime_c/remote/host_plan.c runtime_c/remote/host_predict.c
    runtime_c/remote/host_recipe.c runtime_c/remote/host_trace.c runtime_c/remote/host_wait.c runtime_c/remote/host_work.c)
set(LINNET_REMOTE_DEVICE runtime_c/remote/batch.c runtime_c/remote/device.c runtime_c/remote/device_cost.c
    runtime_c/remote/device_kept.c runtime_c/remote/device_peer.c runtime_c/remote/device_state.c runtime_c/remote/device_trace.c runtime_c/remote/flat.c
    runtime_c/remote/piece.c runtime_c/remote/piece_graph.c runtime_c/remote/piece_tables.c runtime_c/remote/queue.c runtime_c/remote/ship.c)
add_library(linnet_remote MODULE ${LINNET_REMOTE_FILES} ${LINNET_REMOTE_DEVICE} runtime_c/remote/library.c)
target_include_directories(linnet_remote PRIVATE runtime_c/include runtime_c)
target_compile_options(linnet_remote PRIVATE -Wall -Wextra -fvisibility=hidden -ffunction-sections -fdata-sections ${LINNET_SMALL})
if(LINNET_WERROR)
  target_compile_options(linnet_remote PRIVATE -Werror)
endif()
target_link_libraries(linnet_remote PRIVATE linnet_sync_static linnet_static Threads::Threads ${CMAKE_DL_LIBS})
target_link_options(linnet_remote PRIVATE -Wl,--gc-sections)
if(NOT APPLE) # the parts of linnet inside it are its own: it exports one function
  set(exports ${CMAKE_CURRENT_BINARY_DIR}/linnet_remote.map)
  file(WRITE ${exports} "{ global: linnet_extension_devices; local: *; };\n")
  target_link_options(linnet_remote PRIVATE -Wl,--version-script=${exports})
endif()
