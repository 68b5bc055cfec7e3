/* Convolution on images stored channels last, as sums of small products (tile.h), without a matrix of patches.
 *
 *   y[oy][ox][o] = bias[o] + sum over ky, kx, c of x[oy sh + ky dh - ph][ox sw + kx dw - pw][c] w[ky][kx][c][o]
 *
 * A row of the kernel is a contiguous run of kw * C numbers of the image, so a tile walks over kh runs. Weights are kept as
 * [kh][kw][C / groups][O], whose gradient is then the same kind of product. Every element is one chain in a fixed order; weight
 * gradients continue over samples from what the buffer holds. */
#ifndef GA_CONVOLUTION_H
#define GA_CONVOLUTION_H
#include "tile.h"

typedef struct {
    int64_t h, w, c;                             /* the image that w slides over */
    int64_t oh, ow, o;                           /* the result */
    int64_t kh, kw, sh, sw, ph, pw, dh, dw, groups;
    ga_engine engine;
} convolution;

#define convolution_bytes GA_NAME(ga_convolution_bytes)
#define convolution_packed_count GA_NAME(ga_convolution_packed_count)
#define convolution_pack GA_NAME(ga_convolution_pack)
#define convolution_forward GA_NAME(ga_convolution_forward)
#define convolution_input_gradient GA_NAME(ga_convolution_input_gradient)
#define convolution_weight_gradient GA_NAME(ga_convolution_weight_gradient)

/* Scratch bytes per thread for all three. */
int64_t convolution_bytes(const convolution *q);
/* Panels of the weights, for forward and for the input's gradient; 0 with OpenBLAS and for depthwise kernels. */
int64_t convolution_packed_count(const convolution *q);
void convolution_pack(const convolution *q, const real *w, real *packed);

void convolution_forward(const convolution *q, const ga_node *node, const ga_pass *pass, const real *x, const real *w, const real *bias,
                         real *y, int adds);
/* dx from dy; with a bias (of c numbers) this is the forward pass of a transposed convolution. */
void convolution_input_gradient(const convolution *q, const ga_node *node, const ga_pass *pass, const real *dy, const real *w,
                                const real *bias, real *dx, int adds);
void convolution_weight_gradient(const convolution *q, const ga_node *node, const ga_pass *pass, const real *x, const real *dy, real *dw);
#endif
