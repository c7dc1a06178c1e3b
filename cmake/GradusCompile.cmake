# How Gradus is compiled. Defines
#   gradus_compile                      flags every C file of the project has: warnings, floating-point rules, sanitizers
#   GD_ISAS, GD_ISA_FLAGS_<isa>         the instruction sets that kernels are built for, and their machine flags
#   GD_EXTENSIONS                       what some processors have besides an instruction set, with flags likewise
#   GD_ISA_OF_<extension>               that instruction set
#   GD_KNOWN_ISAS                       all that there are, whether this compiler knows them or not
#   GD_LIBRARY_OPTIONS, GD_KERNEL_OPTIONS    how the library, and its kernels, are optimised in a release
#   gd_configure_library_objects(t)     makes t's objects fit for both the static and the shared library
#   gd_link_sanitizers(t)               links what GD_SANITIZE needs into a program or shared library
include(CheckCCompilerFlag)
include(CheckLinkerFlag)

set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(CMAKE_GENERATOR STREQUAL "Ninja")
    # Colours in diagnostics although ninja puts a pipe between; decided at the terminal, not here, when piped further.
    set(CMAKE_COLOR_DIAGNOSTICS OFF)
endif()

check_linker_flag(C -Wl,-z,defs GD_HAVE_LINKER_Z_DEFS)
check_linker_flag(C -Wl,-Bsymbolic-functions GD_HAVE_LINKER_BSYMBOLIC_FUNCTIONS) # its own public functions are called directly
check_linker_flag(C -Wl,--gc-sections GD_HAVE_LINKER_GC_SECTIONS)

# ---- instruction sets
set(GD_ISAS baseline)
set(GD_ISA_FLAGS_baseline)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$" AND CMAKE_SIZEOF_VOID_P EQUAL 8)
    set(GD_ISA_FLAGS_avx2 -mavx2 -mfma -mf16c)
    set(GD_ISA_FLAGS_avx512 -mavx512f -mavx512dq -mavx512bw -mavx512vl -mavx2 -mfma -mf16c
        -mprefer-vector-width=512)
    foreach(isa avx2 avx512)
        string(TOUPPER ${isa} ISA)
        string(JOIN " " flags ${GD_ISA_FLAGS_${isa}})
        check_c_compiler_flag("${flags}" GD_COMPILES_${ISA})
        if(GD_COMPILES_${ISA} AND (isa STREQUAL avx2 OR avx2 IN_LIST GD_ISAS) AND
           (NOT GD_ONLY_ISAS OR isa IN_LIST GD_ONLY_ISAS))
            list(APPEND GD_ISAS ${isa})
        endif()
    endforeach()
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64|ARM64)$")
    if(NOT GD_ONLY_ISAS OR neon IN_LIST GD_ONLY_ISAS)
        list(APPEND GD_ISAS neon)
    endif()
    set(GD_ISA_FLAGS_neon) # part of the architecture
endif()

# What some processors have besides an instruction set.
set(GD_EXTENSIONS)
macro(gd_add_extension isa extension)
    if(${isa} IN_LIST GD_ISAS)
        string(TOUPPER ${extension} EXTENSION)
        set(GD_ISA_OF_${extension} ${isa})
        set(GD_ISA_FLAGS_${extension} ${GD_ISA_FLAGS_${isa}} ${ARGN})
        string(JOIN " " flags ${GD_ISA_FLAGS_${extension}})
        check_c_compiler_flag("${flags}" GD_COMPILES_${EXTENSION})
        if(GD_COMPILES_${EXTENSION})
            list(APPEND GD_EXTENSIONS ${extension})
        endif()
    endif()
endmacro()
gd_add_extension(avx512 avx512_vnni -mavx512vnni)
gd_add_extension(avx512 avx512_bf16 -mavx512bf16)
gd_add_extension(avx512 amx_bf16 -mamx-tile -mamx-bf16)
gd_add_extension(neon neon_bf16 -march=armv8.2-a+bf16)
gd_add_extension(neon neon_dotprod -march=armv8.2-a+dotprod)
# Kernels are vectorised, without what gcc's -O3 adds in peeling and cloning; what vectorised loops leave over is computed by scalar ones.
set(GD_LIBRARY_OPTIONS)
set(GD_KERNEL_OPTIONS)
if(CMAKE_BUILD_TYPE STREQUAL "Release" AND NOT CMAKE_C_FLAGS_RELEASE MATCHES "-O[01]")
    set(GD_LIBRARY_OPTIONS -O2)
    if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
        set(GD_KERNEL_OPTIONS -O2 -ftree-vectorize -fvect-cost-model=dynamic --param=vect-epilogues-nomask=0)
    endif()
