/* tests/support/fuzz_run.c: see fuzz_run.h. */
#include "support/fuzz_run.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ---- cases as text: "conv: axes=2 size1=8" ---- */

fuzz_case fuzz_simplest(const fuzz_suite *suite)
{
    fuzz_case c = { 0 };
    for (int i = 0; i < suite->fields; i++)
        c.field[i] = suite->field[i].simplest;
    return c;
}

static void print_case(const fuzz_suite *suite, const fuzz_case *c)
{
    fprintf(stderr, "    again: GRADUS_FUZZ_ONE=\"%s:", suite->name);
    for (int i = 0; i < suite->fields; i++)
        if (c->field[i] != suite->field[i].simplest)
            fprintf(stderr, suite->field[i].kind == FUZZ_SET ? " %s=0x%" PRIx64 : " %s=%" PRId64,
                    suite->field[i].name, c->field[i]);
    fprintf(stderr, "\"\n");
}

static int find_field(const fuzz_suite *suite, const char *name, size_t length)
{
    for (int i = 0; i < suite->fields; i++)
        if (strlen(suite->field[i].name) == length &&
            strncmp(suite->field[i].name, name, length) == 0)
            return i;
    return -1;
}

static bool read_case(const fuzz_suite *suite, const char *text, fuzz_case *c)
{
    *c = fuzz_simplest(suite);
    for (text += strspn(text, " "); *text; text += strspn(text, " ")) {
        const size_t length = strcspn(text, "=");
        const int i = find_field(suite, text, length);
        if (i < 0 || text[length] != '=')
            return false;
        char *end;
        c->field[i] = (int64_t)strtoull(text + length + 1, &end, 0);
        text = end;
    }
    return true;
}

bool fuzz_run_one(const fuzz_suite *suites, int count, int *status)
{
    const char *text = getenv("GRADUS_FUZZ_ONE");
    for (int i = 0; text && i < count; i++) {
        const size_t length = strlen(suites[i].name);
        fuzz_case c;
        if (strncmp(text, suites[i].name, length) != 0 || text[length] != ':')
            continue;
        if (!read_case(&suites[i], text + length + 1, &c))
            break;
        *status = (int)suites[i].attempt(&suites[i], &c, stderr);
        fprintf(stderr, "%s\n", *status == FUZZ_AGREES ? "agrees" : "fails");
        return true;
    }
    if (text)
        fprintf(stderr, "GRADUS_FUZZ_ONE=%s: no case\n", text);
    *status = 2;
    return text != NULL;
}

/* ---- children ---- */

