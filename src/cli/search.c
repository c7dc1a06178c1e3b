/* cli/search.c: gradus search: many trainings whose options differ, each in a run folder of its own. A
 * search is rounds: in each, trials train up to so many epochs, and of successive halving the best go on
 * from their checkpoints into the next. The learning rate's schedule is that of the last round in all, so
 * that a trial that comes through has the bytes of one trained at once. Start at cli_search(). */
#include "search.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

const char *const cli_method_names[CLI_METHOD_COUNT] = { "random", "grid", "halving" };

/* ---- one trial ---- */

/* What a killed process left before its training had options is made anew. */
static bool can_be_resumed(const char *folder)
{
    static const char *const names[] = { "config.json", "metrics.jsonl", "model.json" };
    char paths[3][CLI_PATH_BYTES + 32];
    for (int i = 0; i < 3; i++)
        snprintf(paths[i], sizeof paths[i], "%s/%s", folder, names[i]);
    if (access(paths[0], F_OK) == 0 && access(paths[1], F_OK) == 0)
        return true;
    for (int i = 0; i < 3; i++)
        (void)remove(paths[i]);
    return false;
}

/* The best value of the metric in its log. */
static double best_result(const cli_study *search, const char *folder)
{
    char name[GD_METRIC_NAME_SIZE + 16];
    double best = NAN;
    snprintf(name, sizeof name, "validation/%s", search->metric);
    gd_history *history = gd_history_load(folder);
    int64_t metric = gd_history_metric_find(history, name);
    for (int64_t i = 0; i < gd_history_metric_points(history, metric); i++) {
        double value = gd_history_metric_values(history, metric)[i];
        best = cli_is_better(search, value, best) ? value : best;
    }
    if (history && metric < 0)
        (void)gd_error_record(GD_ERR_INVALID, "there is no such metric of the validation");
    else if (history && isnan(best))
        (void)gd_error_record(GD_ERR_STATE, "the metric was a number in no epoch");
    gd_history_release(history);
    return best;
}

static void note_problem(cli_trial *trial)
{
    trial->problem = strdup(cli_error_words());
    gd_error_clear();
}

/* The settings of a trial. */
static void set_values(cli_study *search, const cli_trial *trial)
{
    search->settings = search->base;
    for (int i = 0; i < search->try_count; i++)
        (void)cli_store(search->tries[i].option, trial->values[i]); /* was tried before */
}

/* Train up to the end of the round. CLI_INTERRUPTED, or CLI_OK: also of a trial that failed, which has
 * its problem then. */
static int train(cli_study *search, int64_t index, int round)
{
    cli_trial *trial = &search->trials[index];
    cli_settings *s = &search->settings;
    char folder[CLI_PATH_BYTES];
    cli_trial_folder(search, index, folder);
    set_values(search, trial);
    bool resumes = can_be_resumed(folder);
    s->run = resumes ? NULL : folder;
    s->resume = resumes ? folder : NULL;
    s->quiet = s->is_trial = true;
    s->pause = round + 1 < search->rounds ? search->budgets[round] : 0;
    int code = CLI_FAILED;
    if (cli_train_check("search", s) == CLI_OK)
        code = cli_train_run(s, search->config);
    else
        (void)gd_error_record(GD_ERR_INVALID, "its options do not go together");
    s->run = s->resume = NULL; /* the folder's name ends here */
    if (code == CLI_INTERRUPTED)
        return code;
    double result = code == CLI_OK ? best_result(search, folder) : NAN;
    if (code == CLI_OK && !isnan(result))
        trial->results[trial->rounds++] = result;
    else
        note_problem(trial);
    return CLI_OK;
}

/* ---- rounds ---- */

static bool is_best_so_far(const cli_study *search, int64_t index)
{
    const cli_trial *trial = &search->trials[index];
    bool best = trial->problem == NULL;
    for (int64_t i = 0; best && i < search->trial_count; i++) {
        const cli_trial *other = &search->trials[i];
        if (i != index && other->rounds >= trial->rounds)
            best = !cli_is_better(search, other->results[trial->rounds - 1],
                                  trial->results[trial->rounds - 1]);
    }
    return best;
}

