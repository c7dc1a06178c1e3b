/* backend/cpu/isa.h: names for files that are compiled once per instruction set: the table in
 * cmake/GradusSources.cmake. CMake compiles them with -DGD_ISA=<baseline|avx2|avx512|neon>,
 * -DGD_ISA_<BASELINE|AVX2|AVX512|NEON>_BUILD=1 and the matching machine flags. Such a file must
 * define nothing but static functions and names made with GD_ISA_NAME, and must not call inline
 * functions of other headers that a plain file also uses (the linker could keep the wrong copy),
 * unless static. */
#ifndef GD_BACKEND_CPU_ISA_H
#define GD_BACKEND_CPU_ISA_H

#ifndef GD_ISA
#error "compiled without GD_ISA: this file belongs to the per-ISA build"
#endif

#define GD_ISA_PASTE_(a, b) a##_##b
#define GD_ISA_PASTE(a, b)  GD_ISA_PASTE_(a, b)
#define GD_ISA_NAME(name)   GD_ISA_PASTE(name, GD_ISA)

#endif
