/* gradus/vmap.h: a function of one element, applied to all elements of a batch at once.
 *
 *     gd_tensor *batch[2] = { x, y }, *element[2]; // x [size, ..], y [size, ..]
 *     gd_vmap *map = gd_vmap_begin(2, batch, NULL, element); // element[0] [..], element[1] [..]
 *     gd_tensor *each[2] = { gd_mse(gd_matmul(element[0], weight), element[1]) };
 *     gd_grad(1, each, NULL, 1, &weight, &each[1]);
 *     gd_tensor *results[2];
 *     gd_vmap_end(map, 2, each, results); // [size], [size, weight's shape]
 *
 * That is the loss and the gradient of each element, of its own. What stands between begin and end
 * is done once, on tensors without values, as in the body of a compiled function; then each op is
 * applied to the whole batch: most by a rule, which makes it an op with a further axis, the others
 * (recurrent layers, CTC, and what would have more than 8 axes) element by element. Values are those
 * of a loop over the elements, but for the order in which products and sums are rounded. */
#ifndef GRADUS_VMAP_H
#define GRADUS_VMAP_H

#include <gradus/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gd_vmap gd_vmap;

/* elements[i] stands for one element of input i along its axis 0, where batched[i], and else for all
 * of it; elements belong to the map. batched NULL: all are. Eagerly as well as in the body of a
 * compiled function; and within another gd_vmap_begin, for batches of batches. Tensors from outside
 * may be used, and are the same for all elements.
 *
 * What asks for a value is GD_ERR_STATE until the end. Random numbers, gd_dropout's too, are drawn
 * for each element. Compiled functions are simply done. GD_ERR_SHAPE: batched inputs without axes, or
 * of different sizes along axis 0. GD_ERR_INVALID: no input is batched. */
GD_API gd_vmap *gd_vmap_begin(int count, gd_tensor *const *inputs, const bool *batched,
                              gd_tensor **elements);

/* results[i] is outputs[i] of all elements, [size, ..]; an output that is the same for all is
 * repeated, as a view of it. They have a history where outputs would have one, so gradients pass
 * through. Ends the map, whether it succeeds or not, but where another map or a function that was
 * begun within it is open: GD_ERR_STATE. Of an end that fails, changes that do not depend on the
 * batch may have been made. An error recorded since gd_vmap_begin and not cleared fails it.
 * GD_ERR_STATE too: something outside is changed that would be changed for each element, as by
 * gd_backward, an optimizer or batch normalisation's running statistics. */
GD_API gd_status gd_vmap_end(gd_vmap *map, int count, gd_tensor *const *outputs,
                             gd_tensor **results);

/* End the map without results. NULL is fine. */
GD_API gd_status gd_vmap_abandon(gd_vmap *map);

#ifdef __cplusplus
}
#endif
#endif
