/* One head of attention over one sample, in blocks of queries: no array of all scores exists at any time.
 *
 *   scores s_ij = q_i . k_j,   p_ij = exp((s_ij - m_i) / sqrt(size)) / sum over j of the same,  m_i = max s_ij,   out_i = sum p_ij v_j
 *
 * over the keys j that query i may see: j < keys, and j <= i if causal. Of the probabilities only m_i and 1 / sum are kept;
 * backward computes the same bits again. With dropout, v_j is weighed by p_ij b_ij, b_ij = 0 or 1 / (1 - p); the mask is the random
 * function of (seed, update, node, sample, head and query; key), so it depends on no length. */
#ifndef GA_ATTENTION_H
#define GA_ATTENTION_H
#include "matmul.h"

typedef struct {
    ga_engine engine;
    int64_t steps, keys, size;                   /* queries; keys; elements of a head */
    int64_t row, out_row;                        /* reals from one step to the next: of q, k, v and their gradients; of out */
    int causal;
    const real *q, *k, *v, *d_out;
    real *out, *dq, *dk, *dv;
    real *kept;                                  /* m_i and 1 / sum, a pair a query */
    double drop;                                 /* probability, 0: no dropout */
    uint64_t stream, head;
} attention;

#define attention_work GA_NAME(ga_attention_work)
#define attention_forward GA_NAME(ga_attention_forward)
#define attention_backward GA_NAME(ga_attention_backward)

/* Reals of scratch memory: grows with steps, not with its square. */
int64_t attention_work(int64_t steps, int64_t size);
void attention_forward(const attention *a, real *work);
void attention_backward(const attention *a, real *work);
#endif
