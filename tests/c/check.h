/* A test framework in two macros. The first failure ends the program with 1; the end prints how many checks passed. */
#ifndef CHECK_H
#define CHECK_H
#include <stdio.h>
#include <stdlib.h>

static long checks_passed;

#define CHECK(condition)                                                                                                    \
    do {                                                                                                                    \
        if (!(condition)) {                                                                                                 \
            fprintf(stderr, "%s:%d: %s: failed: %s\n", __FILE__, __LINE__, __func__, #condition);                           \
            printf("%ld passed, 1 failed\n", checks_passed);                                                                \
            _Exit(1);                                                                                                       \
        }                                                                                                                   \
        checks_passed++;                                                                                                    \
    } while (0)

#define CHECK_EQ(a, b)                                                                                                      \
    do {                                                                                                                    \
        double a_ = (double)(a), b_ = (double)(b);                                                                          \
        if (!(a_ == b_)) {                                                                                                  \
            fprintf(stderr, "%s:%d: %s: %s == %.17g, but %s == %.17g\n", __FILE__, __LINE__, __func__, #a, a_, #b, b_);     \
            printf("%ld passed, 1 failed\n", checks_passed);                                                                \
            _Exit(1);                                                                                                       \
        }                                                                                                                   \
        checks_passed++;                                                                                                    \
    } while (0)

__attribute__((destructor)) static void checks_report(void) { printf("%ld passed, 0 failed\n", checks_passed); }
#endif
