# How C files are compiled and libraries linked: hardening, optimization by folder, instruction sets by the end of a
# kernel file's name. CMakeLists.txt includes this file and calls its functions.
include(CheckCCompilerFlag)
include(CheckCSourceCompiles)
include(CheckLinkerFlag)
include(CheckPIESupported)

# The processor that the compiler makes code for. The name of the host's processor does not decide: a kernel of 64 bits runs
# compilers, and whole systems, of 32 bits.
set(LINNET_PROCESSOR other)
set(LINNET_MACRO_x86_64 "defined(__x86_64__) || defined(_M_X64)")
set(LINNET_MACRO_aarch64 "defined(__aarch64__)")
set(LINNET_MACRO_arm32 "defined(__arm__) && defined(__ARM_NEON)") # others of 32 bits have portable kernels
foreach(processor x86_64 aarch64 arm32)
  check_c_source_compiles("#if !(${LINNET_MACRO_${processor}})
#error another processor
#endif
int main(void) { return 0; }" LINNET_IS_${processor})
  if(LINNET_IS_${processor})
    set(LINNET_PROCESSOR ${processor})
  endif()
endforeach()

set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
if(LINNET_SANITIZE) # sanitized code at -O2 takes twice as long to build and finds the same faults
  set(CMAKE_C_FLAGS_RELEASE "-O1")
else()
  set(CMAKE_C_FLAGS_RELEASE "-O2 -DNDEBUG")
endif()
set(LINNET_OPTIMIZED OFF) # a release build, as users get it
if(CMAKE_BUILD_TYPE STREQUAL "Release" AND NOT LINNET_SANITIZE)
  set(LINNET_OPTIMIZED ON)
endif()

# Release builds are hardened: canaries, checked copies, probed stacks; addresses are resolved at start and then read-only,
# and the tools are position-independent. Not -fcf-protection, -mbranch-protection: a program has that only where the C
# library's own start files do, which is in few systems yet. tests/test_hardening.py reads it off the binaries.
if(LINNET_OPTIMIZED AND LINNET_HARDEN)
  check_pie_supported(LANGUAGES C)
  set(CMAKE_REQUIRED_FLAGS "-O2 -Werror -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3")
  check_c_source_compiles("#include <string.h>
int main(void) { return 0; }" LINNET_HAS_FORTIFY_3) # else the C library warns that it takes 2
  unset(CMAKE_REQUIRED_FLAGS)
  set(LINNET_FORTIFY 2)
  if(LINNET_HAS_FORTIFY_3)
    set(LINNET_FORTIFY 3)
  endif()
  add_compile_options(-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=${LINNET_FORTIFY})
  foreach(flag stack-protector-strong stack-clash-protection)
    string(MAKE_C_IDENTIFIER "LINNET_HAS_${flag}" has)
    check_c_compiler_flag("-Werror -f${flag}" ${has}) # clang warns about what a processor lacks
    if(${has})
      add_compile_options(-f${flag})
    endif()
  endforeach()
  foreach(word relro now noexecstack)
    check_linker_flag(C -Wl,-z,${word} LINNET_HAS_Z_${word})
    if(LINNET_HAS_Z_${word})
      add_link_options(-Wl,-z,${word})
    endif()
  endforeach()
  # For fast kernels, which run once per tile or row: their arrays are indexed by constants, or by what planning has checked.
  set(LINNET_NO_CANARY -fno-stack-protector)
endif()
# Loops stay aligned. Aligned functions and jumps would take 1 % of the library and were measured to gain nothing.
if(LINNET_OPTIMIZED)
  foreach(what functions jumps labels)
    check_c_compiler_flag(-fno-align-${what} LINNET_HAS_NO_ALIGN_${what})
    if(LINNET_HAS_NO_ALIGN_${what})
      add_compile_options(-fno-align-${what})
    endif()
  endforeach()
endif()
# Symbols are bound at start (-z now), so stubs that bind them at the first call are of no use: 1.1 kB of x86-64.
if(LINNET_OPTIMIZED AND LINNET_PROCESSOR STREQUAL "x86_64")
  check_c_compiler_flag(-fno-plt LINNET_HAS_NO_PLT)
  if(LINNET_HAS_NO_PLT)
    add_compile_options(-fno-plt)
  endif()
endif()
# For size: -Oz, where GCC has it, and without three passes that repeat code or keep registers busy, which then must be saved.
# Together they are 9 kB of x86-64 and 3 % of the instructions of planning.
set(LINNET_SMALL -Os)
if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
  check_c_compiler_flag("-Oz" LINNET_HAS_OZ)
  if(LINNET_HAS_OZ)
    set(LINNET_SMALL -Oz)
  endif()
  list(APPEND LINNET_SMALL -fno-move-loop-invariants -fno-tree-loop-im -fno-thread-jumps -fno-tree-dominator-opts)
endif()
# For size, GCC copies and clears with rep movs and rep stos, whatever the length; they take 30 cycles to start. Where plans are
# made, calls of memcpy and memset take 1.1 kB and plan 20 % faster.
set(LINNET_COPIES "")
if(LINNET_PROCESSOR STREQUAL "x86_64")
  check_c_compiler_flag("-Werror -mstringop-strategy=libcall" LINNET_HAS_STRINGOP)
  if(LINNET_HAS_STRINGOP)
    set(LINNET_COPIES -mstringop-strategy=libcall)
  endif()
endif()
# What runs around the tiles of fast kernels and hardly shows in their time. On 64-bit ARM -Os takes 9 kB from it. On x86 -Os copies by
# rep movs.
set(LINNET_AROUND -O2)
if(LINNET_PROCESSOR STREQUAL "aarch64")
  set(LINNET_AROUND -Os)
endif()
# GCC 12 vectorizes loops of unknown length at -O3 alone, or at -O2 with the cost model of -O3.
check_c_compiler_flag("-Werror -fvect-cost-model=dynamic" LINNET_HAS_COST_MODEL)
if(LINNET_HAS_COST_MODEL)
  set(LINNET_VECTORS -ftree-vectorize -fvect-cost-model=dynamic)
endif()
# GCC otherwise allots the registers of a tile loop by loop, and then keeps a column of B on the stack.
check_c_compiler_flag(-fira-region=one LINNET_HAS_IRA_REGION)
if(LINNET_HAS_IRA_REGION)
  set(LINNET_WHOLE_FUNCTION -fira-region=one)
endif()

# The instruction set of a kernel file is the end of its name, as in longtail__avx2.c. The first of each list is the
# baseline, which every processor of the architecture has; LINNET_ISAS chooses among the others.
set(LINNET_ISA_sse2 "")
set(LINNET_ISA_sse42 -msse4.2 -mpclmul)
set(LINNET_ISA_avx2 -mavx2 -mfma -mf16c)
set(LINNET_ISA_avx512 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx2 -mfma -mf16c)
set(LINNET_ISA_avx512vnni ${LINNET_ISA_avx512} -mavx512vnni)
set(LINNET_ISA_neon "")
set(LINNET_ISA_neon32 "")
set(LINNET_ISA_crc -march=armv8-a+crc)
set(LINNET_ISA_fp16 -march=armv8.2-a+fp16)
set(LINNET_ISA_dotprod -march=armv8.2-a+dotprod)
set(LINNET_ISA_i8mm -march=armv8.2-a+dotprod+i8mm)
set(LINNET_ISA_bf16 -march=armv8.2-a+bf16)
if(LINNET_ZIG) # zig's spelling of the same
  set(LINNET_ISA_crc -mcpu=generic+crc)
  set(LINNET_ISA_fp16 -mcpu=generic+fullfp16)
  set(LINNET_ISA_dotprod -mcpu=generic+dotprod)
  set(LINNET_ISA_i8mm -mcpu=generic+dotprod+i8mm)
  set(LINNET_ISA_bf16 -mcpu=generic+bf16)
endif()
set(LINNET_KERNELS none)
set(LINNET_KNOWN_ISAS "")
if(LINNET_PROCESSOR STREQUAL "x86_64")
  set(LINNET_KERNELS kernels_x86)
  set(LINNET_KNOWN_ISAS sse2 sse42 avx2 avx512 avx512vnni)
elseif(LINNET_PROCESSOR STREQUAL "aarch64")
  set(LINNET_KERNELS kernels_arm)
  set(LINNET_KNOWN_ISAS neon crc fp16 dotprod i8mm bf16)
elseif(LINNET_PROCESSOR STREQUAL "arm32")
  set(LINNET_KERNELS kernels_arm/v7)
  set(LINNET_KNOWN_ISAS neon32)
endif()

# How shared libraries are linked: what the linker knows of it.
set(LINNET_SHARED_LINK "")
set(options --gc-sections --hash-style=gnu -Bsymbolic-functions)
if(NOT LINNET_ZIG)
  list(APPEND options -O1) # zig warns that it is deprecated
endif()
foreach(option ${options})
  string(MAKE_C_IDENTIFIER "LINNET_LINKS_${option}" has)
  check_linker_flag(C -Wl,${option} ${has})
  if(${has})
    list(APPEND LINNET_SHARED_LINK -Wl,${option})
  endif()
endforeach()

# linnet_folder(<list> <folder> <flags>...) appends the C files of a folder to the list, to be compiled with these flags.
# Files named NAME_plan.c run only while a model is planned, so they get LINNET_SMALL too. Builds that are not optimized take none
# of the flags.
function(linnet_folder list folder)
  file(GLOB sources CONFIGURE_DEPENDS ${folder}/*.c)
  list(FILTER sources EXCLUDE REGEX "\\.inc\\.c$") # pasted into other files
  if(LINNET_OPTIMIZED)
    set_source_files_properties(${sources} PROPERTIES COMPILE_OPTIONS "${ARGN}")
    set(planning ${sources})
    list(FILTER planning INCLUDE REGEX "_plan\\.c$")
    set_source_files_properties(${planning} PROPERTIES COMPILE_OPTIONS "${ARGN};${LINNET_SMALL}")
  endif()
  set(${list} ${${list}} ${sources} PARENT_SCOPE)
endfunction()

# linnet_kernels(<list> <folder> <flags>...): the kernel files whose instruction set is in LINNET_WANTED_ISAS, with its flags.
function(linnet_kernels list folder)
  set(optimize ${ARGN})
  if(LINNET_SANITIZE)
    set(optimize "")
  endif()
  file(GLOB sources CONFIGURE_DEPENDS ${folder}/*.c)
  foreach(source ${sources})
    string(REGEX REPLACE "^.*__([a-z0-9]+)\\.c$" "\\1" isa ${source})
    if(NOT isa IN_LIST LINNET_KNOWN_ISAS)
      message(FATAL_ERROR "${source}: the name of a kernel file must end in __<isa>.c")
    elseif(isa IN_LIST LINNET_WANTED_ISAS)
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "${LINNET_ISA_${isa}};${optimize}")
      list(APPEND ${list} ${source})
    endif()
  endforeach()
  set(${list} ${${list}} PARENT_SCOPE)
endfunction()

# linnet_objects(<target> <files>...): an object library that liblinnet or liblinnet_sync is made of.
function(linnet_objects target)
  add_library(${target} OBJECT ${ARGN})
  target_include_directories(${target} PRIVATE runtime_c/include runtime_c .)
  # Sections of their own: what nothing calls is left out of the library.
  target_compile_options(${target} PRIVATE -Wall -Wextra -ffp-contract=off -fno-math-errno -fno-trapping-math
                         -ffunction-sections -fdata-sections)
  if(LINNET_WERROR)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
  if(LINNET_SANITIZE)
    target_compile_options(${target} PRIVATE $<$<C_COMPILER_ID:Clang>:-Wno-pass-failed>) # some loops are not unrolled
  else()
    target_compile_options(${target} PRIVATE -fno-asynchronous-unwind-tables -fno-unwind-tables) # nothing here unwinds
  endif()
endfunction()

# linnet_library(<name> <objects>): the shared library <name> and the static one of the same file name, <name>_static. Other
# projects know them as linnet::<name> and linnet::<name>_static, whether they include this one or find it installed.
function(linnet_library name objects)
  add_library(${name} SHARED $<TARGET_OBJECTS:${objects}>)
  target_link_libraries(${name} PRIVATE Threads::Threads m ${CMAKE_DL_LIBS})
  target_link_options(${name} PRIVATE ${LINNET_SHARED_LINK})
  if(NOT SKBUILD) # a wheel holds no symbolic links: there the library has one plain name
    set_target_properties(${name} PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION 0)
  endif()
  add_library(${name}_static STATIC $<TARGET_OBJECTS:${objects}>)
  target_link_libraries(${name}_static PUBLIC Threads::Threads m ${CMAKE_DL_LIBS})
  set_target_properties(${name}_static PROPERTIES OUTPUT_NAME ${name})
  foreach(library ${name} ${name}_static)
    target_include_directories(${library} PUBLIC $<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/runtime_c/include>)
    add_library(linnet::${library} ALIAS ${library})
  endforeach()
endfunction()