endif()
set(GD_KNOWN_ISAS baseline avx2 avx512 neon avx512_vnni avx512_bf16 amx_bf16 neon_bf16 neon_dotprod)
message(STATUS "Gradus kernels for: ${GD_ISAS} ${GD_EXTENSIONS}")

# ---- flags of every file
add_library(gradus_compile INTERFACE)
target_compile_options(gradus_compile INTERFACE
    -Wall -Wextra -Wpedantic -Wconversion -Wshadow
    # Results are defined bit for bit: the compiler may not contract or reassociate. errno and trap flags of libm are unused.
    -ffp-contract=off -fno-math-errno -fno-trapping-math)
# _REENTRANT: without it Darwin does not declare lgamma_r.
target_compile_definitions(gradus_compile INTERFACE _GNU_SOURCE $<$<PLATFORM_ID:Darwin>:_REENTRANT> ${GD_DEPENDENCY_DEFINES})
foreach(isa IN LISTS GD_ISAS GD_EXTENSIONS)
    if(NOT isa STREQUAL baseline)
        string(TOUPPER ${isa} ISA)
        target_compile_definitions(gradus_compile INTERFACE GD_HAVE_${ISA}=1)
    endif()
endforeach()
if(CMAKE_C_COMPILER_ID MATCHES "Clang")
    # A loop marked independent that clang leaves scalar at -O1 is no fault.
    target_compile_options(gradus_compile INTERFACE -Wno-pass-failed)
endif()
if(GD_WERROR)
    target_compile_options(gradus_compile INTERFACE -Werror)
endif()
if(GD_DEBUG_CHECKS)
    target_compile_definitions(gradus_compile INTERFACE GD_DEBUG_CHECKS=1)
endif()
if(GD_SANITIZE)
    target_compile_options(gradus_compile INTERFACE
        -fsanitize=${GD_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
    if(GD_SANITIZE MATCHES "address" AND GD_SANITIZE MATCHES "undefined")
        # AddressSanitizer reports both, and these checks are a third of the time that kernels take to compile.
        target_compile_options(gradus_compile INTERFACE -fno-sanitize=null,object-size)
    endif()
endif()
if(GD_BUILD_FUZZERS)
    if(NOT CMAKE_C_COMPILER_ID MATCHES "Clang")
        message(FATAL_ERROR "GD_BUILD_FUZZERS needs clang (libFuzzer); use the preset 'fuzz'")
    endif()
    target_compile_options(gradus_compile INTERFACE -fsanitize=fuzzer-no-link)
endif()

# C frames are not unwound at run time; debuggers have -g.
check_c_compiler_flag(-fno-asynchronous-unwind-tables GD_COMPILES_NO_UNWIND_TABLES)
if(GD_COMPILES_NO_UNWIND_TABLES AND CMAKE_BUILD_TYPE STREQUAL "Release" AND NOT GD_SANITIZE)
    target_compile_options(gradus_compile INTERFACE -fno-asynchronous-unwind-tables)
endif()

check_c_compiler_flag(-fno-semantic-interposition GD_COMPILES_NO_SEMANTIC_INTERPOSITION)

function(gd_configure_library_objects target)
    set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON C_VISIBILITY_PRESET hidden)
    target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
    target_link_libraries(${target} PRIVATE gradus_compile ${GD_DEPENDENCIES})
    if(GD_HAVE_LINKER_GC_SECTIONS)
        target_compile_options(${target} PRIVATE -ffunction-sections) # what nothing calls is left out
    endif()
    if(GD_COMPILES_NO_SEMANTIC_INTERPOSITION)
        # The library's calls to its own public functions may be direct, and inlined.
        target_compile_options(${target} PRIVATE -fno-semantic-interposition)
    endif()
endfunction()

function(gd_link_sanitizers target)
    if(GD_SANITIZE)
        target_link_options(${target} PRIVATE -fsanitize=${GD_SANITIZE})
    endif()
endfunction()
