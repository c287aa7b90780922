# CMake toolchain: zig's C compiler (the package `ziglang`), which has the C libraries of all targets with it.
# LINNET_ZIG is its program, LINNET_ZIG_TARGET the target, such as aarch64-linux-musl, LINNET_ZIG_CPU the least processor.
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES LINNET_ZIG LINNET_ZIG_TARGET LINNET_ZIG_CPU)
set(CMAKE_SYSTEM_NAME Linux)
string(REGEX REPLACE "-.*" "" CMAKE_SYSTEM_PROCESSOR ${LINNET_ZIG_TARGET})
set(CMAKE_C_COMPILER ${LINNET_ZIG} cc -target ${LINNET_ZIG_TARGET} -mcpu=${LINNET_ZIG_CPU})
set(CMAKE_C_ARCHIVE_CREATE "\"${LINNET_ZIG}\" ar qc <TARGET> <LINK_FLAGS> <OBJECTS>")
set(CMAKE_C_ARCHIVE_FINISH "\"${LINNET_ZIG}\" ranlib <TARGET>")
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
# CMake's questions are answered without a link, since zig compiles a C library for each new set of flags. The answers that
# only a link would give stand here.
set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
set(CMAKE_HAVE_LIBC_PTHREAD OFF CACHE INTERNAL "")
set(CMAKE_HAVE_PTHREADS_CREATE OFF CACHE INTERNAL "")
set(CMAKE_HAVE_PTHREAD_CREATE ON CACHE INTERNAL "")
set(LINNET_LINKS___Bsymbolic_functions OFF CACHE INTERNAL "") # zig's linker does not know it
