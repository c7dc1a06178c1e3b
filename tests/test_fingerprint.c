/* tests/test_fingerprint.c: numbers that tell data sets apart: the same data have the same, and whatever
 * changes what a training would see changes it. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <gradus/gradus.h>

#include "support/context.h"
#include "support/folder.h"

enum { COUNT = 10, WIDTH = 3 };

/* What the data set of these options has. */
typedef struct sample_set {
    float x[COUNT * WIDTH];
    int64_t y[COUNT];
    gd_field fields[2];
} sample_set;

static sample_set plain(void)
{
    sample_set s = { .fields = {
                         { GD_FIELD_DEFAULTS, .name = "x", .shape = GD_SHAPE(WIDTH) },
                         { GD_FIELD_DEFAULTS, .name = "y", .dtype = GD_I64, .classes = 4 },
                     } };
    for (int i = 0; i < COUNT * WIDTH; i++)
        s.x[i] = (float)i;
    for (int i = 0; i < COUNT; i++)
        s.y[i] = i % 3;
    return s;
}

static uint64_t print_of(gd_context *gd, const sample_set *s, int64_t count)
{
    const void *const arrays[] = { s->x, s->y };
    gd_dataset *d = gd_dataset_from_arrays(gd, count, 2, s->fields, arrays);
    assert_non_null(d);
    const uint64_t print = gd_dataset_fingerprint(d);
    gd_dataset_release(d);
    return print;
}

static void whatever_is_seen_counts(void **state)
{
    const sample_set first = plain();
    const uint64_t print = print_of(*state, &first, COUNT);
    static const char *const names[] = { "a", "b", "c", "d" }, *const others[] = { "a", "b", "c",
                                                                                   "e" };
    assert_true(print == print_of(*state, &first, COUNT));
    assert_true(print != print_of(*state, &first, COUNT - 1));
    uint64_t seen[8] = { print };
    for (int change = 1; change < 8; change++) {
        sample_set s = plain();
        if (change == 1)
            s.x[17] += 1;
        else if (change == 2)
            s.y[9] = 1;
        else if (change == 3)
            s.fields[0].name = "z";
        else if (change == 4)
            s.fields[0].scale = 0.5;
        else if (change == 5)
            s.fields[1].classes = 5;
        else
            s.fields[1].class_names = change == 6 ? names : others;
        seen[change] = print_of(*state, &s, COUNT);
        for (int i = 0; i < change; i++)
            assert_true(seen[i] != seen[change]);
    }
    assert_true(gd_dataset_fingerprint(NULL) == 0);
}

static void parts_differ(void **state)
{
    const sample_set s = plain();
    const void *const arrays[] = { s.x, s.y };
    gd_dataset *d = gd_dataset_from_arrays(*state, COUNT, 2, s.fields, arrays), *parts[2], *same[2];
    assert_int_equal(gd_dataset_split(d, 0.5, &parts[0], &parts[1], .seed = 1), GD_OK);
    assert_int_equal(gd_dataset_split(d, 0.5, &same[0], &same[1], .seed = 1), GD_OK);
    const uint64_t first = gd_dataset_fingerprint(parts[0]);
    assert_true(first == gd_dataset_fingerprint(same[0]));
    assert_true(first != gd_dataset_fingerprint(parts[1]));
    assert_true(first != gd_dataset_fingerprint(d));
}

/* Memory behind the end of a sequence may hold anything. */
static void sequences_end_where_they_end(void **state)
{
    uint64_t prints[3];
    for (int change = 0; change < 3; change++) {
        float x[4 * 5] = { 0 };
        int64_t lengths[] = { 5, 2, 3, 1 };
        x[change == 1 ? 5 + 2 : 5 + 1] = change ? 7.0f : 0.0f;
        const gd_field field = { GD_FIELD_DEFAULTS, .name = "x", .shape = GD_SHAPE(GD_VARIES),
                                 .max_length = 5 };
        gd_dataset *d = gd_dataset_from_arrays(*state, 4, 1, &field, (const void *const[]){ x },
                                               .lengths = (const int64_t *const[]){ lengths });
        assert_non_null(d);
        prints[change] = gd_dataset_fingerprint(d);
    }
    assert_true(prints[0] == prints[1]);
    assert_true(prints[0] != prints[2]);
}

/* Of many values some are looked at, the first and the last among them. */
static void large_data_are_sampled(void **state)
{
    enum { BYTES = 20 << 20 };
    uint8_t *x = calloc(BYTES, 1);
    uint64_t prints[4];
    for (int change = 0; change < 4; change++) {
        const gd_field field = { GD_FIELD_DEFAULTS, .name = "x", .dtype = GD_U8 };
        if (change == 1)
            x[BYTES - 1] = 1;
        else if (change == 2)
            x[0] = 1;
        else if (change == 3)
            memset(x + BYTES / 2, 1, 1 << 16);
        gd_dataset *d = gd_dataset_from_arrays(*state, BYTES, 1, &field, (const void *const[]){ x },
                                               .copy = false);
        prints[change] = gd_dataset_fingerprint(d);
        gd_dataset_release(d);
        for (int i = 0; i < change; i++)
            assert_true(prints[i] != prints[change]);
    }
    free(x);
}

static void make(const char *name)
{
    assert_int_equal(mkdir(in_folder(name), 0777), 0);
}

static uint64_t print_of_folder(gd_context *gd, const char *name)
{
    gd_dataset *d = gd_image_folder(gd, in_folder(name), 4, 4);
    assert_non_null(d);
    return gd_dataset_fingerprint(d);
}

/* Files count by their names and sizes; where the folder lies does not. */
static void files_count_by_names_and_sizes(void **state)
{
    make("one"), make("one/a"), make("one/b");
    make("two"), make("two/a"), make("two/b");
    write_file("one/a/1.jpg", "xxxxxxx", 5), write_file("one/b/1.jpg", "xxxxxxx", 6);
    write_file("two/a/1.jpg", "xxxxxxx", 5), write_file("two/b/1.jpg", "xxxxxxx", 6);
    const uint64_t print = print_of_folder(*state, "one");
    assert_true(print == print_of_folder(*state, "two"));
    write_file("two/b/1.jpg", "xxxxxxx", 7);
    assert_true(print != print_of_folder(*state, "two"));
    write_file("two/b/1.jpg", "xxxxxxx", 6);
    write_file("two/b/2.jpg", "xxxxxxx", 6);
    assert_true(print != print_of_folder(*state, "two"));
}

static void tokens_count(void **state)
{
    enum { TOKENS = 600000 };
    int32_t *ids = malloc(TOKENS * sizeof *ids);
    uint64_t prints[3];
    for (int i = 0; i < TOKENS; i++)
        ids[i] = i % 100;
    for (int change = 0; change < 3; change++) {
        ids[0] = change == 1;
        gd_token_data *data = gd_token_data_create(*state, TOKENS, ids);
        gd_dataset *d = gd_token_dataset(*state, data, .length = 8);
        assert_non_null(d);
        prints[change] = gd_dataset_fingerprint(d);
    }
    free(ids);
    assert_true(prints[0] == prints[2]);
    assert_true(prints[0] != prints[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(whatever_is_seen_counts, open_context, close_context),
        cmocka_unit_test_setup_teardown(parts_differ, open_context, close_context),
        cmocka_unit_test_setup_teardown(sequences_end_where_they_end, open_context, close_context),
        cmocka_unit_test_setup_teardown(large_data_are_sampled, open_context, close_context),
        folder_test(files_count_by_names_and_sizes),
        cmocka_unit_test_setup_teardown(tokens_count, open_context, close_context),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
