/* The most multiply-adds a second of each thread: independent chains in registers. Prints GFLOP/s of 1 and of all threads.
 * cc -O2 -march=native -pthread peak.c */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#if defined __AVX512F__
enum { BYTES = 64, CHAINS = 16 };
#elif defined __AVX2__
enum { BYTES = 32, CHAINS = 12 };
#else
enum { BYTES = 16, CHAINS = 12 };
#endif
enum { LANES = BYTES / 4, TURNS = 20000000, ROUNDS = 9 };
typedef float vec __attribute__((vector_size(BYTES)));

static void *chains(void *out)
{
    vec x, y, t[CHAINS];
    for (int l = 0; l < LANES; l++)
        x[l] = 0.999f, y[l] = 1e-4f;
#pragma GCC unroll 16
    for (int i = 0; i < CHAINS; i++)
        t[i] = x * (float)i;
    for (long n = 0; n < TURNS / CHAINS; n++)
#pragma GCC unroll 16
        for (int i = 0; i < CHAINS; i++)
            t[i] = t[i] * x + y;                 /* contracted to one multiply-add */
    vec sum = t[0];
    for (int i = 1; i < CHAINS; i++)
        sum += t[i];
    *(float *)out = sum[0];
    return NULL;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int ascending(const void *a, const void *b) { return *(const double *)a < *(const double *)b ? -1 : 1; }

int main(int argc, char **argv)
{
    int most = argc > 1 ? atoi(argv[1]) : 1;
    for (int threads = 1; threads <= most; threads += most > 1 ? most - 1 : 1) {
        double seconds[ROUNDS];
        for (int r = 0; r < ROUNDS; r++) {
            pthread_t id[64];
            float out[64];
            double start = now();
            for (int i = 0; i < threads; i++)
                pthread_create(&id[i], NULL, chains, &out[i]);
            for (int i = 0; i < threads; i++)
                pthread_join(id[i], NULL);
            seconds[r] = now() - start;
        }
        qsort(seconds, ROUNDS, sizeof *seconds, ascending);
        printf("%.1f\n", 1e-9 * threads * (double)(TURNS / CHAINS * CHAINS) * LANES * 2 / seconds[ROUNDS / 2]);
    }
    return 0;
}
