/* Random numbers as a function of what they are for, not of what was drawn before: there is no generator state to save, and a
 * sample's mask does not depend on the micro-batch it came in.
 * Mixing: the finaliser of SplitMix64 (Steele, Lea, Flood 2014) per stream, a 32-bit multiply-xorshift per element. */
#ifndef GA_RANDOM_H
#define GA_RANDOM_H
#include <stdint.h>

static inline uint64_t random_mix(uint64_t z)
{
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

static inline uint64_t random_stream(uint64_t seed, uint64_t update, uint64_t layer, uint64_t sample)
{
    const uint64_t golden = 0x9E3779B97F4A7C15u;
    return random_mix(random_mix(random_mix(random_mix(golden + seed) + golden + update) + golden + layer) + golden + sample);
}

static inline uint32_t random_element(uint64_t stream, uint32_t element)
{
    uint32_t x = (uint32_t)stream ^ element * 0x9E3779B9u;
    x = (x ^ x >> 16) * 0x7FEB352Du + (uint32_t)(stream >> 32);
    x = (x ^ x >> 15) * 0x846CA68Bu;
    return x ^ x >> 16;
}
#endif