static int wait_for(pid_t child)
{
    int status = -1;
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static pid_t start_child(void)
{
    fflush(NULL);
    const pid_t child = fork();
    static const int signals[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT };
    for (size_t i = 0; child == 0 && i < sizeof signals / sizeof *signals; i++)
        signal(signals[i], SIG_DFL); /* and not cmocka's */
    return child;
}

/* The wait status of a child that tries the case; it may print to the standard error. */
static int status_of(const fuzz_suite *suite, const fuzz_case *c, bool is_quiet)
{
    const pid_t child = start_child();
    if (child == 0) {
        if (is_quiet && (!freopen("/dev/null", "w", stderr) || !freopen("/dev/null", "w", stdout)))
            exit(99);
        exit((int)suite->attempt(suite, c, is_quiet ? NULL : stderr));
    }
    return wait_for(child);
}

/* ---- shrinking ---- */

typedef struct shrinker {
    const fuzz_suite *suite;
    fuzz_case smallest;
    int status; /* of the failure */
} shrinker;

/* Whether the case fails in the same way with this field so; then it stays so. */
static bool fails_with(shrinker *s, int field, int64_t value)
{
    fuzz_case c = s->smallest;
    if (c.field[field] == value)
        return false;
    c.field[field] = value;
    if (status_of(s->suite, &c, true) != s->status)
        return false;
    s->smallest = c;
    return true;
}

/* The simplest, half-way there, one step there. */
static bool shrink_number(shrinker *s, int i)
{
    const int64_t simplest = s->suite->field[i].simplest;
    bool any = fails_with(s, i, simplest);
    for (bool again = !any; again; any = any || again) {
        const int64_t now = s->smallest.field[i], way = simplest - now;
        again = (way < -1 || way > 1) &&
                (fails_with(s, i, now + way / 2) || fails_with(s, i, now + (way > 0 ? 1 : -1)));
    }
    return any;
}

static bool shrink_set(shrinker *s, int i)
{
    bool any = false;
    for (int bit = 62; bit >= 0; bit--)
        any = fails_with(s, i, s->smallest.field[i] & ~(INT64_C(1) << bit)) || any;
    return any;
}

fuzz_case fuzz_shrink(const fuzz_suite *suite, const fuzz_case *c, int status)
{
    shrinker s = { suite, *c, status };
    for (bool again = true; again;) {
        again = false;
        for (int i = 0; i < suite->fields; i++)
            if (suite->field[i].kind == FUZZ_NUMBER)
                again = shrink_number(&s, i) || again;
            else if (suite->field[i].kind == FUZZ_SET)
                again = shrink_set(&s, i) || again;
    }
    return s.smallest;
}

static void print_failure(const fuzz_suite *suite, const fuzz_case *c)
{
    const int status = status_of(suite, c, false);
    fprintf(stderr, "    %s %d\n", WIFEXITED(status) ? "exit code" : "signal",
            WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
    print_case(suite, c);
}

/* ---- the test ---- */

static long setting(const char *name, long otherwise)
{
    const char *text = getenv(name);
    if (text && strcmp(text, "fresh") == 0)
        return (long)time(NULL) * 1000000;
    return text ? strtol(text, NULL, 10) : otherwise;
}

/* Until one fails: its seed, and the child's status. */
static int run_from(const fuzz_suite *suite, long first, long last, volatile long *at, time_t end)
{
    const pid_t child = start_child();
    if (child == 0) {
        for (*at = first; *at < last && (!end || time(NULL) < end); ++*at) {
            fuzz_case c;
            suite->draw(suite, (uint64_t)*at, &c);
            const fuzz_verdict verdict = suite->attempt(suite, &c, NULL);
            if (verdict != FUZZ_AGREES)
                exit((int)verdict);
        }
        exit(FUZZ_AGREES);
    }
    return wait_for(child);
}

void fuzz_run(const fuzz_suite *suite, int suites)
{
    const long seconds = setting("GRADUS_FUZZ_SECONDS", 0), first = setting("GRADUS_FUZZ_SEED", 1),
               cases = setting("GRADUS_FUZZ_CASES", seconds ? 1000000000 : suite->usual);
    const time_t end = seconds ? time(NULL) + (seconds + suites - 1) / suites : 0;
    volatile long *at =
        mmap(NULL, sizeof *at, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(at != MAP_FAILED);
    long failures = 0;
    for (long from = first; from < first + cases; from = *at + 1) {
        int status = run_from(suite, from, first + cases, at, end);
        if (status == 0)
            break;
        fuzz_case c;
        suite->draw(suite, (uint64_t)*at, &c);
        fprintf(stderr, "%s: seed %ld\n", suite->name, *at);
        status = status_of(suite, &c, true);
        if (status == 0)
            fail_msg("%s: seed %ld fails after others only, or leaks", suite->name, *at);
        c = fuzz_shrink(suite, &c, status);
        print_failure(suite, &c);
        if (++failures >= setting("GRADUS_FUZZ_FAILURES", 1))
            break;
    }
    const long last = *at;
    munmap((void *)at, sizeof *at);
    if (seconds || getenv("GRADUS_FUZZ_CASES"))
        print_message("%s: %ld cases from seed %ld\n", suite->name, last - first, first);
    if (failures)
        fail_msg("%s: %ld cases fail, the last of them with seed %ld", suite->name, failures, last);
}
