/* report/axis.c: ranges and round numbers on them. Start at gd_axis_of(). */
#include "report/chart.h"

#include "base/text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- numbers as text ---- */

/* Without zeros behind the last digit of a fraction, and "e-05" as "e-5". */
static void shorten(char text[16])
{
    char *e = strchr(text, 'e'), *point = strchr(text, '.');
    long exponent = e ? strtol(e + 1, NULL, 10) : 0;
    char *end = e ? e : text + strlen(text);
    while (point && end > point && (end[-1] == '0' || end[-1] == '.'))
        if (*--end == '.')
            break;
    *end = '\0';
    if (e)
        (void)snprintf(end, (size_t)(text + 16 - end), "e%ld", exponent);
    if (strcmp(text, "-0") == 0)
        (void)snprintf(text, 16, "0");
}

void gd_chart_number(double number, char text[16])
{
    double size = fabs(number);
    if (!isfinite(number))
        snprintf(text, 16, "%s", isnan(number) ? "nan" : number > 0 ? "inf" : "-inf");
    else if (size != 0 && (size < 1e-3 || size >= 1e6))
        gd_snprintf(text, 16, "%.3e", number);
    else
        gd_snprintf(text, 16, "%.*f",
                    size >= 1000   ? 0
                    : size >= 1    ? 3
                    : size >= 0.01 ? 4
                                   : 6,
                    number);
    if (isfinite(number))
        shorten(text);
}

/* A tick of an axis whose ticks are `step` apart, the farthest from 0 being `most`. */
static void label_tick(double value, double step, double most, char text[16])
{
    if (fabs(value) < 1e-9 * step)
        value = 0;
    if (most >= 1e9 || most < 1e-3)
        gd_snprintf(text, 16, "%.2e", value);
    else if (most >= 1e6)
        gd_snprintf(text, 16, "%.2f", value / 1e6);
    else if (most >= 1e4)
        gd_snprintf(text, 16, "%.1f", value / 1e3);
    else {
        int decimals = step >= 1 ? 0 : (int)ceil(-log10(step) - 1e-9);
        gd_snprintf(text, 16, "%.*f", decimals < 8 ? decimals : 8, value);
        return; /* all with as many decimals */
    }
    shorten(text);
    size_t length = strlen(text);
    if (most < 1e9 && most >= 1e4 && strcmp(text, "0") != 0)
        (void)snprintf(text + length, 16 - length, "%s", most >= 1e6 ? "M" : "k");
}

/* ---- ranges ---- */

static void widen(double value, bool is_log, double *low, double *high)
{
    if (!isfinite(value) || (is_log && value <= 0))
        return;
    *low = value < *low ? value : *low;
    *high = value > *high ? value : *high;
}

/* Of a smoothed line, that of the smoothed one counts, and most of the pale one. */
static void range_of_series(const gd_series *s, int which, bool is_log, double *low, double *high)
{
    const double *values = which == 0 ? s->x : s->y;
    size_t count = s->count + (s->bars && which == 0);
    if (s->bars && which == 1)
        widen(0, is_log, low, high);
    for (size_t i = 0; i < count; i++)
        widen(values[i], is_log, low, high);
}

static void find_range(const gd_chart *c, int which, double *low, double *high)
{
    bool is_log = which == 0 ? c->log_x : c->log_y;
    *low = INFINITY;
    *high = -INFINITY;
    for (size_t i = 0; i < c->series_count; i++)
        range_of_series(&c->series[i], which, is_log, low, high);
    for (size_t i = 0; which == 0 && i < c->mark_count; i++)
        widen(c->marks[i].x, is_log, low, high);
    if (!isnan(c->low[which]))
        *low = c->low[which];
    if (!isnan(c->high[which]))
        *high = c->high[which];
    if (!(*low <= *high)) /* nothing at all */
        *low = is_log ? 1 : 0, *high = is_log ? 10 : 1;
    if (*low == *high && is_log)
        *low /= 2, *high *= 2;
    else if (*low == *high) {
        double around = *low == 0 ? 1 : fabs(*low) * 0.1;
        *low -= around, *high += around;
    }
}

