/* What a layer sees. A layer is one file: the mathematics, forward, backward, and a constant ga_layer at its end.
 *
 * The rules it obeys (the tests check each of them)
 *   1. Parameter gradients are ADDED to (+=), never set. Who clears them is the window's business.
 *   2. An input's gradient is set, or added to where node->dx_adds says that something was written there before; inputs go in
 *      order, since two of them may be the same value.
 *   3. The value of an element depends on the samples and their order, never on how they were grouped into micro-batches or
 *      spread over threads: a parameter gradient is one chain of additions over the samples, which starts from what the buffer
 *      holds; threads divide outputs, never such a sum. A layer that cannot keep this declares GA_MIXES_SAMPLES.
 *   4. Nothing is allocated; scratch memory is asked for in plan().
 *   5. Values of shape (C, H, W) are stored channels last, (H, W, C); all others row-major.
 *   6. Losses give sums and weights; nobody divides. */
#ifndef GA_LAYER_H
#define GA_LAYER_H
#include "node.h"
#include "real.h"

#define LAYER(name) GA_NAME(ga_layer_##name)
#define REQUIRED NAN             /* default of an option that must be given */

static inline const real *input(const ga_node *node, int k) { return node->x[k]; }
static inline const int64_t *integer_input(const ga_node *node, int k) { return node->x[k]; }
static inline real *input_grad(const ga_node *node, int k) { return node->dx[k]; }
static inline real *output(const ga_node *node) { return node->y; }
static inline const real *output_grad(const ga_node *node) { return node->dy; }
static inline const real *weight(const ga_node *node, int i) { return node->w[i]; }
static inline real *weight_grad(const ga_node *node, int i) { return node->dw[i]; }
static inline real *state(const ga_node *node) { return node->state; }
static inline void *thread_work(const ga_node *node, int worker)
{
    return (char *)node->thread_work + worker * ((node->work_per_thread + 63) / 64 * 64);
}

/* Size of the last stored axis: features or channels. */
static inline int64_t features(const ga_shape *s) { return s->rank == 3 ? s->dim[0] : s->rank ? s->dim[s->rank - 1] : 1; }

/* Elements of one sample in this micro-batch. */
static inline int64_t sample_elements(const ga_shape *s, int sequence, const ga_pass *pass)
{
    int64_t n = 1;
    for (int i = 0; i < s->rank; i++)
        n *= i == 0 && sequence ? pass->length : s->dim[i];
    return n;
}
static inline int64_t input_elements(const ga_node *node, int k, const ga_pass *pass)
{
    return sample_elements(&node->in[k], node->in_sequence[k], pass);
}
static inline int64_t output_elements(const ga_node *node, const ga_pass *pass)
{
    return sample_elements(&node->shape, node->sequence, pass);
}

/* Output like input 0. */
static inline ga_status same_shape(ga_node *node)
{
    node->shape = node->in[0];
    node->sequence = node->in_sequence[0];
    return GA_OK;
}

/* For plan(): input 0 must be an image. */
static inline ga_status needs_image(const ga_node *node)
{
    char text[64];
    if (node->in[0].rank == 3)
        return GA_OK;
    return ga_fail(GA_EVALUE, "%s (%s): the input has shape %s per sample, expected an image (channels, height, width)", node->name,
                   node->layer->kind, ga_shape_text(&node->in[0], text));
}

/* One task a chunk of n elements, for elementwise work; small work stays in one task. */
enum { CHUNK = 16384 };
static inline int chunks(int64_t n) { return (int)((n + CHUNK - 1) / CHUNK); }
static inline int64_t chunk_end(int64_t n, int i) { return (i + 1) * (int64_t)CHUNK < n ? (i + 1) * (int64_t)CHUNK : n; }
#endif