static void print_trial(const cli_study *search, int64_t index)
{
    const cli_trial *trial = &search->trials[index];
    char result[CLI_COUNT_TEXT];
    printf("trial %3lld/%lld ", (long long)index + 1, (long long)search->trial_count);
    for (int i = 0; i < search->try_count; i++)
        printf(" %s=%s", search->tries[i].key, trial->values[i]);
    if (trial->problem) {
        printf("\n    failed: %s\n", trial->problem);
    } else {
        cli_trial_result(search, trial->results[trial->rounds - 1], result);
        printf("  %s %s%s\n", search->metric, result, is_best_so_far(search, index) ? "  *" : "");
    }
    (void)fflush(stdout);
}

/* Who comes into a round: all into the first; of the next, the best of those that went through. */
static int64_t choose(const cli_study *search, int round, bool *in)
{
    int64_t count = search->trial_count, left = count;
    for (int64_t i = 0; i < count; i++)
        in[i] = true;
    for (int r = 0; r < round; r++) {
        int64_t keep = left / search->reduction > 1 ? left / search->reduction : 1, ranked = 0;
        for (int64_t i = 0; i < count; i++) {
            int64_t better = 0; /* trials of this round before it */
            const cli_trial *trial = &search->trials[i];
            bool through = in[i] && trial->rounds > r && !isnan(trial->results[r]);
            for (int64_t k = 0; through && k < count; k++) {
                const cli_trial *other = &search->trials[k];
                bool is_other = k != i && other->rounds > r;
                better +=
                    is_other && (cli_is_better(search, other->results[r], trial->results[r]) ||
                                 (other->results[r] == trial->results[r] && k < i));
            }
            in[i] = through && better < keep;
            ranked += in[i];
        }
        left = ranked;
    }
    return left;
}

static int run_round(cli_study *search, int round, bool *in)
{
    int64_t count = choose(search, round, in);
    if (search->rounds > 1 && !search->base.quiet && count > 0)
        printf("round %d/%d: %lld trial%s up to epoch %lld\n", round + 1, search->rounds,
               (long long)count, count == 1 ? "" : "s", (long long)search->budgets[round]);
    for (int64_t i = 0; i < search->trial_count; i++) {
        cli_trial *trial = &search->trials[i];
        if (!in[i] || trial->problem || trial->rounds > round)
            continue;
        if (cli_is_interrupted() || train(search, i, round) == CLI_INTERRUPTED)
            return CLI_INTERRUPTED;
        if (cli_search_save(search) != GD_OK)
            return cli_fail();
        if (!search->base.quiet)
            print_trial(search, i);
    }
    return CLI_OK;
}

/* A round has `reduction` times the epochs of the one before, the last one all, the first one at least. */
static void plan_rounds(cli_study *search)
{
    search->rounds = 1;
    if (search->method == CLI_HALVING)
        for (int64_t trials = search->trial_count, epochs = search->epochs;
             trials >= search->reduction && epochs >= search->reduction &&
             search->rounds < CLI_MOST_ROUNDS;
             trials /= search->reduction, epochs /= search->reduction)
            search->rounds++;
    int64_t epochs = search->epochs;
    for (int r = search->rounds - 1; r >= 0; r--, epochs /= search->reduction)
        search->budgets[r] = epochs;
}

static int run_all(cli_study *search)
{
    bool *in = calloc((size_t)search->trial_count + 1, sizeof *in);
    int code = in ? CLI_OK : CLI_FAILED;
    plan_rounds(search);
    for (int round = 0; code == CLI_OK && round < search->rounds; round++)
        code = run_round(search, round, in);
    free(in);
    if (code == CLI_OK)
        return cli_search_report(search);
    if (code == CLI_INTERRUPTED) {
        char word[CLI_WORD_BYTES];
        fprintf(stderr, "%sgradus search: interrupted; gradus search --resume %s goes on\n",
                cli_is_terminal() ? "\n" : "", cli_shell_word(search->folder, word));
    }
    return code;
}

