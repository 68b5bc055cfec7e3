/* Functions on flat arrays of reals (optimizers.c, buffers.c), under this variant's names. */
#ifndef GA_COMPUTE_H
#define GA_COMPUTE_H
#include "node.h"
#include "real.h"

#define flat_optimize GA_NAME(ga_optimize)
#define flat_take GA_NAME(ga_take)
#define flat_norm_squares GA_NAME(ga_norm_squares)
#define flat_finite GA_NAME(ga_finite)
#define flat_scale GA_NAME(ga_scale)
#define flat_add GA_NAME(ga_add)
#define flat_average GA_NAME(ga_average)
#define flat_buffer_add GA_NAME(ga_buffer_add)
#define flat_buffer_read GA_NAME(ga_buffer_read)

void flat_optimize(ga_optimizer_kind kind, const ga_hyper *hyper, int64_t clock, double divisor, double factor, int clear, int64_t n,
              void *p, void *g, void *const state[3]);
void flat_take(const ga_hyper *h, int first, double divisor, int64_t n, void *g, void *m, void *v);
double flat_norm_squares(int64_t n, const void *g, double divisor);
int flat_finite(int64_t n, const void *g);
void flat_scale(int64_t n, void *g, double divisor, double factor);
void flat_add(int64_t n, void *to, const void *from);
void flat_average(int64_t n, void *ema, const void *p, double decay);
void flat_buffer_add(ga_buffer kind, int64_t n, void *buffer, void *compensation, const void *g);
void flat_buffer_read(ga_buffer kind, int64_t n, const void *buffer, const void *compensation, double divisor, void *g);
#endif
