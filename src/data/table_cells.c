/* data/table_cells.c: what the text of one cell says. Start at gd_cell_value(). */
#include "data/table.h"

#include "base/error.h"
#include "base/text.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

/* Equal but for the case of ASCII letters; `word` is in lower case. */
static bool is_word(const char *text, const char *word)
{
    while (*text && lower(*text) == *word)
        text++, word++;
    return *text == '\0' && *word == '\0';
}

static bool is_one_of(const char *text, const char *const *words, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (is_word(text, words[i]))
            return true;
    return false;
}

bool gd_cell_is_missing(const char *text)
{
    static const char *const words[] = { "", "na", "n/a", "nan", "null", "<na>", "#n/a", "?" };
    return is_one_of(text, words, sizeof words / sizeof *words);
}

bool gd_cell_boolean(const char *text, double *value)
{
    static const char *const yes[] = { "true", "yes", "t", "y" };
    static const char *const no[] = { "false", "no", "f", "n" };
    *value = is_one_of(text, yes, 4) ? 1.0 : 0.0;
    return *value == 1.0 || is_one_of(text, no, 4);
}

/* ---- numbers ---- */

static const char *skip_digits(const char *p)
{
    while (*p >= '0' && *p <= '9')
        p++;
    return p;
}

/* [+-] digits [point digits] [e [+-] digits], with a digit beside the point. *point: where it is. */
static bool has_form_of_number(const char *text, char point_character, const char **point)
{
    const char *p = text + (*text == '+' || *text == '-');
    const char *whole = p;
    p = skip_digits(p);
    int64_t digits = p - whole;
    *point = NULL;
    if (*p == point_character) {
        *point = p;
        const char *fraction = p + 1;
        p = skip_digits(fraction);
        digits += p - fraction;
    }
    if (digits == 0)
        return false;
    if (*p == 'e' || *p == 'E') {
        p += 1 + (p[1] == '+' || p[1] == '-');
        if (*p < '0' || *p > '9')
            return false;
        p = skip_digits(p);
    }
    return *p == '\0';
}

static bool is_infinite(const char *text)
{
    text += *text == '+' || *text == '-';
    return is_word(text, "inf") || is_word(text, "infinity");
}

bool gd_cell_number(const char *text, bool decimal_comma, double *value)
{
    enum { LONGEST = 512 };
    const char *point;
    *value = NAN;
    if (is_infinite(text))
        return true;
    if (!has_form_of_number(text, decimal_comma ? ',' : '.', &point))
        return false;
    size_t length = strlen(text);
    char copy[LONGEST];
    if (length >= LONGEST)
        return false;
    memcpy(copy, text, length + 1);
    if (point)
        copy[point - text] = '.';
    double number = gd_strtod(copy, NULL);
    if (fabs(number) <= (double)FLT_MAX)
        *value = number;
    return true;
}

const char *gd_number_text(double value, char text[GD_NUMBER_TEXT])
{
    for (int digits = 15; digits <= 17; digits++) {
        gd_snprintf(text, GD_NUMBER_TEXT, "%.*g", digits, value == 0.0 ? 0.0 : value);
        if (gd_strtod(text, NULL) == value)
            break;
    }
    return text;
}

/* ---- times: ISO 8601, proleptic Gregorian ---- */

/* `count` digits at *text as a number in low … high, -1 if they are not that; *text steps over. */
static int read_digits(const char **text, int count, int low, int high)
{
    int number = 0;
    for (int i = 0; i < count; i++) {
        char c = (*text)[i];
        if (c < '0' || c > '9')
            return -1;
        number = 10 * number + (c - '0');
    }
    *text += count;
    return number >= low && number <= high ? number : -1;
}

static bool step_over(const char **text, char c)
{
    bool is = **text == c;
    *text += is;
    return is;
}

static int days_in_month(int year, int month)
{
    static const int days[] = { 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31 };
    bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    return days[month - 1] + (month == 2 && leap);
}

/* Days from 1970-01-01 (Howard Hinnant, "chrono-compatible low-level date algorithms"): years begin
 * in March, so that the leap day is their last. */