/* ---- beginning ---- */

/* One process a search: the lock ends with it. One that has just been killed lets go in a moment. */
static bool lock(const cli_study *search)
{
    char path[CLI_PATH_BYTES + 32], sentence[CLI_PATH_BYTES + 64];
    snprintf(path, sizeof path, "%s/lock", search->folder);
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    for (int i = 0; file >= 0 && i < 40; i++) {
        if (flock(file, LOCK_EX | LOCK_NB) == 0)
            return true; /* and stays open as long as the process */
        if (errno != EWOULDBLOCK)
            break;
        (void)usleep(50000);
    }
    snprintf(sentence, sizeof sentence,
             "%.4000s: another process searches there, or it is not to "
             "be written to",
             search->folder);
    return gd_error_record(GD_ERR_STATE, sentence) == GD_OK;
}

/* Options whose values are names: of data, models, optimizers. */
static bool is_name(const cli_try *t)
{
    return t->option->kind == CLI_TEXT || t->option->kind == CLI_LIST;
}

/* Whether the trial's names are those of an earlier one. */
static bool was_rehearsed(const cli_study *search, int64_t index)
{
    for (int64_t other = 0; other < index; other++) {
        bool same = true;
        for (int i = 0; i < search->try_count; i++)
            same &= !is_name(&search->tries[i]) ||
                    strcmp(search->trials[index].values[i], search->trials[other].values[i]) == 0;
        if (same)
            return true;
    }
    return false;
}

/* The error, behind the names that are tried. Returns what to exit with. */
static int tell_with_names(const cli_study *search, const cli_trial *trial)
{
    fprintf(stderr, "gradus search: ");
    for (int i = 0; i < search->try_count; i++)
        if (is_name(&search->tries[i]))
            fprintf(stderr, "%s=%s: ", search->tries[i].key, trial->values[i]);
    fprintf(stderr, "%s\n", cli_error_words());
    return CLI_FAILED;
}

/* What can be told to be wrong with names and with the metric's is told now, and not by every trial. */
static int rehearse(cli_study *search, const char *metric)
{
    enum { MOST = 64 };
    int rehearsed = 0;
    for (int64_t i = 0; i < search->trial_count && rehearsed < MOST; i++) {
        const char *name = rehearsed ? search->metric : metric;
        if (was_rehearsed(search, i))
            continue;
        set_values(search, &search->trials[i]);
        int code = cli_train_check("search", &search->settings);
        if (code != CLI_OK)
            return code;
        if (!cli_train_rehearse(&search->settings, metric ? "--metric" : "--monitor", &name))
            return tell_with_names(search, &search->trials[i]);
        if (rehearsed++ > 0)
            continue;
        snprintf(search->metric, sizeof search->metric, "%s", name);
        search->epochs = search->settings.epochs;
    }
    return CLI_OK;
}

/* The same of numbers that do not go together, which needs no data. */
static int check_trials(cli_study *search)
{
    for (int64_t i = 0; i < search->trial_count; i++) {
        cli_settings *s = &search->settings;
        set_values(search, &search->trials[i]);
        int code = cli_train_check("search", s);
        if (code != CLI_OK)
            return code;
        s->epochs = s->epochs ? s->epochs : search->epochs;
        if (!cli_recipe_check(s))
            return cli_fail();
    }
    return CLI_OK;
}

