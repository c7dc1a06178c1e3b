# Which files are compiled for an instruction set, and which have flags of their own: one table. All other files of src/ are compiled
# once, without machine flags. Defines
#   GD_KERNELS_<isa>        the files of an instruction set, or of an extension of one (GradusCompile.cmake)
#   GD_KERNEL_SOURCES       those of all of them
#   gd_set_source_flags()   gives the table's flags to its files
# A row whose file does not exist and a file …_isa.c without a row are errors.
#
# Instruction sets: `all` of GD_ISAS, some of them with commas between, one of GD_EXTENSIONS, or `none`. A file that is compiled for several
# makes its names by backend/cpu/isa.h. Those that this compiler does not know are left out.
#
# Flags of a release, beside those of GradusCompile.cmake:
#   GD_SHORT_ARRAYS         for gcc: what vectorised loops leave over is vectorised, too; for clang: loops are not unrolled, which makes
#                           the code shorter and no slower
#   GD_LOOPS                loops over elements are all vectorised
#   GD_ROLLED               loops of many functions that wait for memory are not unrolled, as clang does to half a megabyte of them
set(GD_SHORT_ARRAYS -)
if(GD_KERNEL_OPTIONS)
    set(GD_SHORT_ARRAYS --param=vect-epilogues-nomask=1)
endif()
set(GD_LOOPS -)
if(GD_LIBRARY_OPTIONS)
    set(GD_LOOPS -O3)
endif()
set(GD_ROLLED -)
if(GD_LIBRARY_OPTIONS AND CMAKE_C_COMPILER_ID MATCHES "Clang")
    set(GD_ROLLED -fno-unroll-loops)
    set(GD_SHORT_ARRAYS ${GD_ROLLED})
endif()
set(GD_SOURCE_TABLE
    # file in src/                          instruction sets    flags, with commas between
    backend/cpu/arg_scan_isa.c              all                 ${GD_ROLLED}
    backend/cpu/attention_isa.c             all                 -
    backend/cpu/block_copy_isa.c            all                 ${GD_ROLLED}
    backend/cpu/cast_isa.c                  all                 ${GD_ROLLED}
    backend/cpu/cast_integer_isa.c          all                 ${GD_ROLLED}
    backend/cpu/conv_bf16_isa.c             avx512              -
    backend/cpu/conv_f32_isa.c              all                 ${GD_SHORT_ARRAYS}
    backend/cpu/conv_winograd_isa.c         all                 ${GD_ROLLED}
    backend/cpu/elementwise_isa.c           all                 -
    backend/cpu/elementwise_chain_isa.c     avx2,avx512         -
    backend/cpu/elementwise_f32_isa.c       all                 ${GD_SHORT_ARRAYS}
    backend/cpu/elementwise_f64_isa.c       all                 ${GD_ROLLED}
    backend/cpu/elementwise_integer_isa.c   all                 ${GD_ROLLED}
    backend/cpu/gemm_bf16_isa.c             all                 -
    backend/cpu/gemm_bf16_mmla.c            neon_bf16           -
    backend/cpu/gemm_bf16_pairs.c           avx512_bf16         -
    backend/cpu/gemm_bf16_tiles.c           amx_bf16            -
    backend/cpu/gemm_bf16x3.c               avx512_bf16         -
    backend/cpu/gemm_f16_isa.c              all                 -
    backend/cpu/gemm_f32_isa.c              all                 ${GD_SHORT_ARRAYS}
    backend/cpu/gemm_f64_isa.c              all                 ${GD_SHORT_ARRAYS}
    backend/cpu/norm_isa.c                  all                 ${GD_ROLLED}
    backend/cpu/pooling_isa.c               all                 ${GD_ROLLED}
    backend/cpu/quantized_dotprod.c         neon_dotprod        -
    backend/cpu/quantized_isa.c             all                 -
    backend/cpu/quantized_vnni.c            avx512_vnni         -
    backend/cpu/random_isa.c                all                 ${GD_ROLLED}
    backend/cpu/recurrent_isa.c             all                 -
    backend/cpu/reduce_isa.c                all                 ${GD_ROLLED}
    backend/cpu/reduce_others_isa.c         all                 ${GD_ROLLED}
    backend/cpu/softmax_isa.c               all                 -
    backend/cpu/softmax_f64_isa.c           all                 ${GD_ROLLED}
    backend/cpu/vecmath_isa.c               all                 -
    backend/reference/elementwise.c         none                -fwrapv # products of two u64 wrap in 128 bits
    data/convert.c                          none                ${GD_LOOPS}
    data/read.c                             none                ${GD_LOOPS}
    io/image_resize.c                       none                ${GD_LOOPS}
    io/quantized_k.c                        none                ${GD_LOOPS})

set(GD_ROW_FILES)
set(GD_KERNEL_SOURCES)
set(row ${GD_SOURCE_TABLE})
while(row)
    list(POP_FRONT row file isas flags)
    set(path ${PROJECT_SOURCE_DIR}/src/${file})
    if(NOT EXISTS ${path})
        message(FATAL_ERROR "cmake/GradusSources.cmake has a row for ${path}, which does not exist")
    endif()
    list(APPEND GD_ROW_FILES ${path})
    string(REPLACE "," ";" GD_ROW_FLAGS_${path} "${flags}")
    string(REPLACE "," ";" isas "${isas}")
    if(NOT isas STREQUAL none)
        list(APPEND GD_KERNEL_SOURCES ${path})
    endif()
    foreach(isa IN LISTS isas)
        if(isa STREQUAL all)
            foreach(each IN LISTS GD_ISAS)
                list(APPEND GD_KERNELS_${each} ${path})
            endforeach()
        elseif(isa IN_LIST GD_KNOWN_ISAS)
            list(APPEND GD_KERNELS_${isa} ${path})
        elseif(NOT isa STREQUAL none)
            message(FATAL_ERROR "cmake/GradusSources.cmake: ${file} is for '${isa}'")
        endif()
    endforeach()
endwhile()
file(GLOB_RECURSE GD_ISA_SOURCES CONFIGURE_DEPENDS src/*_isa.c)
foreach(path IN LISTS GD_ISA_SOURCES)
    if(NOT path IN_LIST GD_ROW_FILES)
        message(FATAL_ERROR "cmake/GradusSources.cmake has no row for ${path}")
    endif()
endforeach()

function(gd_set_source_flags)
    foreach(path IN LISTS GD_ROW_FILES)
        if(NOT GD_ROW_FLAGS_${path} STREQUAL "-")
            set_source_files_properties(${path} PROPERTIES COMPILE_OPTIONS "${GD_ROW_FLAGS_${path}}")
        endif()
    endforeach()
endfunction()
