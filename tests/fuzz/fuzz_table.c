/* tests/fuzz/fuzz_table.c: libFuzzer on tables and encoders. What is read has its cells and kinds; an
 * encoder learnt from it gives finite numbers, and the same bits after it went through JSON. A text
 * that begins with a brace is read as an encoder instead. */
#include "fuzz.h"

#include <math.h>

static void check_cells(const gd_table *t)
{
    for (int64_t c = 0; c < gd_table_columns(t); c++) {
        if (gd_table_find(t, gd_table_column_name(t, c)) != c)
            abort();
        int64_t known = 0;
        for (int64_t row = 0; row < gd_table_rows(t); row++) {
            const char *text = gd_table_text(t, row, c);
            volatile size_t length = text ? strlen(text) : 0; /* touch every byte */
            (void)length;
            bool number = gd_table_column_kind(t, c) == GD_COLUMN_NUMBER;
            known += number ? !isnan(gd_table_number(t, row, c)) : text != NULL;
        }
        if (known + gd_table_column_missing(t, c) != gd_table_rows(t) ||
            known != gd_table_known_rows(t, c, NULL))
            abort();
    }
}

static gd_table_encoder *through_json(const gd_table_encoder *e)
{
    size_t length = gd_table_encoder_format_json(e, NULL, 0);
    char *json = malloc(length + 1);
    if (!json)
        abort();
    gd_table_encoder_format_json(e, json, length + 1);
    gd_table_encoder *back = gd_table_encoder_create_json(json);
    if (!back)
        abort();
    free(json);
    return back;
}

static void check_encoder(const gd_table *t, const gd_table_encoder *e)
{
    int64_t features = gd_table_encoder_features(e);
    gd_table_encoder *back = through_json(e);
    float *x = malloc(2 * (size_t)features * sizeof *x);
    if (!x || features < 1)
        abort();
    for (int64_t row = 0; row < gd_table_rows(t); row++) {
        if (gd_table_encode(e, t, 1, &row, x, NULL) != GD_OK ||
            gd_table_encode(back, t, 1, &row, x + features, NULL) != GD_OK)
            abort();
        for (int64_t i = 0; i < features; i++)
            if (!isfinite(x[i]) || memcmp(&x[i], &x[features + i], sizeof *x) != 0)
                abort();
    }
    free(x);
    gd_table_encoder_release(back);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    gd_error_clear();
    if (size > 0 && data[0] == '{') {
        char *json = calloc(1, size + 1);
        if (!json)
            abort();
        memcpy(json, data, size);
        gd_table_encoder *e = gd_table_encoder_create_json(json);
        fuzz_check(e != NULL);
        if (e)
            gd_table_encoder_release(through_json(e));
        gd_table_encoder_release(e);
        free(json);
        return 0;
    }
    gd_table *t = gd_table_create((const char *)data, size, .max_bytes = 1 << 20);
    fuzz_check(t != NULL);
    if (!t)
        return 0;
    check_cells(t);
    int64_t last = gd_table_columns(t) - 1;
    gd_table_encoder *e = gd_table_encoder_create(t, .target = gd_table_column_name(t, last));
    fuzz_check(e != NULL);
    if (e)
        check_encoder(t, e);
    gd_table_encoder_release(e);
    gd_table_release(t);
    return 0;
}
