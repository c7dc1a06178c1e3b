/* tests/test_cli_resume.c: gradus train --resume in all states that a run may be in. That it ends with the same
 * bytes wherever it was killed is test_cli_train.c's. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <gradus/gradus.h>

#ifdef GD_TOOL

#include "support/cli.h"

#define TABLES GD_SOURCE_DIR "/tests/data/"

/* A run is trained longer. Where the schedule does not depend on the number of epochs, it is then the run that
 * had as many from the start. */
static void resumed_runs_train_longer(void **state)
{
    (void)state;
    need("jansson");
    const char *const begin = "train " TABLES "iris.csv --target species --quiet --schedule ";
    char command[1024];
    for (int i = 0; i < 2; i++) {
        snprintf(command, sizeof command, "%sconstant --epochs %d --run longer%d", begin,
                 i == 0 ? 3 : 7, i);
        assert_int_equal(run(command)->code, 0);
    }
    assert_fails(run("train --resume longer0 --epochs 2"), 1, "--epochs 2: the run has had 3");
    const result *longer = run("train --resume longer0 --epochs 7");
    assert_int_equal(longer->code, 0);
    assert_has(longer->out, "7 epochs instead of 3.\n");
    assert_same_file("longer0/model.safetensors", "longer1/model.safetensors");
    assert_same_file("longer0/config.json", "longer1/config.json");
    assert_same_file("longer0/model.json", "longer1/model.json");
    assert_has(run("train --resume longer0")->out, "its 7 epochs were done before");
    /* One that does is told of. */
    snprintf(command, sizeof command, "%scosine --epochs 4 --lr 0.1 --warmup 0 --run wave", begin);
    assert_int_equal(run(command)->code, 0);
    assert_narrow((longer = run("train --resume wave --epochs 8"))->out);
    assert_has(longer->out,
               "8 epochs instead of 4. The cosine schedule is spread over all of them: "
               "after\nepoch 4 the learning rate is 0.05.\n");
    assert_has(longer->out, "\n  5/8 ");
}

/* States in bf16 and the place in the random stream go with a run: it ends as one that had no stop. */
static void resumed_runs_keep_states_in_bf16(void **state)
{
    (void)state;
    need("jansson");
    for (int i = 0; i < 2; i++) {
        char command[512];
        snprintf(command, sizeof command,
                 "train " TABLES "iris.csv --target species --quiet --schedule constant "
                 "--state-dtype bf16 --epochs %d --run states%d",
                 i == 0 ? 2 : 5, i);
        assert_int_equal(run(command)->code, 0);
    }
    assert_int_equal(run("train --resume states0 --epochs 5")->code, 0);
    assert_same_file("states0/model.safetensors", "states1/model.safetensors");
    assert_holds("states0/config.json", "\"state_dtype\": \"bf16\"");
}

/* Patience ended it; a greater one goes on. */
static void resumed_runs_may_have_more_patience(void **state)
{
    (void)state;
    need("jansson");
    assert_int_equal(run("train " TABLES "iris.csv --target species --quiet --epochs 60 --lr 0.1 "
                         "--schedule constant --patience 1 --run hasty")
                         ->code,
                     0);
    const result *r = run("train --resume hasty");
    assert_has(r->out, "There is nothing left to do: it ended after epoch ");
    assert_has(r->out,
               " of 60, with no better\nvalidation loss in 1. A greater --patience goes on.");
    assert_narrow(r->out);
    assert_has(run("train --resume hasty --patience 60")->out, "\n60/60 ");
    assert_holds("hasty/config.json", "\"patience\": 60");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(resumed_runs_train_longer),
        cmocka_unit_test(resumed_runs_keep_states_in_bf16),
        cmocka_unit_test(resumed_runs_may_have_more_patience),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

#else

int main(void)
{
    return 77;
}

#endif
