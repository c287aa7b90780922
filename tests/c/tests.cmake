# The C tests, the drivers of the fuzzers, the benches and the simulator of liblinnet_sync.
# tests/native.py builds and runs them.
enable_testing()

function(linnet_test_program name library)
  add_executable(${name} ${ARGN})
  target_include_directories(${name} PRIVATE runtime_c . tests/c)
  target_compile_options(${name} PRIVATE -Wall -Wextra -ffp-contract=off)
  target_link_libraries(${name} PRIVATE ${library})
endfunction()

file(GLOB LINNET_C_TESTS CONFIGURE_DEPENDS tests/c/test_*.c)
foreach(source ${LINNET_C_TESTS})
  get_filename_component(name ${source} NAME_WE)
  if(NOT name MATCHES "^test_sync_")
    linnet_test_program(${name} linnet_static ${source})
  elseif(LINNET_SYNC)
    linnet_test_program(${name} linnet_sync_static ${source})
  else()
    continue()
  endif()
  add_test(NAME ${name} COMMAND ${name})
endforeach()

# Drivers that tests/test_fuzz.py and tests/test_allocations.py run, and the bench of the matrix kernels.
foreach(source fuzz/fuzz_checkpoint fuzz/fuzz_graph fuzz/fuzz_map fuzz/fuzz_model fuzz/fuzz_op c/oom_model c/bench_gemm)
  get_filename_component(name ${source} NAME)
  linnet_test_program(${name} linnet_static tests/${source}.c)
endforeach()
target_sources(fuzz_graph PRIVATE tests/ext/mock_device.c tests/ext/mock_queue.c tests/ext/user_ops.c)

if(LINNET_SYNC)
  file(GLOB LINNET_SYNC_SIMULATOR CONFIGURE_DEPENDS tests/sim/*.c) # tests/test_sync_sim.py runs it
  linnet_test_program(sync_sim linnet_sync_static ${LINNET_SYNC_SIMULATOR})
  file(GLOB LINNET_SYNC_DRIVERS CONFIGURE_DEPENDS tests/fuzz/fuzz_sync_*.c tests/c/bench_sync_*.c tests/c/load_sync_*.c)
  foreach(source ${LINNET_SYNC_DRIVERS})
    get_filename_component(name ${source} NAME_WE)
    linnet_test_program(${name} linnet_sync_static ${source})
  endforeach()
endif()

if(LINNET_REMOTE) # tests/test_remote_fuzz.py runs it
  linnet_test_program(fuzz_remote_host linnet_sync_static tests/fuzz/fuzz_remote_host.c)
  linnet_test_program(ping_remote linnet_sync_static tests/c/ping_remote.c)
  target_sources(ping_remote PRIVATE ${LINNET_REMOTE_FILES})
  target_sources(fuzz_remote_host PRIVATE ${LINNET_REMOTE_HOST} runtime_c/remote/batch.c)
  if(NOT APPLE) # tests/test_host_sim.py runs it; the linker lets its wire make and open the connections
    file(GLOB LINNET_HOST_SIMULATOR CONFIGURE_DEPENDS tests/sim_hosts/*.c)
    linnet_test_program(host_sim linnet_sync_static ${LINNET_HOST_SIMULATOR} ${LINNET_REMOTE_HOST} ${LINNET_REMOTE_DEVICE})
    target_link_options(host_sim PRIVATE -Wl,--wrap=ln_net_transport_new -Wl,--wrap=ln_net_connect)
  endif()
endif()

if(CMAKE_SYSTEM_NAME STREQUAL "Linux" AND CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|aarch64" AND NOT CMAKE_CROSSCOMPILING AND
   NOT LINNET_SANITIZE AND NOT LINNET_ZIG)
  include(tests/cuda/standin.cmake) # tests/test_cuda_*.py use the libraries
endif()
