/* bench/onednn.c: see onednn.h. */
#include "onednn.h"

#ifdef GD_HAVE_DNNL
#include "measure.h"

static void check(dnnl_status_t status, const char *what)
{
    if (status != dnnl_success)
        gd_bench_die("oneDNN: %s: status %d", what, (int)status);
}

static dnnl_memory_desc_t describe(const gd_bench_onednn_product *p, int64_t rows, int64_t columns,
                                   bool transposed)
{
    const dnnl_dims_t dims = { p->batch, rows, columns };
    const dnnl_dims_t strides = { rows * columns, transposed ? 1 : columns, transposed ? rows : 1 };
    dnnl_memory_desc_t desc;
    check(dnnl_memory_desc_create_with_strides(&desc, 3, dims, p->type, strides), "memory");
    return desc;
}

void gd_bench_onednn_open(gd_bench_onednn_product *p)
{
    const dnnl_memory_desc_t desc[3] = { describe(p, p->m, p->k, p->a_transposed),
                                         describe(p, p->k, p->n, p->b_transposed),
                                         describe(p, p->m, p->n, false) };
    void *const data[3] = { p->a, p->b, p->c };
    dnnl_primitive_desc_t product;
    check(dnnl_engine_create(&p->engine, dnnl_cpu, 0), "engine");
    check(dnnl_stream_create(&p->stream, p->engine, dnnl_stream_default_flags), "stream");
    check(dnnl_matmul_primitive_desc_create(&product, p->engine, desc[0], desc[1], NULL, desc[2],
                                            NULL),
          "matmul");
    check(dnnl_primitive_create(&p->primitive, product), "matmul");
    dnnl_primitive_desc_destroy(product);
    for (int i = 0; i < 3; i++) {
        check(dnnl_memory_create(&p->memory[i], desc[i], p->engine, data[i]), "memory");
        dnnl_memory_desc_destroy(desc[i]);
    }
}

void gd_bench_onednn_run(gd_bench_onednn_product *p)
{
    const dnnl_exec_arg_t args[] = { { DNNL_ARG_SRC, p->memory[0] },
                                     { DNNL_ARG_WEIGHTS, p->memory[1] },
                                     { DNNL_ARG_DST, p->memory[2] } };
    dnnl_primitive_execute(p->primitive, p->stream, 3, args);
    dnnl_stream_wait(p->stream);
}

void gd_bench_onednn_close(gd_bench_onednn_product *p)
{
    dnnl_primitive_destroy(p->primitive);
    for (int i = 0; i < 3; i++)
        dnnl_memory_destroy(p->memory[i]);
    dnnl_stream_destroy(p->stream);
    dnnl_engine_destroy(p->engine);
}
#else
typedef int gd_nothing_here; /* C wants a declaration */
#endif