static int64_t days_since_1970(int year, int month, int day)
{
    const int64_t y = year - (month <= 2); /* 0 or more, for years from 1 on */
    const int64_t era = y / 400, year_of_era = y % 400;
    const int64_t day_of_year = (153 * (month > 2 ? month - 3 : month + 9) + 2) / 5 + day - 1;
    return era * 146097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year -
           719468;
}

static bool read_date(const char **text, double *seconds)
{
    int year = read_digits(text, 4, 1, 9999);
    if (year < 0 || !step_over(text, '-'))
        return false;
    int month = read_digits(text, 2, 1, 12);
    if (month < 0 || !step_over(text, '-'))
        return false;
    int day = read_digits(text, 2, 1, days_in_month(year, month));
    *seconds = 86400.0 * (double)days_since_1970(year, month, day);
    return day > 0;
}

/* HH:MM[:SS[.fraction]] */
static bool read_clock(const char **text, double *seconds)
{
    int hour = read_digits(text, 2, 0, 23);
    if (hour < 0 || !step_over(text, ':'))
        return false;
    int minute = read_digits(text, 2, 0, 59);
    if (minute < 0)
        return false;
    *seconds += 3600.0 * hour + 60.0 * minute;
    if (!step_over(text, ':'))
        return true;
    int second = read_digits(text, 2, 0, 60); /* 60: a leap second */
    if (second < 0)
        return false;
    *seconds += second;
    if (!step_over(text, '.'))
        return true;
    const char *fraction = *text;
    double unit = 0.1;
    for (; **text >= '0' && **text <= '9'; ++*text) {
        *seconds += unit * (**text - '0');
        unit /= 10.0;
    }
    return *text > fraction;
}

/* Z, +HH:MM, +HHMM, +HH, or nothing. */
static bool read_zone(const char **text, double *seconds)
{
    if (**text == '\0' || step_over(text, 'Z') || step_over(text, 'z'))
        return true;
    double sign = **text == '-' ? 1.0 : -1.0; /* the clock is ahead of UTC by +HH:MM */
    if (!step_over(text, '+') && !step_over(text, '-'))
        return false;
    int hour = read_digits(text, 2, 0, 23), minute = 0;
    if (hour >= 0 && **text) {
        (void)step_over(text, ':');
        minute = read_digits(text, 2, 0, 59);
    }
    *seconds += sign * (3600.0 * hour + 60.0 * minute);
    return hour >= 0 && minute >= 0;
}

bool gd_cell_time(const char *text, double *value)
{
    *value = NAN;
    double seconds;
    if (!read_date(&text, &seconds))
        return false;
    if (*text) {
        if (!step_over(&text, 'T') && !step_over(&text, 't') && !step_over(&text, ' '))
            return false;
        if (!read_clock(&text, &seconds) || !read_zone(&text, &seconds) || *text)
            return false;
    }
    *value = seconds;
    return true;
}

/* ---- cells of a kind ---- */

bool gd_cell_value(const gd_table *table, const char *text, gd_column_kind kind, double *value)
{
    *value = NAN;
    if (!text)
        return true;
    switch (kind) {
    case GD_COLUMN_NUMBER:
        return gd_cell_number(text, table->decimal_comma, value);
    case GD_COLUMN_BOOLEAN:
        return gd_cell_boolean(text, value);
    case GD_COLUMN_TIME:
        return gd_cell_time(text, value);
    default:
        return true;
    }
}

const char *gd_table_only_names(const gd_table *t, const char *name)
{
    for (int64_t c = 0; t->rows == 1 && c < t->columns; c++)
        if (t->cells[c] != GD_CELL_MISSING && strcmp(t->text + t->cells[c], name) == 0)
            return ": it has names of columns, and no rows";
    return "";
}

gd_status gd_cell_fail(const gd_table *table, int64_t row, int64_t column, const char *problem)
{
    return gd_fail(GD_ERR_FORMAT, "%s: line %lld, column \"%s\": %s", table->name,
                   (long long)table->lines[row], gd_table_column_name(table, column), problem);
}
