/* 3 x 3 convolutions of stride 1 by Winograd's minimal filtering F(2 x 2, 3 x 3) (Lavin, Gray 2015, arXiv:1509.09308).
 *
 *   y = A' [ (G g G') * (B' d B) ] A        for each 2 x 2 tile of outputs, from a 4 x 4 tile d of inputs; * elementwise, ' transposed
 *
 * Over the channels each of the 16 elements is a product of matrices: 16 multiplications for 4 outputs instead of 36. The input's gradient is
 * the same with flipped, transposed weights, the weights' gradient the adjoint: dw += G' (sum over tiles of A dy A' * B' d B) G. Weights are
 * transformed once per update.
 *
 * Same bits for every split: a block of tiles never spans two samples, and a weight's gradient adds one finished sum per sample to the buffer.
 * Measured on a Zen 4 core, one thread, float32, forward and backward together against the direct kernel: 1.3 times as fast with 16 channels,
 * 1.6 to 1.9 with 32 to 128. The error in float32 is a third to a half of the direct sum's, whose chains are longer. An infinity in the image
 * makes NaN in its whole tile: differences of pixels are taken first. */
#ifndef GA_WINOGRAD_H
#define GA_WINOGRAD_H
#include "convolution.h"

#define winograd_bytes GA_NAME(ga_winograd_bytes)
#define winograd_packed_count GA_NAME(ga_winograd_packed_count)
#define winograd_pack GA_NAME(ga_winograd_pack)
#define winograd_forward GA_NAME(ga_winograd_forward)
#define winograd_input_gradient GA_NAME(ga_winograd_input_gradient)
#define winograd_weight_gradient GA_NAME(ga_winograd_weight_gradient)

/* Where output and input's gradient keep within 2e-6 (largest error over the rms, float32, measured: at most 1.98e-6 with 64 channels, 2.3e-6 with
 * 96; the direct sum: 1.3e-6 with 16, 6.0e-6 with 64). The weights' gradient errs less than the direct sum's everywhere. */
static inline int winograd_is_exact(const convolution *q) { return larger(q->c, q->o) <= 64; }
/* Where it is faster than the direct sum. A rule of the shape alone: the bits of a layer do not depend on the micro-batch. */
static inline int winograd_pays(const convolution *q) { return q->c >= 16 && q->o >= 16; }
static inline int winograd_pays_for_weights(const convolution *q) { return (q->oh + 1) / 2 * ((q->ow + 1) / 2) >= 32; }

/* All of the following: for 3 x 3, stride 1, no dilation, no groups, where winograd_pays. Scratch bytes per thread; reals of the transformed
 * weights, of forward or of the input's gradient. */
int64_t winograd_bytes(const convolution *q);
int64_t winograd_packed_count(const convolution *q, int backward);
void winograd_pack(const convolution *q, const real *w, int backward, int threads, real *packed);

void winograd_forward(const convolution *q, const ga_node *node, const ga_pass *pass, const real *x, const real *packed, const real *bias, real *y);
void winograd_input_gradient(const convolution *q, const ga_node *node, const ga_pass *pass, const real *dy, const real *packed, real *dx, int adds);
void winograd_weight_gradient(const convolution *q, const ga_node *node, const ga_pass *pass, const real *x, const real *dy, real *dw);
#endif
