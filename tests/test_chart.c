/* tests/test_chart.c: charts as SVG and as text: what is drawn and where, round numbers on the axes,
 * gaps, escaping, and what is refused. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "support/context.h"

#include "report/chart.h"

/* The whole text of a call by gd_tensor_format's conventions, in a buffer that stays until the next. */
static const char *svg_of(const gd_chart *chart)
{
    static char text[1 << 20];
    size_t length = chart ? gd_chart_svg(chart, text, sizeof text) : 0;
    if (!length)
        fail_msg("%s", gd_error_message());
    assert_true(length < sizeof text && strlen(text) == length);
    char few[8];
    assert_int_equal(gd_chart_svg(chart, few, sizeof few), length);
    assert_memory_equal(few, "<svg xm", 8);
    return text;
}

static const char *text_of(const gd_chart *chart, int columns, int rows, gd_text_style style)
{
    static char text[1 << 16];
    size_t length = chart ? gd_chart_text(chart, columns, rows, style, text, sizeof text) : 0;
    if (!length)
        fail_msg("%s", gd_error_message());
    assert_true(length < sizeof text);
    return text;
}

static int count_of(const char *text, const char *words)
{
    int count = 0;
    for (; (text = strstr(text, words)) != NULL; text++)
        count++;
    return count;
}

static void assert_has(const char *text, const char *words)
{
    if (!strstr(text, words))
        fail_msg("no \"%s\" in:\n%.3000s", words, text);
}

/* ---- axes ---- */

static void assert_ticks(const gd_chart *chart, int which, int most, const char *expected)
{
    gd_axis axis;
    gd_axis_of(chart, which, most, &axis);
    char labels[512] = "";
    for (int i = 0; i < axis.count; i++) {
        strcat(labels, i ? " " : "");
        strcat(labels, axis.labels[i]);
    }
    assert_string_equal(labels, expected);
}

static gd_chart *line(double x0, double x1, double y0, double y1, bool log_x, bool log_y)
{
    gd_chart *c = gd_chart_create(.log_x = log_x, .log_y = log_y);
    assert_int_equal(gd_chart_line(c, NULL, 2, ((double[]){ x0, x1 }), ((double[]){ y0, y1 })),
                     GD_OK);
    return c;
}

