/* tests/test_fit_models.c: gd_fit and gd_predict of models as data, and of padded sequences. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "support/fit.h"

/* ---- models as data ---- */

static void models_are_trained_and_predict(void **state)
{
    need_json();
    gd_model *model = gd_model_load_json(
        *state,
        "{\"input\": [3], \"layers\": [{\"name\": \"fc\", \"type\": \"linear\", \"units\": 8,"
        "\"activation\": \"tanh\"}, {\"name\": \"drop\", \"type\": \"dropout\", \"dropout\": 0.1},"
        "{\"name\": \"y\", \"type\": \"linear\", \"units\": 1},"
        "{\"name\": \"sign\", \"type\": \"linear\", \"units\": 2, \"inputs\": [\"drop\"]}],"
        "\"outputs\": [\"y\", \"sign\"], \"losses\": [{\"type\": \"mse\", \"outputs\": [\"y\"]},"
        "{\"type\": \"cross_entropy\", \"outputs\": [\"sign\"]}]}",
        .seed = 1);
    if (!model)
        fail_msg("%s", gd_error_message());
    gd_module *m = gd_model_module(model);
    gd_dataset *d = numbers(*state);
    gd_loader *l = gd_loader_create(d, .batch = 5, .shuffle = true);
    gd_metrics metrics;
    assert_int_equal(gd_fit(gd_adam(m, .lr = 0.02), gd_model_objective, model, l, .epochs = 60,
                            .validation = l, .result = &metrics),
                     GD_OK);
    assert_int_equal(metrics.count, 4);
    assert_true(gd_metrics_get(&metrics, "y/r2") > 0.9);
    assert_true(gd_metrics_get(&metrics, "y/mae") < 0.3);
    assert_true(gd_metrics_get(&metrics, "sign/accuracy") > 0.85);

    gd_predictor *p = gd_predictor_create(model);
    gd_loader *in_order = gd_loader_create(d, .batch = 5);
    gd_tensor *all[3], *one[2], *of_loader[2];
    assert_int_equal(gd_dataset_get(d, 0, SAMPLES, all), GD_OK);
    assert_int_equal(gd_predict_loader(p, in_order, 2, of_loader), GD_OK);
    assert_int_equal(gd_tensor_shape(of_loader[1]).dim[0], SAMPLES);
    assert_int_equal(gd_tensor_shape(of_loader[1]).dim[1], 2);
    for (int64_t i = 0; i < SAMPLES; i++) {
        gd_tensor *x = gd_slice(all[0], 0, i, i + 1, 1);
        assert_int_equal(gd_predict(p, 1, &x, 2, one), GD_OK);
        for (int k = 0; k < 2; k++) {
            gd_tensor *apart = gd_abs(gd_sub(one[k], gd_slice(of_loader[k], 0, i, i + 1, 1)));
            assert_true(gd_item(gd_max(apart, GD_ALL_AXES, false)) < 1e-6);
        }
    }
    assert_true(gd_module_is_training(m));
    assert_int_equal(gd_predict(p, 1, all, 1, one), GD_ERR_INVALID);
    expect_error(GD_ERR_INVALID, "the model has 2 outputs, not 1");
    gd_predictor_release(p);
    const gd_field field = { GD_FIELD_DEFAULTS, .name = "x", .shape = GD_SHAPE(3) };
    const float values[6] = { 1 };
    const void *array = values;
    gd_loader *few = gd_loader_create(gd_dataset_from_arrays(*state, 2, 1, &field, &array));
    assert_int_equal(gd_fit(gd_sgd(m), gd_model_objective, model, few), GD_ERR_INVALID);
    expect_error(GD_ERR_INVALID, "batches have 1 tensors; the model has 1 inputs and its losses 2");
}

/* ---- padded sequences ---- */

static const char *const step_losses[] = { "cross_entropy", "mse", "bce_with_logits" };

