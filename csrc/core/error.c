/* The text of the last error, one per thread. */
#include <stdarg.h>
#include <stdio.h>
#include "internal.h"

static _Thread_local char text[1024];

const char *ga_error(void) { return text; }

ga_status ga_fail(ga_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return status;
}

int ga_product(int64_t a, int64_t b, int64_t *out)
{
    return !__builtin_mul_overflow(a, b, out) && *out < ((int64_t)1 << 62) && *out > -((int64_t)1 << 62);
}

int64_t ga_elements(const ga_shape *shape)
{
    int64_t n = 1;
    for (int i = 0; i < shape->rank; i++)
        n *= shape->dim[i];
    return n;
}

const char *ga_shape_text(const ga_shape *shape, char out[64])
{
    int used = snprintf(out, 64, "(");
    for (int i = 0; i < shape->rank && used < 64; i++)
        used += snprintf(out + used, 64 - used, i ? ", %lld" : "%lld", (long long)shape->dim[i]);
    if (used < 64)
        snprintf(out + used, 64 - used, shape->rank == 1 ? ",)" : ")");
    return out;
}
