/* OpenBLAS, opened at run time: no link-time BLAS, so the same library runs with the bundled copy, the system's, or none. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include "internal.h"

#if defined(RTLD_DEEPBIND) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define DEEP RTLD_DEEPBIND       /* our copy calls itself, not a copy that somebody loaded globally */
#else
#define DEEP 0
#endif

ga_blas ga_blas_table;
static char name[96];

static void *symbol(void *library, const char *prefix, const char *base)
{
    char full[64];
    snprintf(full, sizeof full, "%s%s", prefix, base);
    return dlsym(library, full);
}

ga_status ga_blas_load(const char *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL | DEEP);
    if (!library)
        return ga_fail(GA_EVALUE, "%s", dlerror());
    const char *prefix = symbol(library, "scipy_", "cblas_sgemm") ? "scipy_" : "";
    void *sgemm = symbol(library, prefix, "cblas_sgemm"), *dgemm = symbol(library, prefix, "cblas_dgemm");
    void *threads = symbol(library, prefix, "openblas_set_num_threads");
    void *config = symbol(library, prefix, "openblas_get_config"), *core = symbol(library, prefix, "openblas_get_corename");
    if (!sgemm || !dgemm || !threads || !config || !core) {
        dlclose(library);
        return ga_fail(GA_EVALUE, "%s is not an OpenBLAS library", path);
    }
    void (*set_threads)(int);
    char *(*get_config)(void), *(*get_core)(void);
    *(void **)&set_threads = threads;
    *(void **)&get_config = config;
    *(void **)&get_core = core;
    *(void **)&ga_blas_table.sgemm = sgemm;
    *(void **)&ga_blas_table.dgemm = dgemm;
    /* One thread a call: the order of its sums is then fixed, and our own threads have the cores. The bundled copy is
     * private, so nobody else's setting changes. */
    set_threads(1);
    char version[64] = "";
    sscanf(get_config(), "OpenBLAS %63s", version);
    snprintf(name, sizeof name, "%s %s", version, get_core());
    return GA_OK;
}

const char *ga_blas_name(void) { return name; }