static bool make_folder(const cli_study *search)
{
    char path[CLI_PATH_BYTES + 32];
    snprintf(path, sizeof path, "%s/search.json", search->folder);
    if (access(path, F_OK) == 0) {
        char word[CLI_WORD_BYTES], sentence[2 * CLI_WORD_BYTES];
        snprintf(sentence, sizeof sentence,
                 "%.4000s has a search in it: --resume %.4200s goes on with it, another --run "
                 "begins anew",
                 search->folder, cli_shell_word(search->folder, word));
        return gd_error_record(GD_ERR_STATE, sentence) == GD_OK;
    }
    snprintf(path, sizeof path, "%s/metrics.jsonl", search->folder);
    if (access(path, F_OK) == 0) {
        char sentence[CLI_PATH_BYTES + 64];
        snprintf(sentence, sizeof sentence, "%.4000s is the run of a training: give another --run",
                 search->folder);
        return gd_error_record(GD_ERR_STATE, sentence) == GD_OK;
    }
    (void)mkdir(search->folder, 0777); /* where that fails, what follows says so */
    snprintf(path, sizeof path, "%s/trials", search->folder);
    (void)mkdir(path, 0777);
    return lock(search);
}

static int add_trials(cli_study *search, int64_t count)
{
    cli_trial *trials = count < 1 ? NULL : realloc(search->trials, (size_t)count * sizeof *trials);
    if (!trials)
        return CLI_FAILED;
    search->trials = trials;
    for (; search->trial_count < count; search->trial_count++) {
        trials[search->trial_count] = (cli_trial){ 0 };
        if (!cli_try_draw(search, search->trial_count, &trials[search->trial_count]))
            return CLI_FAILED;
    }
    return CLI_OK;
}

/* How many trials, of how many that are asked for; 0: told why not. */
static int64_t count_trials(const cli_study *search, int64_t asked)
{
    int64_t combinations = cli_try_combinations(search);
    if (search->method == CLI_GRID && combinations == 0)
        fprintf(stderr, "gradus search: a grid needs values, not ranges: log(LOW,HIGH,COUNT) gives "
                        "so many, at most 10000 together\n");
    else if (search->method == CLI_GRID && asked > 0)
        fprintf(stderr,
                "gradus search: a grid has as many trials as there are combinations, %lld: without "
                "--trials\n",
                (long long)combinations);
    else if (search->method == CLI_GRID || (combinations > 0 && combinations < asked))
        return combinations; /* none twice */
    else
        return asked > 0 ? asked : combinations > 0 && combinations < 20 ? combinations : 20;
    return 0;
}

/* The try of that option; NULL: it is not tried. */
static const cli_try *find_try(const cli_study *search, const char *key)
{
    for (int i = 0; i < search->try_count; i++)
        if (strcmp(search->tries[i].key, key) == 0)
            return &search->tries[i];
    return NULL;
}

typedef struct request {
    const char *method, *metric;
    cli_texts tries;
    int64_t trials, reduction;
} request;

static int read_request(cli_study *search, const request *r)
{
    int code = CLI_USAGE, found = -1;
    const char *method = r->method ? r->method : "random";
    for (int i = 0; i < CLI_METHOD_COUNT; i++)
        if (strcmp(method, cli_method_names[i]) == 0)
            found = i;
    search->method = (cli_method)found;
    search->reduction = r->reduction;
    if (found < 0)
        fprintf(stderr, "gradus search: --method is random, grid or halving, not '%s'%s\n", method,
                cli_suggestion(method, "", CLI_METHOD_COUNT, cli_method_names));
    else if (r->tries.count == 0)
        fprintf(stderr, "gradus search: what is to be tried? --try optimizer.lr=log(1e-4,1e-1); "
                        "'gradus search --help'\n");
    else if (search->base.find_lr)
        fprintf(stderr, "gradus search: --find-lr is for gradus train\n");
    else if (r->metric && strlen(r->metric) >= sizeof search->metric)
        fprintf(stderr, "gradus search: --metric: there is no metric with so long a name\n");
    else
        code = CLI_OK;
    for (int i = 0; code == CLI_OK && i < r->tries.count; i++)
        code = cli_try_add(search, r->tries.texts[i]);
    if (code == CLI_OK && search->method == CLI_HALVING && find_try(search, "epochs")) {
        fprintf(stderr, "gradus search: halving shares out the epochs; they cannot be tried\n");
        code = CLI_USAGE;
    }
    return code;
}

