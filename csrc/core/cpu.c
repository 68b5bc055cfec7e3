/* Which compiled variant of the compute sources this machine runs. */
#include <stdlib.h>
#include <string.h>
#include "internal.h"

extern const ga_compute ga_compute_f32_base, ga_compute_f64_base;
#ifdef GA_HAVE_X86_LEVELS
extern const ga_compute ga_compute_f32_avx2, ga_compute_f64_avx2, ga_compute_f32_avx512, ga_compute_f64_avx512;
static const ga_compute *const variants[][2] = {
    {&ga_compute_f32_base, &ga_compute_f64_base},
    {&ga_compute_f32_avx2, &ga_compute_f64_avx2},
    {&ga_compute_f32_avx512, &ga_compute_f64_avx512},
};
#else
static const ga_compute *const variants[][2] = {{&ga_compute_f32_base, &ga_compute_f64_base}};
#endif
enum { LEVELS = sizeof variants / sizeof *variants };
static const char *const names[] = {"baseline", "avx2", "avx512"};

static int best(void)
{
#ifdef GA_HAVE_X86_LEVELS
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !__builtin_cpu_supports("bmi2"))
        return 0;
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq")
           && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512cd") ? 2 : 1;
#else
    return 0;
#endif
}

/* The level, or -1. Asked anew each time, so that a test can change the environment between networks. */
static int level(void)
{
    int limit = best();
    const char *wanted = getenv("GRADACCUM_CPU");
    if (!wanted || !*wanted)
        return limit;
    for (int i = 0; i < 3; i++)
        if (!strcmp(wanted, names[i]))
            return i < limit ? i : limit;
    ga_fail(GA_EVALUE, "GRADACCUM_CPU=%s: expected one of baseline, avx2, avx512", wanted);
    return -1;
}

const char *ga_cpu_level(void)
{
    int i = level();
    return i < 0 ? NULL : names[i];
}

int ga_cpu_bf16(void)
{
#ifdef GA_HAVE_X86_LEVELS
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512bf16") != 0;
#else
    return 0;
#endif
}

const ga_compute *ga_compute_for(ga_dtype dtype)
{
    int i = level();
    return i < 0 ? NULL : variants[i][dtype == GA_FLOAT64];
}