static void ticks_are_round_numbers(void **state)
{
    (void)state;
    static const struct {
        double range[4];
        bool log_x, log_y;
        int most;
        const char *x, *y;
    } rows[] = {
        { { 0.5, 3000, 0.08, 2.61 },
          false,
          false,
          6,
          "500 1000 1500 2000 2500 3000",
          "0.0 0.5 1.0 1.5 2.0 2.5 3.0" },
        { { 1, 5, 0.912, 0.981 },
          false,
          false,
          8,
          "1 2 3 4 5",
          "0.91 0.92 0.93 0.94 0.95 0.96 0.97 0.98 0.99" }, /* epochs have no halves */
        { { 0, 250000, -12000, 34000 },
          false,
          false,
          5,
          "0 50k 100k 150k 200k 250k",
          "-20k -10k 0 10k 20k 30k 40k" },
        { { 0, 7e6, 3, 3 }, false, false, 4, "0 2M 4M 6M", "2.6 2.8 3.0 3.2 3.4" },
        { { 1e-6, 10, 1e-5, 2e-5 },
          true,
          false,
          8,
          "1e-6 1e-5 1e-4 0.001 0.01 0.1 1 10",
          "1e-5 1.2e-5 1.4e-5 1.6e-5 1.8e-5 2e-5" },
        { { 1e-9, 1e9, 1, 60 }, true, true, 6, "1e-9 1e-6 0.001 1 1000 1e6 1e9", "1 2 5 10 20 50" },
        { { 0, 1, 0.31, 0.34 }, false, true, 4, "0 1", "0.31 0.32 0.33 0.34" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const double *r = rows[i].range;
        gd_chart *c = line(r[0], r[1], r[2], r[3], rows[i].log_x, rows[i].log_y);
        assert_ticks(c, 0, rows[i].most, rows[i].x);
        assert_ticks(c, 1, rows[i].most, rows[i].y);
        gd_chart_release(c);
    }
    gd_chart *nothing = gd_chart_create();
    assert_ticks(nothing, 0, 5, "0.0 0.2 0.4 0.6 0.8 1.0");
    gd_chart_release(nothing);
}

static void numbers_are_short(void **state)
{
    (void)state;
    static const struct {
        double number;
        const char *text;
    } rows[] = {
        { 0, "0" },       { 0.5, "0.5" },       { 12345, "12345" },     { 1.23456, "1.235" },
        { 3e-4, "3e-4" }, { 1e9, "1e9" },       { -2.5e-7, "-2.5e-7" }, { 0.0123456, "0.0123" },
        { NAN, "nan" },   { -INFINITY, "-inf" }
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[16];
        gd_chart_number(rows[i].number, text);
        assert_string_equal(text, rows[i].text);
    }
}

/* ---- SVG ---- */

static void svg_stands_by_itself(void **state)
{
    (void)state;
    gd_chart *c = gd_chart_create(.title = "<Loss> & \"co\"", .x_label = "step");
    const double x[] = { 0, 1, 2, 3 }, y[] = { 4, NAN, 2, 1 };
    assert_int_equal(gd_chart_line(c, "a < b", 4, x, y), GD_OK);
    assert_int_equal(gd_chart_line(c, "dashed", 4, x, y, .dashed = true), GD_OK);
    const char *svg = svg_of(c);
    assert_has(svg, "xmlns=\"http://www.w3.org/2000/svg\" width=\"720\" height=\"420\"");
    assert_has(svg, "&lt;Loss&gt; &amp; &quot;co&quot;");
    assert_has(svg, ">a &lt; b</text>");
    assert_has(svg, "@media(prefers-color-scheme:dark)");
    assert_has(svg, "class=\"l s1 d\"");
    assert_int_equal(count_of(svg, "http"), 1); /* the namespace: nothing is fetched */
    assert_null(strstr(svg, "nan"));
    /* NaN leaves a gap: two moves in each of the two paths */
    const char *path = strstr(svg, "<g clip-path");
    assert_non_null(path);
    path = strstr(path, "<path d=\"M");
    assert_non_null(path);
    const char *end = strstr(path, "\" class");
    assert_non_null(end);
    int moves = 0;
    for (const char *at = path; at < end; at++)
        moves += *at == 'M';
    assert_int_equal(moves, 2);
    gd_chart_release(c);
}

/* Of many points, those between gaps alone are dots: others are joined. */
static void points_between_gaps_are_dots(void **state)
{
    (void)state;
    double x[100], y[100];
    for (int i = 0; i < 100; i++) {
        x[i] = i;
        y[i] = i < 60 && i % 2 ? (double)NAN : (double)i;
    }
    gd_chart *c = gd_chart_create(.title = "dots");
    assert_int_equal(gd_chart_line(c, NULL, 100, x, y), GD_OK);
    assert_int_equal(count_of(svg_of(c), "<circle "), 30);
    gd_chart_release(c);
}

/* Points of a thousand times the pixels do not make a file of as many. */
static void many_points_keep_their_extremes(void **state)
{
    (void)state;
    enum { POINTS = 300000 };
    double *x = malloc(POINTS * sizeof *x), *y = malloc(POINTS * sizeof *y);
    assert_true(x && y);
    for (int i = 0; i < POINTS; i++)
        x[i] = i, y[i] = i == 123456 ? 9 : i % 2;
    gd_chart *c = gd_chart_create();
    assert_int_equal(gd_chart_line(c, NULL, POINTS, x, y), GD_OK);
    const char *svg = svg_of(c);
    assert_true(strlen(svg) < 40000);
    int high = 0;
    for (const char *at = strstr(svg, "<g clip-path"); at && (at = strpbrk(at, "ML")) != NULL;
         at++) {
        double px, py;
        if (sscanf(at + 1, "%lf %lf", &px, &py) == 2)
            high += py < 100;
    }
    assert_int_equal(high, 1);
    gd_chart_release(c);
    free(x);
    free(y);
}

static void smoothing_is_an_average_without_a_bias(void **state)
{
    (void)state;
    gd_chart *c = gd_chart_create();
    const double x[] = { 0, 1, 2 }, y[] = { 4, 8, 8 };
    assert_int_equal(gd_chart_line(c, "s", 3, x, y, .smoothing = 0.5), GD_OK);
    const double *s = c->series[0].smoothed;
    assert_true(s[0] == 4);
    assert_true(fabs(s[1] - (0.25 * 4 + 0.5 * 8) / 0.75) < 1e-12);
    assert_true(fabs(s[2] - (0.125 * 4 + 0.25 * 8 + 0.5 * 8) / 0.875) < 1e-12);
    const char *svg = svg_of(c);
    assert_has(svg, "class=\"l s0 f\""); /* the pale one below */
    gd_chart_release(c);
}

static void histograms_count_every_value(void **state)
{
    (void)state;
    gd_chart *c = gd_chart_create();
    const double values[] = { 0, 1, 1.5, 2, 4, NAN, INFINITY };
    assert_int_equal(gd_chart_histogram(c, "w", 7, values, 4), GD_OK);
    const double expected[] = { 1, 2, 1, 1 };
    assert_memory_equal(c->series[0].y, expected, sizeof expected);
    assert_true(c->series[0].x[0] == 0 && c->series[0].x[4] == 4);
    assert_has(svg_of(c), "class=\"b b0\"");
    gd_chart_release(c);
}

static void charts_are_saved(void **state)
{
    (void)state;
    char path[] = "/tmp/gradus_chart_XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    gd_chart *c = line(0, 1, 0, 1, false, false);
    assert_int_equal(gd_chart_save(c, path), GD_OK);
    static char read[1 << 16];
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    read[fread(read, 1, sizeof read - 1, f)] = '\0';
    fclose(f);
    unlink(path);
    assert_string_equal(read, svg_of(c));
    assert_int_equal(gd_chart_save(c, "/no/such/folder/a.svg"), GD_ERR_IO);
    expect_error(GD_ERR_IO, "/no/such/folder/a.svg");
    gd_chart_release(c);
}

/* ---- ready-made ---- */

static gd_ranking *ranking(gd_context *gd)
{
    const float scores[] = { 0.1F, 0.4F, 0.35F, 0.8F };
    const int64_t positive[] = { 0, 0, 1, 1 };
    gd_ranking *r = gd_ranking_create(gd);
    assert_int_equal(gd_ranking_add(r, gd_from_host(gd, GD_SHAPE(4), GD_F32, scores),
                                    gd_from_host(gd, GD_SHAPE(4), GD_I64, positive)),
                     GD_OK);
    return r;
}

static void rankings_have_their_areas(void **state)
{
    gd_ranking *r = ranking(*state);
    gd_chart *c = gd_chart_roc(r);
    assert_has(svg_of(c), ">area 0.7500</text>");
    assert_int_equal(c->series[1].count, 5);
    assert_true(c->high[0] == 1 && c->low[1] == 0);
    gd_chart_release(c);
    c = gd_chart_precision_recall(r);
    assert_has(svg_of(c), ">average precision 0.8333</text>");
    assert_true(c->series[0].y[0] == 0.5); /* half of them are positive */
    gd_chart_release(c);
    c = gd_chart_calibration(r, 2);
    assert_int_equal(c->series[1].count, 2);
    gd_chart_release(c);
    gd_ranking_reset(r);
    assert_null(gd_chart_roc(r));
    expect_error(GD_ERR_STATE, "gd_ranking_roc: 0 positives");
    gd_ranking_release(r);
}

static void confusion_matrices_show_counts(void **state)
{
    gd_confusion *m = gd_confusion_create(*state, 2);
    const int64_t truth[] = { 0, 0, 0, 0, 1 }, predicted[] = { 0, 0, 0, 1, 1 };
    assert_int_equal(gd_confusion_add(m, gd_from_host(*state, GD_SHAPE(5), GD_I64, predicted),
                                      gd_from_host(*state, GD_SHAPE(5), GD_I64, truth)),
                     GD_OK);
    gd_chart *c =
        gd_chart_confusion(m, 2, (const char *[]){ "cats", "a name that is much too long" });
    const char *svg = svg_of(c);
    assert_has(svg, ">3</text>");
    assert_has(svg, ">75%</text>");
    assert_has(svg, ">100%</text>");
    assert_has(svg, ">a name that is much to\u2026</text>");
    assert_string_equal(text_of(c, 80, 20, GD_TEXT_ASCII),
                        "Confusion matrix\n"
                        "         truth predicted\n"
                        "                         cats a name that is \n"
                        "          cats              3              1 \n"
                        "a name that is              .              1 \n");
    assert_has(text_of(c, 80, 20, GD_TEXT_COLOUR), "\033[48;5;21;38;5;231m");
    gd_chart_release(c);
    c = gd_chart_confusion(m, 0, NULL);
    assert_has(svg_of(c), ">1</text>");
    gd_chart_release(c);
    assert_null(gd_chart_confusion(m, 1, (const char *[]){ "one" }));
    expect_error(GD_ERR_INVALID, "1 names of 2 classes");
    gd_confusion_release(m);
    m = gd_confusion_create(*state, 60);
    const int64_t seven = 7, nine = 9;
    assert_int_equal(gd_confusion_add(m, gd_from_host(*state, GD_SHAPE(1), GD_I64, &seven),
                                      gd_from_host(*state, GD_SHAPE(1), GD_I64, &nine)),
                     GD_OK);
    c = gd_chart_confusion(m, 0, NULL);
    assert_has(text_of(c, 80, 20, GD_TEXT_ASCII), "       1  9 -> 7\n");
    gd_chart_release(c);
    gd_confusion_release(m);
}

static void range_tests_are_seen_before_they_diverge(void **state)
{
    (void)state;
    enum { POINTS = 80 };
    gd_lr_point points[POINTS];
    for (int i = 0; i < POINTS; i++) {
        double at = -6 + 0.1 * i;
        points[i].lr = pow(10, at);
        points[i].loss = 2.3 - 1.5 / (1 + exp(-(at + 3) * 3)) + (at > 0 ? pow(10, 2 * at) - 1 : 0);
    }
    gd_chart *c = gd_chart_lr_range(POINTS, points, 1e-3);
    assert_has(svg_of(c), ">steepest at 0.001</text>");
    assert_true(c->mark_count == 1 && c->marks[0].x == 1e-3);
    assert_true(c->low[1] < 0.8 && c->high[1] > 2.3 && c->high[1] < 6); /* of more than 100 */
    gd_chart_release(c);
    c = gd_chart_lr_range(1, points, NAN);
    assert_null(strstr(svg_of(c), "steepest"));
    gd_chart_release(c);
    points[5].lr = 0;
    assert_null(gd_chart_lr_range(POINTS, points, 1e-3));
    expect_error(GD_ERR_INVALID, "a rate that is not positive");
}

static void images_have_captions(void **state)
{
    gd_chart *c = gd_chart_images(gd_zeros(*state, GD_SHAPE(5, 1, 8, 10), GD_F32), false);
    assert_int_equal(gd_chart_caption(c, 0, "cat <1>", false), GD_OK);
    assert_int_equal(gd_chart_caption(c, 1, "a dog that is too long", true), GD_OK);
    assert_int_equal(gd_chart_caption(c, 4, "last", true), GD_OK);
    /* Three in a row, each of ten columns and four rows, with a line of grey between. */
    const char *text = text_of(c, 80, 20, GD_TEXT_ASCII);
    assert_has(text, "\ncat <1>    a dog that\n");
    assert_has(text, "\n           last\n");
    assert_has(text_of(c, 80, 20, GD_TEXT_COLOUR), "\033[31ma dog that\033[0m\n");
#ifdef GD_HAVE_PNG
    assert_has(svg_of(c), ">cat &lt;1&gt;</text>");
    assert_has(svg_of(c), " class=\"e\">a dog that is too</text>");
    assert_has(svg_of(c), " class=\"e\">last</text>");
    assert_int_equal(gd_chart_caption(c, 1, NULL, false), GD_OK);
    assert_null(strstr(svg_of(c), "a dog"));
#endif
    assert_int_equal(gd_chart_caption(c, 5, "none", false), GD_ERR_INVALID);
    expect_error(GD_ERR_INVALID, "has no image 5");
    assert_int_equal(gd_chart_caption(c, 0, "\x01", false), GD_ERR_INVALID);
    expect_error(GD_ERR_INVALID, "not printable");
    gd_chart_release(c);
    assert_int_equal(gd_chart_caption(NULL, 0, "none", false), GD_ERR_INVALID);
    expect_error(GD_ERR_INVALID, "the chart is NULL");
}

static void images_are_a_grid(void **state)
{
    const float values[] = { 0, 1, 1, 0, 5, 5, 5, 9 };
    gd_tensor *images = gd_from_host(*state, GD_SHAPE(2, 1, 2, 2), GD_F32, values);
    gd_chart *c = gd_chart_images(images, true);
    assert_non_null(c);
    const unsigned char expected[] = { 0, 255, 128, 0, 0, 255, 0, 128, 0, 255 };
    assert_true(c->image.width == 5 && c->image.height == 2 && c->image.channels == 1);
    assert_memory_equal(c->image.pixels, expected, sizeof expected);
    assert_string_equal(text_of(c, 20, 20, GD_TEXT_ASCII), "==+ =\n");
#ifdef GD_HAVE_PNG
    assert_int_equal(gd_chart_set_title(c, "Filters"), GD_OK);
    assert_has(svg_of(c), "href=\"data:image/png;base64,iVBORw0KGgo");
    assert_has(svg_of(c), ">Filters</text>");
#else
    assert_int_equal(gd_chart_svg(c, NULL, 0), 0);
    expect_error(GD_ERR_UNSUPPORTED, "libpng");
#endif
    gd_chart_release(c);
    assert_null(gd_chart_images(NULL, false));
    expect_error(GD_ERR_INVALID, "the tensor is NULL");
    assert_null(gd_chart_images(gd_full(*state, GD_SHAPE(4, 4), 0, GD_F32), false));
    expect_error(GD_ERR_SHAPE, "there are 2");
}

/* ---- text ---- */

static void lines_are_drawn_in_text(void **state)
{
    (void)state;
    gd_chart *c = gd_chart_create(.title = "Loss", .x_label = "step");
    const double x[] = { 0, 10 }, y[] = { 1, 0 };
    assert_int_equal(gd_chart_line(c, "train", 2, x, y), GD_OK);
    assert_string_equal(text_of(c, 20, 9, GD_TEXT_ASCII), "Loss\n"
                                                          "  * train\n"
                                                          "1.0 |**            \n"
                                                          "    |  ***         \n"
                                                          "0.5 |     ****     \n"
                                                          "    |         ***  \n"
                                                          "0.0 |            **\n"
                                                          "    +--------------\n"
                                                          "     0      5    10\n"
                                                          "     step\n");
    const char *text = text_of(c, 30, 12, GD_TEXT_UNICODE);
    assert_has(text, "\u2501\u2501 train");
    assert_has(text, "\u2524\u2811"); /* the upper left dots */
    assert_null(strstr(text, "\033"));
    assert_has(text_of(c, 30, 12, GD_TEXT_COLOUR), "\033[38;5;39m");
    /* a second line without colours: letters */
    assert_int_equal(gd_chart_line(c, "test", 2, x, ((double[]){ 0, 1 })), GD_OK);
    text = text_of(c, 30, 12, GD_TEXT_UNICODE);
    assert_has(text, "a train   b test");
    assert_has(text, "aa");
    assert_has(text, "bb");
    gd_chart_release(c);
}

static void text_has_its_width(void **state)
{
    (void)state;
    gd_chart *c = line(0, 1e5, -3e-7, 2e-7, false, false);
    for (int columns = 20; columns < 130; columns += 7)
        for (int style = GD_TEXT_ASCII; style <= GD_TEXT_UNICODE; style++) {
            char *text = strdup(text_of(c, columns, 16, (gd_text_style)style)), *rest = NULL;
            for (char *row = strtok_r(text, "\n", &rest); row; row = strtok_r(NULL, "\n", &rest))
                assert_true((int)gd_text_characters(row) <= columns);
            free(text);
        }
    gd_chart_release(c);
}

static void wrong_calls_are_refused(void **state)
{
    (void)state;
    assert_null(gd_chart_create(.width = 10));
    expect_error(GD_ERR_INVALID, "10 x 420");
    assert_null(gd_chart_create(.title = "a\tb"));
    expect_error(GD_ERR_INVALID, "not printable UTF-8");
    gd_chart *c = gd_chart_create();
    const double one = 1;
    assert_int_equal(gd_chart_line(c, "a", -1, &one, &one), GD_ERR_INVALID);
    expect_error(GD_ERR_INVALID, "-1 points");
    assert_int_equal(gd_chart_line(c, "a", 1, &one, &one, .smoothing = 1), GD_ERR_INVALID);
    expect_error(GD_ERR_INVALID, "smoothing 1 beyond");
    assert_int_equal(gd_chart_line(c, "\xff", 1, &one, &one), GD_ERR_INVALID);
    expect_error(GD_ERR_INVALID, "UTF-8");
    assert_int_equal(gd_chart_histogram(c, "a", 1, &one, 0), GD_ERR_INVALID);
    expect_error(GD_ERR_INVALID, "in 0 bins");
    assert_int_equal(gd_chart_mark(c, NAN, "x"), GD_ERR_INVALID);
    expect_error(GD_ERR_INVALID, "gd_chart_mark");
    assert_int_equal(gd_chart_text(c, 10, 10, GD_TEXT_ASCII, NULL, 0), 0);
    expect_error(GD_ERR_INVALID, "10 columns");
    assert_int_equal(gd_chart_svg(NULL, NULL, 0), 0);
    expect_error(GD_ERR_INVALID, "the chart is NULL");
    assert_int_equal(gd_chart_save(c, NULL), GD_ERR_INVALID);
    gd_error_clear();
    gd_chart_release(c);
    gd_chart_release(NULL);
}

/* A chart of each kind in each form; false: memory was out. */
static bool draw_each(gd_ranking *r, gd_confusion *m)
{
    const double x[] = { 1, 2, 3, 4, 5 }, y[] = { 3, 2, 1, 2, 3 };
    gd_chart *charts[4] = { gd_chart_create(.title = "t", .x_label = "x", .y_label = "y"),
                            gd_chart_precision_recall(r), gd_chart_confusion(m, 0, NULL),
                            gd_chart_lr_range(1, &(gd_lr_point){ 1e-3, 2 }, 1e-3) };
    bool ok = charts[0] && charts[1] && charts[2] && charts[3] &&
              gd_chart_line(charts[0], "a", 5, x, y, .smoothing = 0.5) == GD_OK &&
              gd_chart_histogram(charts[0], "b", 5, y, 3) == GD_OK &&
              gd_chart_mark(charts[0], 2, "m") == GD_OK &&
              gd_chart_set_title(charts[0], "u") == GD_OK;
    for (int i = 0; ok && i < 4; i++)
        ok = gd_chart_svg(charts[i], NULL, 0) > 0 &&
             gd_chart_text(charts[i], 60, 12, GD_TEXT_COLOUR, NULL, 0) > 0;
    for (int i = 0; i < 4; i++)
        gd_chart_release(charts[i]);
    return ok;
}

static void failed_allocations_are_errors(void **state)
{
    gd_ranking *r = ranking(*state);
    gd_confusion *m = gd_confusion_create(*state, 3);
    bool whole = false;
    for (int64_t after = 0; !whole; after++) {
        assert_int_equal(gd_scope_begin(*state), GD_OK);
        (void)gd_fail_allocations_after(after);
        whole = draw_each(r, m);
        (void)gd_fail_allocations_after(-1);
        assert_int_equal(gd_error_code(), whole ? GD_OK : GD_ERR_MEMORY);
        gd_error_clear();
        assert_int_equal(gd_scope_end(*state), GD_OK);
        assert_true(after < 10000);
    }
    gd_confusion_release(m);
    gd_ranking_release(r);
}

int main(void)
{
#define EACH(test) cmocka_unit_test_setup_teardown(test, open_context, close_context)
    const struct CMUnitTest tests[] = {
        EACH(ticks_are_round_numbers),
        EACH(numbers_are_short),
        EACH(svg_stands_by_itself),
        EACH(points_between_gaps_are_dots),
        EACH(many_points_keep_their_extremes),
        EACH(smoothing_is_an_average_without_a_bias),
        EACH(histograms_count_every_value),
        EACH(charts_are_saved),
        EACH(rankings_have_their_areas),
        EACH(confusion_matrices_show_counts),
        EACH(range_tests_are_seen_before_they_diverge),
        EACH(images_are_a_grid),
        EACH(images_have_captions),
        EACH(lines_are_drawn_in_text),
        EACH(text_has_its_width),
        EACH(failed_allocations_are_errors),
        EACH(wrong_calls_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
