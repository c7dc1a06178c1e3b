/* backend/cpu/elementwise_integer_isa.c: the rows of ops/elementwise.def over integers, for one
 * instruction set. Start at elementwise_loops.h. */
#include "backend/cpu/elementwise.h"
#include "backend/cpu/isa.h"

#define GD_T        int32_t
#define GD_T_SUFFIX i32
#define GD_T_SIGNED 1
#include "backend/cpu/elementwise_loops.h"

#define GD_T        int64_t
#define GD_T_SUFFIX i64
#define GD_T_SIGNED 1
#include "backend/cpu/elementwise_loops.h"

#define GD_T          uint8_t
#define GD_T_SUFFIX   u8
#define GD_T_UNSIGNED 1
#include "backend/cpu/elementwise_loops.h"

#define GD_T        int8_t
#define GD_T_SUFFIX i8
#define GD_T_SIGNED 1
#include "backend/cpu/elementwise_loops.h"

#define GD_T        int16_t
#define GD_T_SUFFIX i16
#define GD_T_SIGNED 1
#include "backend/cpu/elementwise_loops.h"

#define GD_T          uint16_t
#define GD_T_SUFFIX   u16
#define GD_T_UNSIGNED 1
#include "backend/cpu/elementwise_loops.h"

#define GD_T          uint32_t
#define GD_T_SUFFIX   u32
#define GD_T_UNSIGNED 1
#include "backend/cpu/elementwise_loops.h"

#define GD_T          uint64_t
#define GD_T_SUFFIX   u64
#define GD_T_UNSIGNED 1
#include "backend/cpu/elementwise_loops.h"

/* Elements of 16 bits, for `where` over the half dtypes. */
#define GD_T        uint16_t
#define GD_T_SUFFIX half
#define GD_T_OPAQUE 1
#include "backend/cpu/elementwise_loops.h"
