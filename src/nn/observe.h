/* nn/observe.h: what layers of a module are given, told to whoever calibrates a model. */
#ifndef GD_NN_OBSERVE_H
#define GD_NN_OBSERVE_H

#include <gradus/nn.h>

/* Told of the name and the input x [.., in] of each linear layer. A status other than GD_OK makes the layer fail. */
typedef gd_status (*gd_observe_fn)(void *observer, const char *name, gd_tensor *x);

/* `observe` is called by the linear layers of m, before they compute. NULL: nobody is. */
void gd_module_observe(gd_module *m, gd_observe_fn observe, void *observer);

#endif
