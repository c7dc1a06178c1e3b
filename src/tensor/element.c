/* tensor/element.c: one element of any dtype, as a double, and made of a number. */
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

/* ---- numbers to elements, by the rules of gd_cast ---- */

static int64_t truncate_saturating(double v, int64_t low, int64_t high)
{
    if (v != v)
        return 0;
    if (v <= (double)low)
        return low;
    return v >= (double)high
               ? high
               : (int64_t)v; /* (double)INT64_MAX is 2^63, beyond which v would not fit */
}

void gd_element_store_real(double v, gd_dtype dtype, void *to)
{
    switch (dtype) {
    case GD_F32:
        *(float *)to = (float)v;
        break;
    case GD_F64:
        *(double *)to = v;
        break;
    case GD_I32:
        *(int32_t *)to = (int32_t)truncate_saturating(v, INT32_MIN, INT32_MAX);
        break;
    case GD_I64:
        *(int64_t *)to = truncate_saturating(v, INT64_MIN, INT64_MAX);
        break;
    case GD_I8:
        *(int8_t *)to = (int8_t)truncate_saturating(v, INT8_MIN, INT8_MAX);
        break;
    case GD_I16:
        *(int16_t *)to = (int16_t)truncate_saturating(v, INT16_MIN, INT16_MAX);
        break;
    case GD_U8:
        *(uint8_t *)to = (uint8_t)truncate_saturating(v, 0, UINT8_MAX);
        break;
    case GD_U16:
        *(uint16_t *)to = (uint16_t)truncate_saturating(v, 0, UINT16_MAX);
        break;
    case GD_U32:
        *(uint32_t *)to = (uint32_t)truncate_saturating(v, 0, UINT32_MAX);
        break;
    case GD_U64:
        *(uint64_t *)to = v >= 0x1p64   ? UINT64_MAX
                          : v >= 0x1p63 ? (uint64_t)v
                                        : (uint64_t)truncate_saturating(v, 0, INT64_MAX);
        break;
    case GD_BOOL:
        *(uint8_t *)to = v != 0;
        break;
    case GD_F16:
        *(uint16_t *)to = gd_f32_to_f16((float)v);
        break;
    default:
        *(uint16_t *)to = gd_f32_to_bf16((float)v);
    }
}

void gd_element_store_integer(int64_t v, gd_dtype dtype, void *to)
{
    if (!gd_dtype_is_integer(dtype)) {
        gd_element_store_real((double)v, dtype, to);
        return;
    }
    switch (gd_dtype_size(dtype)) {
    case 1:
        *(uint8_t *)to = (uint8_t)v;
        break;
    case 2:
        *(uint16_t *)to = (uint16_t)v;
        break;
    case 4:
        *(uint32_t *)to = (uint32_t)v;
        break;
    default:
        *(uint64_t *)to = (uint64_t)v;
    }
}
