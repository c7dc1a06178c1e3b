# Which files are compiled for which instruction sets, and what a release build optimises each for. Defines
#   GD_KERNELS_<isa>                    the …_isa.c files of an instruction set
#   gd_tune_library(sources), gd_tune_kernel_sources()    set the flags of the tables below
# A file or a line that has no counterpart is an error: nothing is compiled otherwise than a table says because it was renamed.

# ---- kernels: src/backend/cpu/<file>_isa.c, once for each instruction set (backend/cpu/isa.h)
# For:    all       every instruction set
#         narrow    not AVX-512, which takes AVX2's: kernels bound by memory, and those of dtypes that do not carry networks
#         baseline  that alone, which every instruction set takes: loops of dtypes that seldom take time
#         beside    every one, but not in the shared library: tests and benches alone call these
# Rests:  what vectorised loops leave over is computed by a vectorised loop, too, where short arrays are common, else by a scalar one
set(GD_KERNEL_TABLE
    # file                  for         rests
    arg_scan                narrow      scalar
    attention               all         scalar
    block_copy              all         scalar
    cast                    all         scalar
    cast_rare               baseline    scalar
    conv                    all         vector
    conv_bf16               all         scalar
    conv_weight             all         vector
    elementwise             all         scalar
    elementwise_chain       all         scalar
    elementwise_f32         all         vector
    elementwise_f64         narrow      scalar
    elementwise_integer     narrow      scalar
    elementwise_rare        baseline    scalar
    gemm_bf16               all         scalar
    gemm_f16                all         scalar
    gemm_f32                all         vector
    gemm_f64                all         vector
    norm                    all         scalar
    pooling                 all         scalar
    quantized               all         scalar
    random                  all         scalar
    recurrent               all         scalar
    reduce                  all         scalar
    reduce_narrow           narrow      scalar
    softmax                 all         scalar
    softmax_f64             narrow      scalar
    vecmath                 beside      vector)

# ---- the rest of the library: files whose path begins so; those of no line are compiled for speed, with -O2
set(GD_FAST_SOURCES # loops over elements, which alone gain from -O3
    src/data/convert src/data/read src/io/image_resize src/io/quantized_k)
set(GD_SMALL_SOURCES # not on the way of a step: the smallest they can be
    src/backend/reference/ src/nn/ src/optim/ src/train/ src/text/ src/io/ src/data/
    src/tensor/format src/graph/print src/graph/context
    src/compile/export src/compile/show src/compile/profile src/compile/rematerialise src/compile/place src/compile/simplify
    src/compile/epilogue src/compile/forward src/compile/schedule
    src/ops/attention src/ops/arrange src/ops/convolution src/ops/cross_entropy src/ops/ctc src/ops/einsum src/ops/indexing src/ops/loss
    src/ops/norm src/ops/pooling src/ops/position src/ops/random src/ops/recurrent src/ops/sort src/ops/special)

# ---- what the tables say

set(GD_KERNEL_FILES)
set(GD_SCALAR_RESTS)
set(row ${GD_KERNEL_TABLE})
while(row)
    list(POP_FRONT row file for rests)
    set(file ${PROJECT_SOURCE_DIR}/src/backend/cpu/${file}_isa.c)
    if(NOT EXISTS ${file})
        message(FATAL_ERROR "cmake/GradusSources.cmake lists ${file}, which does not exist")
    endif()
    list(APPEND GD_KERNEL_FILES ${file})
    if(rests STREQUAL scalar)
        list(APPEND GD_SCALAR_RESTS ${file})
    endif()
    foreach(isa IN LISTS GD_ISAS)
        if(for STREQUAL all OR (for STREQUAL narrow AND NOT isa STREQUAL avx512) OR (for STREQUAL baseline AND isa STREQUAL baseline))
            list(APPEND GD_KERNELS_${isa} ${file})
        elseif(for STREQUAL beside)
            list(APPEND GD_KERNELS_BESIDE ${file})
            list(REMOVE_DUPLICATES GD_KERNELS_BESIDE)
        elseif(NOT for MATCHES "^(narrow|baseline)$")
            message(FATAL_ERROR "cmake/GradusSources.cmake: ${file} is for '${for}'")
        endif()
    endforeach()
endwhile()
file(GLOB GD_ISA_SOURCES CONFIGURE_DEPENDS src/backend/cpu/*_isa.c)
foreach(file IN LISTS GD_ISA_SOURCES)
    if(NOT file IN_LIST GD_KERNEL_FILES)
        message(FATAL_ERROR "cmake/GradusSources.cmake has no line for ${file}")
    endif()
endforeach()

# Those of `sources` that begin with one of `beginnings`, none of which may be without any.
function(gd_sources_of out sources beginnings)
    set(found)
    foreach(beginning IN LISTS beginnings)
        set(some FALSE)
        foreach(source IN LISTS sources)
            string(FIND ${source} ${PROJECT_SOURCE_DIR}/${beginning} at)
            if(at EQUAL 0)
                set(some TRUE)
                list(APPEND found ${source})
            endif()
        endforeach()
        if(NOT some)
            message(FATAL_ERROR "cmake/GradusSources.cmake: no file of the library begins with ${beginning}")
        endif()
    endforeach()
    set(${out} ${found} PARENT_SCOPE)
endfunction()

# Loops are aligned; targets of other jumps are not.
set(GD_UNALIGNED_JUMPS)
if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
    set(GD_UNALIGNED_JUMPS -fno-align-jumps -fno-align-labels)
endif()
set(GD_TUNE OFF)
if(CMAKE_BUILD_TYPE STREQUAL "Release" AND NOT CMAKE_C_FLAGS_RELEASE MATCHES "-O[01]")
    set(GD_TUNE ON)
endif()
function(gd_tune_library sources)
    gd_sources_of(small "${sources}" "${GD_SMALL_SOURCES}")
    gd_sources_of(fast "${sources}" "${GD_FAST_SOURCES}")
    if(GD_TUNE)
        set_source_files_properties(${sources} PROPERTIES COMPILE_OPTIONS "-O2;${GD_UNALIGNED_JUMPS}")
        set_source_files_properties(${small} PROPERTIES COMPILE_OPTIONS -Os)
        set_source_files_properties(${fast} PROPERTIES COMPILE_OPTIONS -O3)
    endif()
endfunction()

# Kernels are vectorised without what -O3 adds in peeling and cloning. Where the baseline is for x86 processors of before 2013, its loops
# are kept small.
set(GD_TUNE_KERNELS OFF)
if(GD_TUNE AND CMAKE_C_COMPILER_ID STREQUAL "GNU")
    set(GD_TUNE_KERNELS ON)
endif()
function(gd_tune_kernels target isa)
    if(GD_TUNE_KERNELS AND isa STREQUAL baseline AND "avx2" IN_LIST GD_ISAS)
        target_compile_options(${target} PRIVATE -Os)
    elseif(GD_TUNE_KERNELS)
        target_compile_options(${target} PRIVATE -O2 -ftree-vectorize -fvect-cost-model=dynamic ${GD_UNALIGNED_JUMPS})
    endif()
endfunction()
function(gd_tune_kernel_sources)
    if(GD_TUNE_KERNELS)
        set_source_files_properties(${GD_SCALAR_RESTS} PROPERTIES COMPILE_OPTIONS --param=vect-epilogues-nomask=0)
    endif()
endfunction()