static bool choose_folder(cli_study *search, const char *data)
{
    if (!search->base.run)
        return cli_choose_folder(data, "-search", search->folder);
    snprintf(search->folder, sizeof search->folder, "%.4000s", search->base.run);
    return true;
}

static int write_and_run(cli_study *search)
{
    char path[CLI_PATH_BYTES + 32];
    search->settings = search->base;
    snprintf(path, sizeof path, "%s/config.json", search->folder);
    return cli_config_write(search->config, path) == GD_OK && cli_search_save(search) == GD_OK
               ? run_all(search)
               : cli_fail();
}

static int begin(cli_study *search, const request *r)
{
    int code = read_request(search, r);
    int64_t trials = code == CLI_OK ? count_trials(search, r->trials) : 0;
    if (trials == 0)
        return CLI_USAGE;
    const cli_try *tried = find_try(search, "data");
    const char *given = search->base.data ? search->base.data
                        : tried           ? tried->choices[0]
                                          : CLI_DEFAULT_DATA;
    if (!search->base.data && access(given, F_OK) != 0) {
        fprintf(stderr, "gradus search: DATA is needed, or a file of options; 'gradus search "
                        "--help'\n");
        return CLI_USAGE;
    }
    char *data, *model;
    search->base.data = cli_absolute(given, &data);
    search->base.model = cli_absolute(search->base.model, &model);
    if (add_trials(search, trials) != CLI_OK) {
        fprintf(stderr, "gradus search: out of memory\n");
        code = CLI_FAILED;
    } else if (!cli_can_save()) {
        code = cli_fail();
    } else if ((code = rehearse(search, r->metric)) == CLI_OK &&
               (code = check_trials(search)) == CLI_OK) {
        bool ok =
            choose_folder(search, given) && cli_can_be_made(search->folder) && make_folder(search);
        code = ok ? write_and_run(search) : cli_fail();
    }
    free(data);
    free(model);
    return code;
}

/* ---- going on ---- */

static int check_resumed(const cli_study *search, const request *r, const bool *given)
{
    const cli_config *config = search->config;
    for (int i = 0; i < config->count; i++) {
        const char *name = config->options[i].name;
        if (given[i] && strcmp(name, "resume") != 0 && strcmp(name, "trials") != 0 &&
            (cli_train_is_kept(name) || !cli_train_key(name))) {
            fprintf(stderr, "gradus search: --%s cannot be changed by --resume\n", name);
            return CLI_USAGE;
        }
    }
    if (!search->base.run && !search->base.data && r->tries.count == 0)
        return CLI_OK;
    fprintf(stderr, "gradus search: --resume takes data and options of the search\n");
    return CLI_USAGE;
}

/* What failed is tried again, from its checkpoint: the disk may have room now, or the file be there. Those
 * whose loss is not finite fail again at once. */
static void forget_problems(cli_study *search)
{
    for (int64_t i = 0; i < search->trial_count; i++) {
        free(search->trials[i].problem);
        search->trials[i].problem = NULL;
    }
}

static int go_on(cli_study *search, const request *r, const bool *given)
{
    char path[CLI_PATH_BYTES + 32];
    int code = check_resumed(search, r, given);
    if (code != CLI_OK)
        return code;
    snprintf(search->folder, sizeof search->folder, "%.4000s", search->base.resume);
    search->settings = search->base;
    search->settings.resume = NULL;
    snprintf(path, sizeof path, "%s/config.json", search->folder);
    if (access(path, F_OK) == 0 && (code = cli_config_read(search->config, path)) != CLI_OK)
        return code;
    search->base = search->settings;
    code = cli_search_load(search);
    if (code != CLI_OK)
        return code;
    if (!lock(search))
        return cli_fail();
    forget_problems(search);
    if (r->trials > 0 && search->method != CLI_RANDOM) {
        fprintf(stderr, "gradus search: --trials can be changed of a random search alone\n");
        return CLI_USAGE;
    }
    int64_t trials = r->trials > 0 ? count_trials(search, r->trials) : 0;
    if (trials > search->trial_count && add_trials(search, trials) != CLI_OK)
        return CLI_FAILED;
    return run_all(search);
}

