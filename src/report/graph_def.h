/* report/graph_def.h: a graph of ops as TensorFlow's GraphDef, which TensorBoard shows. */
#ifndef GD_REPORT_GRAPH_DEF_H
#define GD_REPORT_GRAPH_DEF_H

#include <gradus/tensor.h>

/* The message's bytes, to be gd_free'd; NULL after an error. tensors: each behind its inputs. */
gd_status gd_graph_def(int64_t count, gd_tensor *const *tensors, unsigned char **bytes,
                       size_t *size);

#endif
