/* tensor/element.c: one element of any dtype, as a double. */
#include "tensor/element.h"

#include <string.h>

#include "base/half.h"

double gd_element_as_double(gd_dtype dtype, const void *raw)
{
    union {
        float f32;
        double f64;
        int8_t i8;
        int16_t i16;
        int32_t i32;
        int64_t i64;
        uint8_t u8;
        uint16_t u16;
        uint32_t u32;
        uint64_t u64;
    } value = { 0 };
    memcpy(&value, raw, gd_dtype_size(dtype));
    switch (dtype) {
    case GD_F32:
        return (double)value.f32;
    case GD_F64:
        return value.f64;
    case GD_I8:
        return (double)value.i8;
    case GD_I16:
        return (double)value.i16;
    case GD_U16:
        return (double)value.u16;
    case GD_U32:
        return (double)value.u32;
    case GD_U64:
        return (double)value.u64;
    case GD_I32:
        return (double)value.i32;
    case GD_I64:
        return (double)value.i64;
    case GD_U8:
    case GD_BOOL:
        return (double)value.u8;
    case GD_F16:
        return (double)gd_f16_to_f32(value.u16);
    case GD_BF16:
        return (double)gd_bf16_to_f32(value.u16);
    case GD_DTYPE_COUNT:
        break;
    }
    return 0.0;
}
