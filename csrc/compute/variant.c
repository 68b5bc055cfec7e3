/* The table of one variant: its layers and its functions on flat arrays. */
#include "compute.h"
#include "layer.h"

#define LAYER_LINE(name) extern const ga_layer LAYER(name);
#include "layers.def"
#undef LAYER_LINE

static const ga_layer *const layers[] = {
#define LAYER_LINE(name) &LAYER(name),
#include "layers.def"
    NULL
};

/* (C, H, W) <-> (H, W, C); everything else is a copy. */
static void import_images(const ga_shape *s, int64_t samples, const void *from, void *to)
{
    int64_t n = ga_elements(s);
    if (s->rank < 3 || s->dim[0] == 1) {
        memcpy(to, from, (size_t)(samples * n) * sizeof(real));
        return;
    }
    int64_t channels = s->dim[0], pixels = n / channels;
    const real *x = from;
    real *y = to;
    for (int64_t i = 0; i < samples; i++, x += n, y += n)
        for (int64_t p = 0; p < pixels; p++)
            for (int64_t c = 0; c < channels; c++)
                y[p * channels + c] = x[c * pixels + p];
}

static void export_images(const ga_shape *s, int64_t samples, const void *from, void *to)
{
    int64_t n = ga_elements(s);
    if (s->rank < 3 || s->dim[0] == 1) {
        memcpy(to, from, (size_t)(samples * n) * sizeof(real));
        return;
    }
    int64_t channels = s->dim[0], pixels = n / channels;
    const real *x = from;
    real *y = to;
    for (int64_t i = 0; i < samples; i++, x += n, y += n)
        for (int64_t c = 0; c < channels; c++)
            for (int64_t p = 0; p < pixels; p++)
                y[c * pixels + p] = x[p * channels + c];
}

extern const ga_compute GA_NAME(ga_compute);
const ga_compute GA_NAME(ga_compute) = {
    .real_bytes = sizeof(real),
    .layers = layers,
    .import = import_images,
    .export = export_images,
    .optimize = flat_optimize,
    .norm_squares = flat_norm_squares,
    .scale = flat_scale,
    .add = flat_add,
    .average = flat_average,
    .buffer_add = flat_buffer_add,
    .buffer_read = flat_buffer_read,
};
