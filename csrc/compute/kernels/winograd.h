/* 3 x 3 convolutions of stride 1 by Winograd's minimal filtering F(2 x 2, 3 x 3) (Lavin, Gray 2015, arXiv:1509.09308).
 *
 *   y = A' [ (G g G') * (B' d B) ] A        for each 2 x 2 tile of outputs, from a 4 x 4 tile d of inputs; * elementwise, ' transposed
 *
 * Over the channels each of the 16 elements is a product of matrices: 16 multiplications for 4 outputs instead of 36. Weights are
 * transformed once per update. Measured on a Zen 4 core, one thread, against the direct kernel: 1.2 times as fast with 16 channels, 1.5 with
 * 32, 1.8 to 2.0 with 64 and 128; its error in float32 is about half, since its chains run over the channels only. Its bits depend on
 * the sample alone: a block of tiles never spans two samples. */
#ifndef GA_WINOGRAD_H
#define GA_WINOGRAD_H
#include "convolution.h"

#define winograd_bytes GA_NAME(ga_winograd_bytes)
#define winograd_packed_count GA_NAME(ga_winograd_packed_count)
#define winograd_pack GA_NAME(ga_winograd_pack)
#define winograd_forward GA_NAME(ga_winograd_forward)
#define winograd_input_gradient GA_NAME(ga_winograd_input_gradient)

/* 3 x 3, stride 1, no dilation, no groups, padding 0 to 2 on each side. */
static inline int winograd_can(const convolution *q)
{
    return q->kh == 3 && q->kw == 3 && q->sh == 1 && q->sw == 1 && q->dh == 1 && q->dw == 1 && q->groups == 1 && q->ph <= 2 && q->pw <= 2
           && q->oh == q->h + 2 * q->ph - 2 && q->ow == q->w + 2 * q->pw - 2;
}

/* Scratch bytes per thread; reals of the transformed weights, of forward or of the input's gradient. */
int64_t winograd_bytes(const convolution *q);
int64_t winograd_packed_count(const convolution *q, int backward);
void winograd_pack(const convolution *q, const real *w, int backward, int threads, real *packed);

void winograd_forward(const convolution *q, const ga_node *node, const ga_pass *pass, const real *x, const real *packed, const real *bias, real *y);
void winograd_input_gradient(const convolution *q, const ga_node *node, const ga_pass *pass, const real *dy, const real *packed, real *dx, int adds);
#endif
