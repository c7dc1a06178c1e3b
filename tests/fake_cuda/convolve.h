/* tests/fake_cuda/convolve.h: convolutions as the stand-in for cuDNN computes them, by plain loops. */
#ifndef GD_TESTS_FAKE_CONVOLVE_H
#define GD_TESTS_FAKE_CONVOLVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* y = x * w with three spatial axes: x [n, groups * c, in], w [groups * o, c, kernel], y [n, groups * o, out]. */
typedef struct fake_convolution {
    int result; /* operand 0, 1 or 2 */
    int engine;
    int64_t size[3][5];
    int64_t stride[3], before[3], after[3], dilation[3];
    float *operand[3];
    char *workspace;
    size_t workspace_bytes;
} fake_convolution;

/* Why the sizes are no convolution's, or NULL. */
const char *fake_convolution_fault(const fake_convolution *c);
/* Padding is symmetric, and there are no groups. */
bool fake_convolution_is_symmetric(const fake_convolution *c);
/* Computes the result: of a fake_convolution. */
void fake_convolve(const void *convolution);

#endif
