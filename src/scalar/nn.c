/* nn.c: neurons, layers and the multi-layer perceptron, made of values.
 *
 * Nothing here knows about derivatives. A forward pass computes with gd_value_* functions, which
 * build the graph as a side effect; gd_value_backward does the rest.
 */
#include <gradus/scalar.h>
#include "scalar/memory.h"

#include <math.h>

/* ---- Random numbers ------------------------------------------------------------------------ */

double gd_scalar_uniform(gd_scalar_random *random, double low, double high)
{
    uint64_t bits = random->state += UINT64_C(0x9E3779B97F4A7C15);
    bits = (bits ^ (bits >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    bits = (bits ^ (bits >> 27)) * UINT64_C(0x94D049BB133111EB);
    bits ^= bits >> 31;
    return low + (high - low) * ((double)(bits >> 11) * 0x1p-53);
}

/* ---- Neuron -------------------------------------------------------------------------------- */

struct gd_neuron {
    gd_scalar_vector *weights; // [inputs]
    gd_value *bias;
    gd_scalar_activation activation;
};

void gd_neuron_destroy(gd_neuron *neuron)
{
    if (neuron == NULL)
        return;
    gd_scalar_vector_destroy(neuron->weights);
    gd_value_release(neuron->bias);
    gd_scalar_realloc(neuron, 0, sizeof(*neuron));
}

gd_neuron *gd_neuron_create(size_t inputs, gd_scalar_activation activation,
                            gd_scalar_random *random)
{
    if (inputs == 0 || random == NULL) {
        gd_scalar_fail(
            "gd_neuron_create: a neuron needs at least one input and a source of random numbers");
        return NULL;
    }
    gd_neuron *neuron = gd_scalar_realloc(NULL, 1, sizeof(*neuron));
    if (neuron == NULL)
        return NULL;
    *neuron = (gd_neuron){ gd_scalar_vector_create(), gd_value_create_leaf(0.0), activation };

    double bound = sqrt(6.0 / (double)inputs);
    int status = neuron->weights != NULL && neuron->bias != NULL ? 0 : -1;
    for (size_t i = 0; i < inputs && status == 0; i++)
        status =
            gd_scalar_vector_push_leaf(neuron->weights, gd_scalar_uniform(random, -bound, bound));
    if (status != 0) {
        gd_neuron_destroy(neuron);
        return NULL;
    }
    return neuron;
}

gd_value *gd_neuron_forward(const gd_neuron *neuron, const gd_scalar_vector *inputs)
{
    if (neuron == NULL || inputs == NULL)
        return NULL;
    size_t count = gd_scalar_vector_size(neuron->weights);
    if (gd_scalar_vector_size(inputs) != count) {
        gd_scalar_fail("gd_neuron_forward: the number of inputs is not the number of weights");
        return NULL;
    }
    gd_value *const *w = gd_scalar_vector_items(neuron->weights); // [count]
    gd_value *const *x = gd_scalar_vector_items(inputs);          // [count]

    gd_value *sum = gd_value_retain(neuron->bias);
    for (size_t i = 0; i < count; i++)
        sum = gd_value_accumulate(sum, gd_value_mul(w[i], x[i]));
    if (neuron->activation == GD_SCALAR_LINEAR)
        return sum;

    gd_value *result = gd_value_relu(sum);
    gd_value_release(sum);
    return result;
}

int gd_neuron_parameters(const gd_neuron *neuron, gd_scalar_vector *into)
{
    if (neuron == NULL)
        return -1;
    for (size_t i = 0; i < gd_scalar_vector_size(neuron->weights); i++)
        if (gd_scalar_vector_push(into, gd_scalar_vector_get(neuron->weights, i)) != 0)
            return -1;
    return gd_scalar_vector_push(into, neuron->bias);
}

/* ---- Layer --------------------------------------------------------------------------------- */

struct gd_scalar_layer {
    size_t count;
    gd_neuron **neurons; // [count]
};

void gd_scalar_layer_destroy(gd_scalar_layer *layer)
{
    if (layer == NULL)
        return;
    for (size_t i = 0; i < layer->count; i++)
        gd_neuron_destroy(layer->neurons[i]);
    gd_scalar_realloc(layer->neurons, 0, sizeof(gd_neuron *));
    gd_scalar_realloc(layer, 0, sizeof(*layer));
}

gd_scalar_layer *gd_scalar_layer_create(size_t inputs, size_t outputs,
                                        gd_scalar_activation activation, gd_scalar_random *random)
{
    if (outputs == 0) {
        gd_scalar_fail("gd_scalar_layer_create: a layer needs at least one neuron");
        return NULL;
    }
    gd_scalar_layer *layer = gd_scalar_realloc(NULL, 1, sizeof(*layer));
    if (layer == NULL)
        return NULL;
    *layer = (gd_scalar_layer){ 0, gd_scalar_realloc(NULL, outputs, sizeof(gd_neuron *)) };
    while (layer->neurons != NULL && layer->count < outputs) {
        gd_neuron *neuron = gd_neuron_create(inputs, activation, random);
        if (neuron == NULL)
            break;
        layer->neurons[layer->count++] = neuron;
    }
    if (layer->count < outputs) {
        gd_scalar_layer_destroy(layer);
        return NULL;
    }
    return layer;
}

gd_scalar_vector *gd_scalar_layer_forward(const gd_scalar_layer *layer,
                                          const gd_scalar_vector *inputs)
{
    if (layer == NULL || inputs == NULL)
        return NULL;
    gd_scalar_vector *outputs = gd_scalar_vector_create();
    for (size_t i = 0; i < layer->count; i++) {
        gd_value *output = gd_neuron_forward(layer->neurons[i], inputs);
        int status = gd_scalar_vector_push(outputs, output);
        gd_value_release(output);
        if (status != 0) {
            gd_scalar_vector_destroy(outputs);
            return NULL;
        }
    }
    return outputs;
}

int gd_scalar_layer_parameters(const gd_scalar_layer *layer, gd_scalar_vector *into)
{
    if (layer == NULL)
        return -1;
    for (size_t i = 0; i < layer->count; i++)
        if (gd_neuron_parameters(layer->neurons[i], into) != 0)
            return -1;
    return 0;
}

/* ---- Multi-layer perceptron ---------------------------------------------------------------- */

struct gd_mlp {
    size_t count;
    gd_scalar_layer **layers; // [count]
};

void gd_mlp_destroy(gd_mlp *mlp)
{
    if (mlp == NULL)
        return;
    for (size_t i = 0; i < mlp->count; i++)
        gd_scalar_layer_destroy(mlp->layers[i]);
    gd_scalar_realloc(mlp->layers, 0, sizeof(gd_scalar_layer *));
    gd_scalar_realloc(mlp, 0, sizeof(*mlp));
}

gd_mlp *gd_mlp_create(const size_t *sizes, size_t count, gd_scalar_activation output, uint64_t seed)
{
    if (sizes == NULL || count < 2) {
        gd_scalar_fail(
            "gd_mlp_create: at least two sizes are needed, of the input and of one layer");
        return NULL;
    }
    gd_mlp *mlp = gd_scalar_realloc(NULL, 1, sizeof(*mlp));
    if (mlp == NULL)
        return NULL;
    size_t layers = count - 1;
    *mlp = (gd_mlp){ 0, gd_scalar_realloc(NULL, layers, sizeof(gd_scalar_layer *)) };
    gd_scalar_random random = { seed };
    while (mlp->layers != NULL && mlp->count < layers) {
        size_t i = mlp->count;
        gd_scalar_activation activation = i + 1 < layers ? GD_SCALAR_RELU : output;
        gd_scalar_layer *layer =
            gd_scalar_layer_create(sizes[i], sizes[i + 1], activation, &random);
        if (layer == NULL)
            break;
        mlp->layers[mlp->count++] = layer;
    }
    if (mlp->count < layers) {
        gd_mlp_destroy(mlp);
        return NULL;
    }
    return mlp;
}

gd_scalar_vector *gd_mlp_forward(const gd_mlp *mlp, const gd_scalar_vector *inputs)
{
    if (mlp == NULL || inputs == NULL)
        return NULL;
    gd_scalar_vector *x = gd_scalar_layer_forward(mlp->layers[0], inputs);
    for (size_t i = 1; i < mlp->count; i++) {
        gd_scalar_vector *y = gd_scalar_layer_forward(mlp->layers[i], x);
        gd_scalar_vector_destroy(x); /* y was made of its values and holds them */
        x = y;
    }
    return x;
}

int gd_mlp_parameters(const gd_mlp *mlp, gd_scalar_vector *into)
{
    if (mlp == NULL)
        return -1;
    for (size_t i = 0; i < mlp->count; i++)
        if (gd_scalar_layer_parameters(mlp->layers[i], into) != 0)
            return -1;
    return 0;
}

/* ---- Gradient descent ---------------------------------------------------------------------- */

void gd_scalar_zero_grad(const gd_scalar_vector *parameters)
{
    for (size_t i = 0; i < gd_scalar_vector_size(parameters); i++)
        gd_value_zero_grad(gd_scalar_vector_get(parameters, i));
}

void gd_scalar_descend(const gd_scalar_vector *parameters, double step_size)
{
    for (size_t i = 0; i < gd_scalar_vector_size(parameters); i++) {
        gd_value *p = gd_scalar_vector_get(parameters, i);
        gd_value_set_data(p, gd_value_data(p) - step_size * gd_value_grad(p));
    }
}