/* ---- the command ---- */

static void release(cli_study *search)
{
    for (int i = 0; i < search->try_count; i++) {
        free(search->tries[i].spec);
        for (int k = 0; k < search->tries[i].count; k++)
            free(search->tries[i].choices[k]);
    }
    for (int64_t i = 0; search->trials && i < search->trial_count; i++) {
        for (int k = 0; k < search->try_count; k++)
            free(search->trials[i].values[k]);
        free(search->trials[i].problem);
    }
    free(search->trials);
}

/* An option of the search alone: in no file. */
static const char *key_of(const char *name)
{
    static const char *const own[] = { "try", "method", "trials", "metric", "reduction" };
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (strcmp(name, own[i]) == 0)
            return NULL;
    return cli_train_key(name);
}

static int own_options(request *r, cli_option *rows)
{
    const cli_option options[] = {
        { "Search", NULL, NULL, CLI_GROUP, NULL, 0, 0 },
        { "try", "KEY=VALUES",
          "an option by its name in files, and values, as batch=16,32,64, or a range: "
          "uniform(LOW,HIGH), or log(LOW,HIGH), whose logarithm is uniform; may be given often. "
          "log(LOW,HIGH,COUNT): so many values",
          CLI_TEXTS, &r->tries, 0, 0 },
        { "method", "NAME",
          "random; grid: every combination of values; or halving: all train shortly, and the best "
          "go on (default: random)",
          CLI_TEXT, &r->method, 0, 0 },
        { "trials", "N", "trainings (default: 20)", CLI_WHOLE, &r->trials, 1, CLI_MOST_TRIALS },
        { "reduction", "N",
          "of halving: one of so many goes on, for so many times the epochs (default: 3)",
          CLI_WHOLE, &r->reduction, 2, 100 },
        { "metric", "NAME",
          "of the validation, whose best value counts (default: what says which epoch is best)",
          CLI_TEXT, &r->metric, 0, 0 },
    };
    memcpy(rows, options, sizeof options);
    return (int)(sizeof options / sizeof *options);
}

int cli_search(int argc, char **argv)
{
    static cli_study search;
    cli_option options[CLI_MOST_OPTIONS];
    bool given[CLI_MOST_OPTIONS] = { false };
    request r = { .reduction = 3 };
    search.settings = cli_train_defaults();
    int own = own_options(&r, options);
    cli_config config = { .command = "search",
                          .options = options,
                          .count = own + cli_train_options(&search.settings, options + own),
                          .key = key_of,
                          .is_kept = cli_train_is_kept };
    search.config = &config;
    const cli_command_help help = {
        "gradus search [DATA] --try KEY=VALUES... [OPTION]...",
        "Train many times with options that differ, and name the best. Each trial is a run folder "
        "of gradus train, FOLDER/trials/001 and so on, and the search goes on after any end with "
        "--resume FOLDER. What is tried depends on --seed and the number of the trial alone. All "
        "options of gradus train are those of every trial."
    };
    int code = cli_train_read(argc, argv, &help, &config, &search.settings, given);
    search.base = search.settings;
    if (code == CLI_OK) {
        cli_catch_interrupts();
        (void)signal(SIGPIPE, SIG_IGN);
        code = search.base.resume ? go_on(&search, &r, given) : begin(&search, &r);
    }
    release(&search);
    cli_config_close(&config);
    return code == CLI_HELPED ? CLI_OK : code;
}
