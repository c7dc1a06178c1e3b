/* tests/cplusplus/program.cc: a C++ program on Gradus, compiled as C++17 and C++20, linked and run:
 * calls with options, shapes, a compiled step, a model by calls, an error. */
#include <gradus/gradus.h>

#include <cmath>
#include <cstdio>
#include <cstring>

namespace {

int failures = 0;

void check(bool holds, const char *what)
{
    if (holds)
        return;
    std::fprintf(stderr, "%s: %s\n", what, gd_error_message());
    failures++;
}

gd_tensor *step(void *optimizer, int, gd_tensor *const *in)
{
    gd_optimizer *adam = static_cast<gd_optimizer *>(optimizer);
    gd_module *m = gd_optimizer_module(adam);
    gd_tensor *hidden = gd_tanh(gd_nn_linear(m, "hidden", in[0], 32, .init = GD_INIT_LECUN_NORMAL));
    return gd_minimize(adam, gd_mse(gd_nn_linear(m, "out", hidden, 1), in[1]));
}

/* 200 steps on the sine: the loss falls to a tenth. */
void learns(gd_context *gd)
{
    gd_module *m = gd_module_create(gd, .seed = 1);
    gd_optimizer *adam = gd_adam(m, .lr = 0.01);
    gd_tensor *x = gd_reshape(gd_linspace(gd, -3, 3, 64, GD_F32), GD_SHAPE(64, 1));
    gd_function *train = gd_compile(gd, step, adam, .mode = GD_MODE_COMPILED);
    gd_tensor *sine[] = { x, gd_sin(x) };
    const double first = gd_item(gd_call(train, 2, sine));
    double last = first;
    for (int i = 0; i < 200; i++)
        last = gd_item(gd_call(train, 2, sine));
    check(last < 0.1 * first, "training");
}

void builds_models(gd_context *gd)
{
    gd_model_builder *b = gd_model_begin(gd, GD_SHAPE(1, 8, 8), .seed = 2);
    gd_model_add(b, "conv", "conv2d", .activation = "relu", .channels = 4, .kernel = GD_SHAPE(3));
    gd_model_add(b, "pool", "global_avg_pool");
    gd_model_add(b, "again", "linear", .units = 4);
    gd_model_add(b, "sum", "add", .inputs = { "pool", "again" });
    gd_model_add(b, "out", "linear", .units = 3, .bias = false);
    gd_model *model = gd_model_end(b);
    gd_tensor *y = gd_model_forward(model, gd_ones(gd, GD_SHAPE(5, 1, 8, 8), GD_F32));
    gd_shape shape = gd_tensor_shape(y);
    check(shape.rank == 2 && shape.dim[0] == 5 && shape.dim[1] == 3, "model");
    gd_tensor *total = gd_sum(gd_softmax(y, -1), GD_ALL_AXES, false);
    check(std::fabs(gd_item(total) - 5.0) < 1e-5, "softmax");
    check(gd_tensor_shape(gd_sum(y, GD_AXES(0, 1), false)).rank == GD_SCALAR.rank, "axes");
}

void reports_errors(gd_context *gd)
{
    gd_tensor *a = gd_zeros(gd, GD_SHAPE(2, 3), GD_F32);
    check(gd_matmul(a, a) == nullptr && gd_error_code() == GD_ERR_SHAPE, "a wrong product");
    check(std::strstr(gd_error_message(), "[2, 3] @ [2, 3]") != nullptr, "its sentence");
    gd_error_clear();
}

} // namespace

int main()
{
    gd_context *gd = gd_open("cpu", .threads = 1, .seed = 3);
    check(gd != nullptr, "gd_open");
    learns(gd);
    builds_models(gd);
    check(gd_error_code() == GD_OK, "an error where none is expected");
    reports_errors(gd);
    gd_close(gd);
    std::printf("C++ %ld, gradus %s\n", static_cast<long>(__cplusplus), gd_version());
    return failures == 0 ? 0 : 1;
}
