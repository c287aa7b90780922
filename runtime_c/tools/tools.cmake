# The native tools: linnet-bench, linnet-run, linnet-train and, where liblinnet_sync is built, linnet-parameter-server.
# They link the static libraries, so that each is one file, which may be copied to another machine.

function(linnet_tool name library)
  list(TRANSFORM ARGN PREPEND runtime_c/tools/)
  set(shared help.c messages.c open.c options.c)
  list(TRANSFORM shared PREPEND runtime_c/tools/)
  add_executable(${name} ${shared} ${ARGN})
  target_compile_options(${name} PRIVATE -Wall -Wextra)
  if(LINNET_OPTIMIZED) # as in the library: nothing here unwinds, and what nothing calls is left out
    target_compile_options(${name} PRIVATE -ffunction-sections -fdata-sections -fno-asynchronous-unwind-tables -fno-unwind-tables)
    target_link_options(${name} PRIVATE -Wl,--gc-sections)
  endif()
  target_link_libraries(${name} PRIVATE ${library} m ${CMAKE_DL_LIBS})
  set(LINNET_TOOL_NAMES ${LINNET_TOOL_NAMES} ${name} PARENT_SCOPE)
endfunction()

linnet_tool(linnet-bench linnet_static linnet_bench.c bench_report.c clock.c inputs.c peak.c run.c step_times.c
            system.c system_state.c values.c words.c)
foreach(isa ${LINNET_WANTED_ISAS}) # loops in registers, one file per instruction set
  set(source runtime_c/tools/peak__${isa}.c)
  if(EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/${source})
    set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "${LINNET_ISA_${isa}};-O2;-ffp-contract=fast")
    target_sources(linnet-bench PRIVATE ${source})
    target_compile_definitions(linnet-bench PRIVATE TOOL_PEAK_${isa})
  endif()
endforeach()
linnet_tool(linnet-run linnet_static linnet_run.c clock.c feeds.c inputs.c media.c media_bmp.c media_jpeg.c
            media_picture.c media_png.c npy.c results.c run.c trace.c trace_events.c trace_hosts.c values.c words.c)
linnet_tool(linnet-train linnet_static linnet_train.c clock.c npy.c words.c train_array.c train_data.c train_keep.c train_lock.c train_loop.c train_nan.c
            train_order.c train_program.c train_setup.c)
if(LINNET_SYNC)
  linnet_tool(linnet-parameter-server linnet_sync_static linnet_parameter_server.c values.c)
  if(UNIX) # the old name, for one version
    add_custom_command(TARGET linnet-parameter-server POST_BUILD
                       COMMAND ${CMAKE_COMMAND} -E create_symlink linnet-parameter-server linnet-serve)
  endif()
endif()
if(LINNET_REMOTE)
  linnet_tool(linnet-host linnet_sync_static linnet_host.c values.c)
  target_sources(linnet-host PRIVATE ${LINNET_REMOTE_HOST})
  target_include_directories(linnet-host PRIVATE runtime_c)
endif()

# linnet-run alone links decoders, each if it is there; a tool without one says how to get it.
if(LINNET_MEDIA)
  find_package(JPEG QUIET)
  find_package(PNG QUIET)
  find_path(LINNET_SNDFILE_INCLUDE sndfile.h)
  find_library(LINNET_SNDFILE_LIBRARY sndfile)
  if(TARGET JPEG::JPEG)
    target_compile_definitions(linnet-run PRIVATE LINNET_WITH_JPEG)
    target_link_libraries(linnet-run PRIVATE JPEG::JPEG)
  endif()
  if(TARGET PNG::PNG)
    target_compile_definitions(linnet-run PRIVATE LINNET_WITH_PNG)
    target_link_libraries(linnet-run PRIVATE PNG::PNG)
  endif()
  if(LINNET_SNDFILE_INCLUDE AND LINNET_SNDFILE_LIBRARY)
    target_compile_definitions(linnet-run PRIVATE LINNET_WITH_SNDFILE)
    target_include_directories(linnet-run PRIVATE ${LINNET_SNDFILE_INCLUDE})
    target_link_libraries(linnet-run PRIVATE ${LINNET_SNDFILE_LIBRARY})
  endif()
endif()