/* Sequences of 6 steps of which the first has 2 and the second 5, the rest being `padding`. */
static gd_dataset *sequences(gd_context *gd, bool classes, float padding)
{
    static float x[2][6][2], y[2][6][1];
    static int64_t lengths[2] = { 2, 5 }, class[2][6];
    for (int i = 0; i < 2; i++)
        for (int t = 0; t < 6; t++) {
            bool there = t < lengths[i];
            x[i][t][0] = there ? (float)(i + t) / 4 : padding;
            x[i][t][1] = there ? (float)(i * t) / 3 - 1 : -padding;
            y[i][t][0] = there ? (float)((i + t) % 2) : padding;
            class[i][t] = there ? (i + t) % 3 : (int64_t)padding % 3;
        }
    const gd_field fields[] = {
        { GD_FIELD_DEFAULTS, .name = "x", .shape = GD_SHAPE(6, 2) },
        { GD_FIELD_DEFAULTS, .name = "n", .dtype = GD_I64 },
        { GD_FIELD_DEFAULTS, .name = "y", .shape = classes ? GD_SHAPE(6) : GD_SHAPE(6, 1),
          .dtype = classes ? GD_I64 : GD_F32 },
    };
    const void *const arrays[] = { x, lengths, classes ? (const void *)class : (const void *)y };
    gd_dataset *d = gd_dataset_from_arrays(gd, 2, 3, fields, arrays);
    assert_non_null(d);
    return d;
}

/* Whatever stands behind the ends of sequences, loss, metrics and the steps of a training are the same, and
 * the loss is that of the steps that are there. */
static void padding_counts_for_nothing(void **state)
{
    gd_context *gd = *state;
    need_json();
    for (int k = 0; k < 3; k++) {
        gd_metrics metrics[2];
        gd_model *models[2];
        bool classes = k == 0;
        for (int p = 0; p < 2; p++) {
            char json[512];
            snprintf(
                json, sizeof json,
                "{ \"inputs\": [ { \"name\": \"x\", \"shape\": [6, 2] }, { \"name\": \"n\", "
                "\"shape\": [], \"dtype\": \"i64\" } ], \"layers\": [ { \"name\": \"rnn\", "
                "\"type\": "
                "\"gru\", \"units\": 4, \"lengths\": \"n\", \"inputs\": [\"x\"] }, { \"name\": "
                "\"out\", \"type\": \"linear\", \"units\": %d } ], \"loss\": { \"type\": \"%s\" } "
                "}",
                classes ? 3 : 1, step_losses[k]);
            models[p] = gd_model_load_json(gd, json, .seed = 4);
            assert_non_null(models[p]);
            gd_loader *l = gd_loader_create(sequences(gd, classes, p ? 7.0f : 100.0f), .batch = 2);
            assert_int_equal(gd_fit(gd_sgd(gd_model_module(models[p]), .lr = 0.1),
                                    gd_model_objective, models[p], l, .steps = 4,
                                    .result = &metrics[p]),
                             GD_OK);
        }
        assert_same_parameters(gd_model_module(models[0]), gd_model_module(models[1]));
        assert_int_equal(metrics[0].count, 2);
        assert_string_equal(metrics[0].list[1].name, k == 1 ? "mae" : "accuracy");
        for (int i = 0; i < 2; i++)
            assert_true(metrics[0].list[i].value == metrics[1].list[i].value);
        /* The mean of 7 steps. */
        gd_tensor *in[3], *outputs[1];
        assert_int_equal(gd_dataset_get(sequences(gd, classes, 7.0f), 0, 2, in), GD_OK);
        assert_int_equal(gd_model_forward_all(models[0], 2, in, 1, outputs), GD_OK);
        double sum = 0;
        for (int i = 0; i < 2; i++) {
            int64_t n = i == 0 ? 2 : 5;
            gd_tensor *y = gd_slice(gd_slice(outputs[0], 0, i, i + 1, 1), 1, 0, n, 1);
            gd_tensor *truth = gd_slice(gd_slice(in[2], 0, i, i + 1, 1), 1, 0, n, 1);
            sum += (double)n * gd_item(k == 0   ? gd_cross_entropy(y, truth)
                                       : k == 1 ? gd_mse(y, truth)
                                                : gd_bce_with_logits(y, truth));
        }
        gd_tensor *loss = gd_model_loss_padded(models[0], 1, outputs, 1, &in[2], in[1]);
        assert_true(fabs(gd_item(loss) - sum / 7) < 1e-6);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        context_test(models_are_trained_and_predict),
        context_test(padding_counts_for_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