/* Steps and epochs have no halves. */
static bool has_whole_places(const gd_chart *c)
{
    bool any = false;
    for (size_t i = 0; i < c->series_count; i++)
        for (size_t k = 0; k < c->series[i].count; k++) {
            any = true;
            if (c->series[i].bars || c->series[i].x[k] != floor(c->series[i].x[k]))
                return false;
        }
    return any && isnan(c->low[0]);
}

/* ---- ticks ---- */

static void add_tick(gd_axis *a, double value)
{
    if (a->count < GD_MOST_TICKS && value >= a->low - 1e-9 * fabs(a->low) &&
        value <= a->high + 1e-9 * fabs(a->high))
        a->ticks[a->count++] = value;
}

/* The smallest of 1, 2, 5 times a power of ten that gives at most so many steps. */
static double round_step(double width, int most)
{
    double raw = width / most, power = pow(10, floor(log10(raw)));
    static const double factors[] = { 1, 2, 5, 10 };
    for (int i = 0; i < 4; i++)
        if (factors[i] * power >= raw * (1 - 1e-9))
            return factors[i] * power;
    return 10 * power;
}

static void tick_linear(gd_axis *a, int most, bool fixed, bool snap, bool whole)
{
    double step = round_step(a->high - a->low, most);
    step = whole && step < 1 ? 1 : step;
    if (snap && !fixed) {
        a->low = floor(a->low / step + 1e-9) * step;
        a->high = ceil(a->high / step - 1e-9) * step;
    }
    double first = ceil(a->low / step - 1e-9);
    for (int i = 0; i <= most + 2; i++) {
        double value = (first + i) * step;
        if (value > a->high + 1e-6 * step)
            break;
        if (a->count < GD_MOST_TICKS)
            a->ticks[a->count++] = value;
    }
    double farthest = fmax(fabs(a->low), fabs(a->high));
    for (int i = 0; i < a->count; i++)
        label_tick(a->ticks[i], step, farthest, a->labels[i]);
}

/* Powers of ten; within few of them, 2 and 5 times these, too. */
static void tick_log(gd_axis *a, int most)
{
    int first = (int)floor(log10(a->low) + 1e-9), last = (int)ceil(log10(a->high) - 1e-9);
    int every = (last - first + most - 1) / most;
    static const double factors[] = { 1, 2, 5 };
    int steps = 3 * log10(a->high / a->low) <= most ? 3 : 1;
    for (int power = first; power <= last; power += every > 1 ? every : 1)
        for (int i = 0; i < steps; i++)
            add_tick(a, factors[i] * pow(10, power));
    for (int i = 0; i < a->count; i++)
        gd_chart_number(a->ticks[i], a->labels[i]);
}

void gd_axis_of(const gd_chart *chart, int which, int most, gd_axis *axis)
{
    *axis = (gd_axis){ .log = which == 0 ? chart->log_x : chart->log_y };
    find_range(chart, which, &axis->low, &axis->high);
    most = most < 2 ? 2 : most > GD_MOST_TICKS - 2 ? GD_MOST_TICKS - 2 : most;
    if (axis->log && axis->high / axis->low >= 8) {
        if (which == 1 && isnan(chart->low[1])) { /* a little room above and below */
            double room = pow(axis->high / axis->low, 0.04);
            axis->low /= room, axis->high *= room;
        }
        tick_log(axis, most);
        return;
    }
    bool fixed = !isnan(chart->low[which]) || !isnan(chart->high[which]);
    bool whole = which == 0 && has_whole_places(chart);
    tick_linear(axis, most, fixed, which == 1 && !axis->log, whole);
}

double gd_axis_place(const gd_axis *a, double value)
{
    if (!isfinite(value) || (a->log && value <= 0))
        return NAN;
    if (a->log)
        return (log(value) - log(a->low)) / (log(a->high) - log(a->low));
    return (value - a->low) / (a->high - a->low);
}
