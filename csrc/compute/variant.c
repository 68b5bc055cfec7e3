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

/* [samples][rows][columns] to [samples][columns][rows] */
static void transpose(int64_t samples, int64_t rows, int64_t columns, const real *from, real *to)
{
    int64_t n = rows * columns;
    for (int64_t i = 0; i < samples; i++, from += n, to += n)
        for (int64_t c = 0; c < columns; c++)
            for (int64_t r = 0; r < rows; r++)
                to[c * rows + r] = from[r * columns + c];
}

/* (C, H, W) to (H, W, C), and back; everything else, one row, is a copy. */
static void import_images(const ga_shape *s, int64_t samples, const void *from, void *to)
{
    int64_t channels = s->rank == 3 ? s->dim[0] : 1;
    if (channels == 1)
        memcpy(to, from, (size_t)(samples * ga_elements(s)) * sizeof(real));
    else
        transpose(samples, channels, ga_elements(s) / channels, from, to);
}

static void export_images(const ga_shape *s, int64_t samples, const void *from, void *to)
{
    int64_t channels = s->rank == 3 ? s->dim[0] : 1;
    if (channels == 1)
        memcpy(to, from, (size_t)(samples * ga_elements(s)) * sizeof(real));
    else
        transpose(samples, ga_elements(s) / channels, channels, from, to);
}

extern const ga_compute GA_NAME(ga_compute);
const ga_compute GA_NAME(ga_compute) = {
    .real_bytes = sizeof(real),
    .layers = layers,
    .import = import_images,
    .export = export_images,
    .optimize = flat_optimize,
    .take = flat_take,
    .norm_squares = flat_norm_squares, .finite = flat_finite,
    .scale = flat_scale,
    .add = flat_add,
    .average = flat_average,
    .buffer_add = flat_buffer_add,
    .buffer_read = flat_buffer_read,
};
